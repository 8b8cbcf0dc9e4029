//! The table of hazards in docs/reliability.md names tests that exist, and leaves no hazard out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// How many hazards there are.
const HAZARDS: usize = 39;
/// What a cell says instead of a test, followed by the reason.
const NO_TEST: &str = "not tested:";

/// One row: the hazard's number, and the cell that names its tests.
struct Row {
    number: usize,
    proof: String,
}

fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's folder")?;
    Ok(root.to_owned())
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let Some(number) = cells[0].strip_prefix('H').and_then(|n| n.parse().ok()) else {
            continue;
        };
        ensure!(cells.len() == 4, "a hazard's row has four cells: {line}");
        rows.push(Row { number, proof: cells[3].to_owned() });
    }
    Ok(rows)
}

/// The tests that a cell names, `(name, file)`, from "`h01_name` (e2e/file)".
fn named(proof: &str) -> Vec<(String, String)> {
    let mut tests = Vec::new();
    let mut parts = proof.split('`').skip(1);
    while let (Some(name), Some(after)) = (parts.next(), parts.next()) {
        let file = after.trim_start().strip_prefix('(').and_then(|rest| rest.split(')').next());
        tests.push((name.to_owned(), file.unwrap_or_default().to_owned()));
    }
    tests
}

/// Every function after a test attribute in the sources: its name, and the files that have it.
fn tests_in(folder: &Path, found: &mut BTreeMap<String, Vec<PathBuf>>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            tests_in(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let mut lines = text.lines().map(str::trim);
            while let Some(line) = lines.next() {
                if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
                    continue;
                }
                let function = lines.find(|line| line.contains("fn ")).unwrap_or_default();
                let name = function.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
                found.entry(name.unwrap_or_default().to_owned()).or_default().push(path.clone());
            }
        }
    }
    Ok(())
}

/// What is wrong with the table, in words.
fn faults(text: &str, tests: &BTreeMap<String, Vec<PathBuf>>) -> Result<Vec<String>> {
    let rows = rows(text)?;
    let mut wrong = Vec::new();
    for number in 1..=HAZARDS {
        if rows.iter().filter(|row| row.number == number).count() != 1 {
            wrong.push(format!("H{number} does not have one row"));
        }
    }
    for Row { number, proof } in rows {
        let named = named(&proof);
        let reason = proof.to_lowercase().split_once(NO_TEST).map(|(_, why)| why.len());
        if named.is_empty() && reason.is_none_or(|length| length < 20) {
            wrong.push(format!("H{number} has neither a test nor a reason"));
        }
        for (name, file) in named {
            let ending = format!("{file}.rs");
            let files = tests.get(&name).map(Vec::as_slice).unwrap_or_default();
            let there = !file.is_empty() && files.iter().any(|path| path.ends_with(&ending));
            if !there {
                wrong.push(format!("H{number}: there is no test {name} in {file}.rs"));
            }
            if !name.contains(&format!("h{number:02}_")) {
                wrong.push(format!("H{number}: {name} does not carry its number"));
            }
        }
    }
    Ok(wrong)
}

#[test]
fn every_hazard_has_its_test_or_a_reason() -> Result<()> {
    let mut tests = BTreeMap::new();
    tests_in(&root()?.join("tests"), &mut tests)?;
    tests_in(&root()?.join("crates"), &mut tests)?;
    let text = std::fs::read_to_string(root()?.join("docs/reliability.md"))?;
    let wrong = faults(&text, &tests)?;
    ensure!(wrong.is_empty(), "docs/reliability.md: {wrong:#?}");
    Ok(())
}

#[test]
fn a_table_that_is_wrong_is_found() -> Result<()> {
    let tests = BTreeMap::from([("h01_a".to_owned(), vec![PathBuf::from("/x/sql/b.rs")])]);
    let reason = "| a | b | Not tested: for a reason that is long enough |";
    let others: String = (2..=HAZARDS).map(|n| format!("| H{n} {reason}\n")).collect();
    let found = |row: &str| faults(&format!("{row}\n{others}"), &tests);
    assert_eq!(found("| H1 | a | b | `h01_a` (sql/b) |")?, Vec::<String>::new());
    assert_eq!(found("| H1 | a | b | Not tested: it needs a second data centre |")?.len(), 0);
    assert_eq!(found("| H1 | a | b | `h01_c` (sql/b) |")?.len(), 1, "no such test");
    assert_eq!(found("| H1 | a | b | `h01_a` (sql/c) |")?.len(), 1, "no such file");
    assert_eq!(found("| H1 | a | b | `h01_a` |")?.len(), 1, "no file");
    assert_eq!(found("| H1 | a | b | |")?.len(), 1, "neither test nor reason");
    assert_eq!(found("no row of H1")?.len(), 1);
    assert!(found("| H1 | a | `h01_a` (sql/b) |").is_err(), "three cells");
    Ok(())
}
