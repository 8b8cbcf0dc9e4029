//! Suite `sql`: the schema and its functions, against a private PostgreSQL (`./scripts/test sql`).
//!
//! Add a module: a file `tests/tests/sql/<topic>.rs` and a line below. Each test makes its own database
//! (`dueline_tests::Bench::new().await?`), is `#[tokio::test] async fn … -> anyhow::Result<()>`, and is
//! named after what it proves (`s05_…`, `h19_…`). Wait with `testkit::wait::until`, never with sleep.

mod sql {
    mod bulk;
    mod calls;
    mod concurrency;
    mod constraints;
    mod counts;
    mod drift;
    mod effect;
    mod effect_faults;
    mod effect_handlers;
    mod effect_marks;
    mod effect_plans;
    mod effect_races;
    mod fixture;
    mod identity;
    mod operate;
    mod operate_instance;
    mod operate_look;
    mod outcomes;
    mod outcomes_begun;
    mod privileges;
    mod receipts;
    mod relay_claim;
    mod relay_ground;
    mod relay_horizon;
    mod relay_lanes;
    mod relay_patrol;
    mod relay_plans;
    mod relay_sweep;
    mod schedule;
    mod stage;
    mod transitions;
}
