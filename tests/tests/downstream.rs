//! Suite `downstream`: a team in another language, written from docs/contract alone, against the real relay, a real
//! PostgreSQL and a real Kafka (`./scripts/test downstream`).
//!
//! `DUELINE_TEAM` is the command that starts the team, such as `python examples/python/team.py`. It takes
//! `--brokers --prefix --queue --tiers --group --ledger`, handles until SIGTERM, and with `--charges` prints what it
//! charged, one `account cents` a line. What it does with an order is told by `examples/python/team.py`.

mod downstream {
    #[path = "../e2e/consumer_support.rs"]
    #[expect(dead_code, reason = "what suite `e2e` uses of it")]
    mod consumer_support;
    #[path = "../e2e/relay_support.rs"]
    #[expect(dead_code, reason = "what suite `e2e` uses of it")]
    mod relay_support;
    mod team;
    #[path = "../e2e/team_support.rs"]
    #[expect(dead_code, reason = "what suite `e2e` uses of it")]
    mod team_support;
}
