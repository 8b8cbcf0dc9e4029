//! Suite `e2e`: everything together, against a private PostgreSQL and a real Kafka, with the relay and the
//! consumer as processes of their own (`./scripts/test e2e`).
//!
//! Add a module: a file `tests/tests/e2e/<topic>.rs` and a line below. Each test opens its own shop:
//!
//! ```ignore
//! let mut shop = Shop::build().await?.set("relay.lease", "5s").start().await?;   // or Shop::start()
//! shop.orders(1..=100).await?;
//! shop.schedule(KIND, 1..=100, Duration::from_secs(1)).await?;
//! shop.relay().kill();                       // also pause, resume, stop; shop.start_relay() for another
//! shop.await_count("done", 100, PATIENCE).await?;
//! ```
//!
//! Tests are named after what they prove (`h06_…`), and wait with `testkit::wait::until`, never with sleep.
//! A test that must break the broker or the cluster starts its own (`testkit::services`), or puts a
//! `testkit::proxy::TcpProxy` in between.

mod e2e {
    mod bench_smoke;
    mod cli;
    mod cli_dlq;
    mod cli_safety;
    mod consumer_crash;
    mod consumer_faults;
    mod consumer_messages;
    mod consumer_support;
    mod fixture;
    mod hazard_clock;
    mod hazard_disk;
    mod hazard_failover;
    mod hazard_rush;
    mod hazard_surface;
    mod job_contract;
    mod job_down;
    mod job_flood;
    mod job_late_commit;
    mod job_main;
    mod job_phases;
    mod job_support;
    mod outcomes;
    mod relay_owners;
    mod relay_support;
    mod relay_troubles;
    mod team_support;
    mod webhook;
}
