//! What the tests of the whole job share: a ledger of effects, waiting for rest, the judgement.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::Micros;
use dueline_tests::testkit::checker::{self, Answer, Effect, Evidence, Heard, Places};
use dueline_tests::testkit::wait;
use dueline_tests::{Shop, ShopBuilder};
use sqlx::PgPool;

/// The business's own ledger, written by the handlers' statements.
pub const LEDGER: &str = "
create table effect (
    effect  bigint generated always as identity primary key,
    kind    text not null,
    key     text not null,
    at      timestamptz not null default clock_timestamp()
);
grant insert on effect to dueline_handler;
";

/// Closes what is unpaid, and writes the ledger.
pub const CLOSE_AND_NOTE: &str = "
with closed as (
    update orders
       set status = 'closed', closed_at = clock_timestamp(), times = orders.times + 1
      from batch
     where orders.id = batch.key::bigint and orders.status = 'unpaid'
    returning batch.ord, batch.key
), noted as (
    insert into effect (kind, key) select 'close_order', key from closed
)
select ord from closed";

/// Orders whose row, payment and ledger contradict one another. $1: whose payer was told "paid".
const CONTRADICTIONS: &str = "
select 'order ' || o.id || ' is ' || o.status || ', closed ' || o.times || ' times'
  from orders as o
 where o.times <> (o.status = 'closed')::integer
    or (o.closed_at is not null) <> (o.status = 'closed')
    or (o.status = 'closed')
       <> exists (select from effect where kind = 'close_order' and key = o.id::text)
    or (o.id = any($1::bigint[]) and o.status <> 'paid')";

/// Short leases, so that they end several times while a test waits.
pub fn short_leases(mut builder: ShopBuilder) -> ShopBuilder {
    let settings = builder.settings();
    settings.set("relay.lease", "3s").set("relay.lease_slack", "500ms");
    settings.set("kafka.delivery_timeout", "2s").set("consumer.handler_timeout", "1s");
    settings.set("postgres.statement_timeout", "2s");
    settings.set("postgres.idle_in_transaction_timeout", "2s");
    builder
}

/// The database's clock.
pub async fn now(pool: &PgPool) -> Result<Micros> {
    let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    Ok(Micros(sqlx::query_scalar(now).fetch_one(pool).await?))
}

/// Topics and groups of a shop.
pub fn places(shop: &Shop) -> Result<Places> {
    Ok(Places::of(&shop.settings.config()?))
}

/// The whole ledger.
pub async fn effects(pool: &PgPool) -> Result<Vec<Effect>> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "select kind, key, (extract(epoch from at) * 1000000)::bigint from effect order by effect",
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(kind, key, at)| Effect { kind, key, at: Micros(at) }).collect())
}

/// When a task took effect: once for each time that it did.
pub async fn effects_of(pool: &PgPool, kind: &str, id: i64) -> Result<Vec<Micros>> {
    let all = effects(pool).await?;
    let key = id.to_string();
    Ok(all.into_iter().filter(|e| e.kind == kind && e.key == key).map(|e| e.at).collect())
}

/// Waits until so many records were published to the tier topics and not passed by their groups.
pub async fn await_lag(shop: &Shop, lag: i64, timeout: Duration) -> Result<()> {
    let places = places(shop)?;
    let what = format!("{lag} records to wait in the topics");
    wait::until(&what, timeout, async || Ok(checker::lag(&places).await? == lag)).await
}

/// Waits until there is nothing left to do: no live task, no missing letter, no record to read.
pub async fn await_rest(shop: &Shop, timeout: Duration) -> Result<()> {
    shop.await_quiet(timeout).await?;
    wait::until("the letters of the dead", timeout, async || {
        let missing = "select count(*) from dueline.stranded where lettered_at is null";
        Ok(sqlx::query_scalar::<_, i64>(missing).fetch_one(&shop.pool).await? == 0)
    })
    .await?;
    await_lag(shop, 0, timeout).await
}

/// Gathers all evidence and demands that V1–V9 hold over it. `paid`: whose payer was told so.
pub async fn judge(shop: &Shop, heard: Vec<Heard>, paid: &[i64]) -> Result<Evidence> {
    let mut evidence = checker::gather(&shop.pool, &places(shop)?).await?;
    evidence.heard = heard;
    evidence.effects = effects(&shop.pool).await?;
    evidence.contradictions =
        sqlx::query_scalar(CONTRADICTIONS).bind(paid).fetch_all(&shop.pool).await?;
    let objects: i64 =
        sqlx::query_scalar("select count(*) from orders").fetch_one(&shop.pool).await?;
    evidence.business_objects = usize::try_from(objects)?;
    let findings = checker::judge(&evidence);
    let broken: Vec<_> = findings.iter().filter(|finding| finding.violations > 0).collect();
    ensure!(broken.is_empty(), "invariants are broken: {broken:#?}");
    Ok(evidence)
}

/// No task paid for the environment's trouble: none died, none was charged an attempt.
pub async fn assert_nobody_paid(shop: &Shop) -> Result<()> {
    let charged = "select count(*) from dueline.task where attempt > 0 or state = 'dead'";
    let charged: i64 = sqlx::query_scalar(charged).fetch_one(&shop.pool).await?;
    ensure!(charged == 0, "{charged} tasks were charged an attempt or died");
    Ok(())
}

/// `heard` of one key.
pub fn heard(kind: &str, id: i64, answer: Answer) -> Heard {
    Heard { kind: kind.to_owned(), key: id.to_string(), answer }
}
