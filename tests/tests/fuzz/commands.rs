//! Command lines that are run: the real `dueline`, on a real database and broker.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dueline_tests::testkit::process;
use dueline_tests::{KIND, Shop};

use super::arguments;
use super::dice::Dice;
use super::harness::{COMMANDS, Run};

/// Asking a broker that does not answer takes ten seconds; everything else is quick.
const PATIENCE: Duration = Duration::from_secs(90);
/// Codes that the help names.
const CODES: [i32; 7] = [0, 1, 2, 3, 4, 5, 78];
/// What only measures, or waits for a broker that some bent argument names.
const SKIPPED: [&str; 2] = ["bench", "sweep"];

/// A command line as the system takes it: no word of it has a NUL.
fn line(dice: &mut Dice) -> Vec<OsString> {
    loop {
        let line: Vec<OsString> = arguments::line(dice)
            .into_iter()
            .map(|word| {
                OsString::from_vec(word.into_vec().into_iter().filter(|b| *b != 0).collect())
            })
            .collect();
        if line.iter().all(|word| SKIPPED.iter().all(|skipped| word != skipped)) {
            return line;
        }
    }
}

async fn run(shop: &Shop, words: &[OsString]) -> Result<Output> {
    let mut command = tokio::process::Command::new(process::binary("dueline")?);
    command.arg("--config").arg(shop.config()).args(words).kill_on_drop(true);
    command.current_dir(shop.folder()).stdin(Stdio::null());
    tokio::time::timeout(PATIENCE, command.output())
        .await
        .context("it does not end")?
        .map_err(Into::into)
}

fn judge(words: &[OsString], output: &Output) -> Result<&'static str> {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let all = format!("{out}{err}");
    let code = output.status.code().context("a signal ended it")?;
    ensure!(CODES.contains(&code), "code {code}: {all}");
    ensure!(!all.contains("panicked"), "{all}");
    ensure!(all.chars().all(|c| "\n\t".contains(c) || !c.is_control()), "{all:?}");
    ensure!(code == 0 || all.trim().len() > 10, "code {code} without a word");
    // Wrong arguments are told before anybody knows what was asked for.
    let json = words.iter().any(|word| word == "--json") && code != 2 && !out.starts_with("Usage");
    if json && !out.trim().is_empty() && out.trim_start().starts_with('{') {
        serde_json::from_str::<serde_json::Value>(&out).with_context(|| out.to_string())?;
    }
    Ok(match code {
        0 => "done",
        2 => "wrong arguments",
        4 | 5 => "refused",
        78 => "configuration",
        3 => "pending",
        _ => {
            // What a person typed is never a reason to try again.
            let outside =
                ["broker", "did not answer", "database does not answer", "timed out", "lookup"];
            ensure!(outside.iter().any(|sign| all.contains(sign)), "code 1: {all}");
            "failed"
        }
    })
}

#[tokio::test]
async fn any_command_ends_with_a_documented_code_and_a_word() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    shop.schedule(KIND, 1_000..=1_010, Duration::from_secs(3_600)).await?;
    let mut cases = Run::begin(COMMANDS);
    while let Some(dice) = cases.next() {
        let mut dice = dice.showing();
        let words = line(&mut dice);
        dice.show(|| format!("{words:?}"));
        let start = Instant::now();
        let verdict = run(&shop, &words).await.and_then(|output| judge(&words, &output));
        // Some wait for a broker that is not there.
        let took = start.elapsed().min(Duration::from_secs(15));
        cases.judge(verdict.with_context(|| dice.shown()), took)?;
    }
    cases.end(&["done", "wrong arguments", "refused"])
}
