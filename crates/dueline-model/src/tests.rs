//! Every guard, one by one: taking it away breaks the invariant that the table names, or nothing does and the
//! table says why.

use crate::explore::{Limits, Report, Search};
use crate::guard::{Guard, Guards};
use crate::model::{Invariant, Model, Scope};
use crate::state::State;
use crate::table::{Expected, SMALL, TRIALS, Trial, find};

/// More than the largest scope of the small bound has.
const MAX_STATES: usize = 8_000_000;

fn explore(scope: Scope, without: &[Guard], until: Option<Invariant>) -> Report {
    let model = Model { scope, guards: Guards::ALL.without(without) };
    Search::new(&model).run(Limits { max_states: MAX_STATES, until })
}

fn scope_of(name: &str) -> Scope {
    find(name).unwrap_or_else(|| panic!("no scope {name}"))
}

#[test]
fn the_protocol_holds_in_every_scope_of_the_small_bound() {
    for scope in SMALL {
        let report = explore(*scope, &[], None);
        assert!(!report.cut, "{} is not small", scope.name);
        assert!(report.states > 10_000, "{} has only {} states", scope.name, report.states);
        let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "in {}: {broken:#?}", scope.name);
    }
}

#[test]
fn each_guard_has_its_line_alone() {
    for guard in Guard::ALL {
        let lines = TRIALS.iter().filter(|trial| trial.without == [*guard]).count();
        assert_eq!(lines, 1, "{}", guard.name());
    }
}

#[test]
fn without_a_necessary_guard_its_invariant_breaks() {
    let mut holding = Vec::new();
    for Trial { without, expected } in TRIALS {
        let Expected::Breaks(invariant, scope) = expected else { continue };
        let report = explore(scope_of(scope), without, Some(*invariant));
        match report.violations.iter().find(|v| v.invariant == *invariant) {
            None => holding.push(format!("{without:?}: {invariant:?} holds in {scope}")),
            Some(found) => {
                let edges = found.path.iter().skip(1);
                assert!(edges.clone().count() > 0 && edges.clone().all(|(edge, _)| edge.is_some()));
            }
        }
    }
    assert!(holding.is_empty(), "not necessary: {holding:#?}");
}

#[test]
fn without_a_redundant_guard_nothing_breaks() {
    for Trial { without, expected } in TRIALS {
        let Expected::Redundant(scopes, why) = expected else { continue };
        for scope in *scopes {
            let report = explore(scope_of(scope), without, None);
            assert!(!report.cut);
            if let Some(violation) = report.violations.first() {
                panic!("{without:?} is called redundant ({why}), but in {scope}: {violation}");
            }
        }
    }
}

#[test]
fn states_come_back_from_their_packing() {
    let model = Model { scope: scope_of("pair"), guards: Guards::ALL };
    let (mut state, mut edges) = (model.start(), Vec::new());
    for turn in 0..500_usize {
        assert_eq!(State::unpack(&state.pack()), state);
        edges.clear();
        model.edges(&state, &mut edges);
        // Any walk will do; multiplied so that it does not always take the first edge.
        let Some(edge) = edges.get(turn * 7 % edges.len().max(1)) else { return };
        state = edge.to;
    }
}

#[test]
fn the_documentation_has_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/model.md");
    let text = std::fs::read_to_string(path).expect("docs/model.md");
    let table = crate::table::markdown();
    assert!(text.contains(&table), "the table in docs/model.md is to be:\n{table}");
}
