//! The report for a person.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::report::{Bound, Report};
use crate::stats::Spread;

/// All scenarios, then the goals.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    for outcome in &report.outcomes {
        let rows = outcome.lines.iter().filter_map(|line| {
            let spread = Spread::of(&line.values)?;
            let range = match line.values.len() {
                1 => String::new(),
                _ => format!("{} – {}", figure(spread.min), figure(spread.max)),
            };
            let what = line.what.replace('_', " ");
            let repeats = line.values.len().to_string();
            Some([what, figure(spread.median), line.unit.to_owned(), range, repeats])
        });
        let _ =
            writeln!(text, "{}", table([outcome.name, "median", "", "min – max", "repeats"], rows));
        let judged = outcome.judgement;
        if !judged.is_clean() {
            let _ = writeln!(
                text,
                "FAILED: {} duplicates, {} losses, {} early",
                judged.duplicates, judged.losses, judged.early
            );
        }
        let _ = writeln!(text, " took {:.0} s\n", outcome.seconds);
    }
    let goals = report.goals();
    let rows = goals.iter().map(|goal| {
        let bound = match goal.bound {
            Bound::AtLeast(n) => format!("≥ {}", figure(n)),
            Bound::AtMost(n) => format!("≤ {}", figure(n)),
        };
        let met = if goal.met() { "met" } else { "MISSED" };
        [goal.name.clone(), figure(goal.value), bound, met.to_owned()]
    });
    let _ = writeln!(text, "{}\n", table(["goals", "value", "goal", ""], rows));
    let _ = write!(text, " all of it took {}", minutes(report.seconds));
    text
}

fn minutes(seconds: f64) -> String {
    let (minutes, rest) = ((seconds / 60.0).floor(), (seconds % 60.0).floor());
    format!("{minutes:.0} min {rest:.0} s")
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    rows.for_each(|row| {
        table.add_row(row);
    });
    for column in [1, 3, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Three digits or so, and thousands apart.
fn figure(value: f64) -> String {
    match value.abs() {
        n if n >= 1_000.0 => thousands(value),
        n if n >= 100.0 || n == 0.0 => format!("{value:.0}"),
        n if n >= 10.0 => format!("{value:.1}"),
        n if n >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", &*digits), |rest| ("-", rest));
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judgement;
    use crate::report::Outcome;

    #[test]
    fn figures_are_readable() {
        let shown = [1_234_567.0, 999.4, 45.67, 3.456, 0.0123, 0.0, -1_500.0].map(figure);
        assert_eq!(shown, ["1,234,567", "999", "45.7", "3.46", "0.0123", "0", "-1,500"]);
    }

    #[test]
    fn the_table_shows_medians_spread_goals_and_faults() {
        let mut outcome = Outcome::new("drain");
        outcome.measure("tasks_per_s", "/s", 50_000.0);
        outcome.measure("tasks_per_s", "/s", 52_000.0);
        outcome.goal("drain_vs_raw_claim", Some(0.4), Bound::AtLeast(0.5));
        outcome.judged(Judgement { losses: 2, ..Judgement::default() });
        outcome.seconds = 61.2;
        let machine = serde_json::json!({});
        let report = Report { machine, outcomes: vec![outcome], seconds: 125.5 };
        let text = render(&report);
        assert!(text.contains("tasks per s") && text.contains("50,000 – 52,000"), "{text}");
        assert!(text.contains("took 61 s") && text.contains("took 2 min 5 s"), "{text}");
        assert!(text.contains("≥ 0.50") && text.contains("MISSED"), "{text}");
        assert!(text.contains("FAILED: 0 duplicates, 2 losses, 0 early"), "{text}");
    }
}
