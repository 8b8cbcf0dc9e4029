//! `dueline-model`: explores the protocol and says which invariants hold.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use dueline_model::explore::{Limits, Report, Search};
use dueline_model::guard::{Guard, Guards};
use dueline_model::model::{Invariant, Model, Scope};
use dueline_model::table::{Expected, LARGE, SMALL, SPECIAL, TRIALS};

/// Explores every state of the protocol within a bound and checks V1 to V9. Exit code 1: an invariant is broken.
#[derive(Parser)]
struct Options {
    /// How much: seconds, or minutes (some 50 million states).
    #[arg(long, value_enum, default_value = "small")]
    bound: Bound,
    /// Stop each scope at so many states; what is behind them is not looked at.
    #[arg(long, default_value_t = 50_000_000)]
    max_states: usize,
    /// Take a guard away, and see what breaks. May be given several times.
    #[arg(long, value_name = "GUARD")]
    without: Vec<String>,
    /// Explore only the scope of this name.
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// List the guards, what each protects, and the scopes.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bound {
    Small,
    Large,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if options.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let without = guards(&options.without)?;
    let scopes = scopes(&options)?;
    let limits = Limits { max_states: options.max_states.max(1), until: None };
    let (mut states, mut broken) = (0, false);
    for scope in scopes {
        let model = Model { scope, guards: Guards::ALL.without(&without) };
        let report = Search::new(&model).run(limits);
        states += report.states;
        broken |= !report.violations.is_empty();
        print(&scope, &report);
    }
    println!("{states} states in all; {}", if broken { "BROKEN" } else { "every invariant holds" });
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn guards(names: &[String]) -> anyhow::Result<Vec<Guard>> {
    let find = |name: &String| {
        let guard = Guard::ALL.iter().find(|guard| guard.name() == name);
        guard
            .copied()
            .ok_or_else(|| anyhow::anyhow!("no guard is called {name}; --list names them"))
    };
    names.iter().map(find).collect()
}

fn scopes(options: &Options) -> anyhow::Result<Vec<Scope>> {
    let all = match options.bound {
        Bound::Small => SMALL,
        Bound::Large => LARGE,
    };
    let Some(name) = &options.scope else { return Ok(all.to_vec()) };
    let found = all.iter().chain(SPECIAL).find(|scope| scope.name == name);
    let scope =
        found.ok_or_else(|| anyhow::anyhow!("no scope is called {name}; --list names them"))?;
    Ok(vec![*scope])
}

fn print(scope: &Scope, report: &Report) {
    println!("{}", describe(scope));
    println!(
        "  {} states, {} transitions, depth {}, {:.1} s, {} MB{}",
        report.states,
        report.transitions,
        report.depth,
        report.took.as_secs_f64(),
        report.bytes >> 20,
        if report.cut { ", CUT at --max-states" } else { "" }
    );
    let broken = |invariant| report.violations.iter().any(|v| v.invariant == invariant);
    // What is never finished is never drained.
    let drains = !(broken(Invariant::V1) || broken(Invariant::V6));
    let holds: Vec<String> = Invariant::ALL
        .iter()
        .filter(|invariant| !broken(**invariant) && (drains || **invariant != Invariant::V8))
        .map(|invariant| format!("{invariant:?}"))
        .collect();
    println!("  holds: {}", holds.join(" "));
    for violation in &report.violations {
        println!("  {violation}");
    }
}

fn describe(scope: &Scope) -> String {
    format!(
        "{}: {:?}, {} task(s), {} fault(s), {} client call(s), parked at {}",
        scope.name, scope.effect, scope.tasks, scope.faults, scope.clients, scope.unanswered
    )
}

fn list() {
    for trial in TRIALS {
        let names: Vec<&str> = trial.without.iter().map(|guard| guard.name()).collect();
        match trial.expected {
            Expected::Breaks(invariant, scope) => {
                println!("{:<58} {invariant:?} ({scope})", names.join(" + "));
            }
            Expected::Redundant(_, why) => println!("{:<58} redundant: {why}", names.join(" + ")),
        }
        if let [guard] = trial.without {
            println!("    {}", guard.text());
        }
    }
    for (bound, scopes) in [("small", SMALL), ("large", LARGE)] {
        println!("\nbound {bound}");
        scopes.iter().for_each(|scope| println!("  {}", describe(scope)));
    }
}
