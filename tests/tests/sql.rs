//! Suite `sql`: the schema and its functions, against a private PostgreSQL (`./scripts/test sql`).
//!
//! Add a module: a file `tests/tests/sql/<topic>.rs` and a line below. Each test makes its own database
//! (`dueline_tests::Bench::new().await?`), is `#[tokio::test] async fn … -> anyhow::Result<()>`, and is
//! named after what it proves (`s05_…`, `h19_…`). Wait with `testkit::wait::until`, never with sleep.

mod sql {
    mod fixture;
}
