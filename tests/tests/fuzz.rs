//! Suite `fuzz`: bad input, wherever input comes from (`./scripts/test fuzz`).
//!
//! One file a surface: `tests/tests/fuzz/<surface>.rs`. Each makes its inputs from a seed (`harness`,
//! `dice`), gives them to the product, and judges the answer: no panic, nothing lost, a clear reason.
//!
//! * `DUELINE_FUZZ_CASES`: inputs of all surfaces together (default 20,000; 1,000,000 takes some minutes);
//! * `DUELINE_FUZZ_SEED`: makes the inputs of an earlier run again; each run prints its own;
//! * `DUELINE_FUZZ_FIRST`: begins at this case, to come to a failure sooner.

mod fuzz {
    mod admin;
    mod apply;
    mod arguments;
    mod commands;
    mod configuration;
    #[path = "../e2e/consumer_support.rs"]
    #[expect(dead_code, reason = "what suite `e2e` uses of it")]
    mod consumer_support;
    mod dice;
    mod envelope;
    mod harness;
    mod kafka;
    mod letter;
    mod outcome;
    mod regressions;
    mod sorting;
    mod sql;
    mod sql_calls;
    mod sql_rules;
    #[path = "../sql/stage.rs"]
    #[expect(dead_code, reason = "what suite `sql` uses of it")]
    mod stage;
    mod topic_files;
}
