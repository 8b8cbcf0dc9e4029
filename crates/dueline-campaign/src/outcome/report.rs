//! The outcome for people.

use comfy_table::{CellAlignment, Table, presets};

use super::Outcome;

/// How many processes that ended by themselves, and how many troubles, are named.
const MAX_NAMED: usize = 12;

impl Outcome {
    /// Writes it to standard output.
    pub fn print(&self) {
        println!("\n{}", self.table());
        let all = self.tasks.values().sum::<usize>();
        let states: Vec<String> =
            self.tasks.iter().map(|(state, n)| format!("{n} {state}")).collect();
        println!("faults: {} in {:.0} s", self.faults.len(), self.seconds);
        for what in &self.left_out {
            println!("left out: {what}");
        }
        println!(
            "tasks: {all} ({}); {} effects; {} messages",
            states.join(", "),
            self.effects,
            self.messages
        );
        let [answered, failed, unknown] = self.calls;
        println!("calls: {answered} answered, {failed} failed, {unknown} of unknown outcome");
        let stops = self.duplicates_stopped.iter().map(|(layer, n)| format!("{layer} {n}"));
        println!("duplicates stopped by layer: {}", stops.collect::<Vec<_>>().join(", "));
        match self.drained_s {
            Some(seconds) => {
                println!("after the last fault everything was done within {seconds:.1} s")
            }
            None => println!("after the last fault NOT everything was done in time"),
        }
        self.print_troubles();
        println!();
        for finding in &self.invariants {
            println!("{finding}");
        }
        for (task, story) in &self.stories {
            println!("\nThe story of {task}:");
            for entry in story {
                println!("  {}  {:10} {}", entry.at, entry.source, entry.what);
            }
        }
        for problem in &self.problems {
            println!("\nPROBLEM: {problem}");
        }
        let verdict = if self.holds { "Everything holds." } else { "NOT everything holds." };
        println!("\n{verdict} Seed {}; again: {}", self.seed, self.command);
    }

    fn print_troubles(&self) {
        let troubled = self.faults.iter().filter_map(|f| Some((f, f.trouble.as_ref()?)));
        for (fault, trouble) in troubled.take(MAX_NAMED) {
            println!("fault {} ({}) did not go as planned: {trouble}", fault.number, fault.kind);
        }
        println!("processes that ended by themselves: {}", self.ended.len());
        for ended in self.ended.iter().take(MAX_NAMED) {
            let line: String = ended.last_line.chars().take(200).collect();
            println!("  {} {}: {}: {line}", ended.at, ended.process, ended.status);
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header([
            "fault",
            "count",
            "recovery p50 s",
            "recovery max s",
            "of these alone",
            "alone max s",
        ]);
        let seconds = |time: Option<f64>| time.map_or("-".to_owned(), |s| format!("{s:.1}"));
        for (kind, recovery) in &self.recovery {
            table.add_row([
                kind.clone(),
                recovery.count.to_string(),
                seconds(recovery.p50_s),
                seconds(recovery.max_s),
                recovery.alone.to_string(),
                seconds(recovery.alone_max_s),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}
