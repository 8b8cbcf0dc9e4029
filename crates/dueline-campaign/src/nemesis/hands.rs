//! How each fault is done and healed. Each function returns when it is healed.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dueline_testkit::services::{Kafka, Postgres};
use tokio::time::sleep;

use super::broker;
use super::database;
use super::fault::{Fault, Service, Trouble};
use crate::evidence::Archive;
use crate::role::Role;
use crate::stage::{MAX_POLL, Stage};

/// The most that a process may take to end after SIGTERM: its `stop_timeout`, and some more.
pub(super) const TERM_TIMEOUT: Duration = Duration::from_secs(20);
/// What a client says to commit.
pub(super) const COMMIT: &[u8] = b"COMMIT";
/// PostgreSQL's message Execute, of the nameless portal and without a limit of rows.
const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
/// How long a cut at a COMMIT waits for one.
const COMMIT_PATIENCE: Duration = Duration::from_secs(3);
/// How far a clock is moved.
const CLOCK_STEP: &str = "10m";
/// How long it stays moved, at least: so that it works for some time with it.
const CLOCK_HOLD: Duration = Duration::from_secs(3);
/// How much longer an answer takes on a delayed wire.
const DELAY: Duration = Duration::from_millis(60);

/// Does a fault, holds it for so long where it lasts, and heals it.
///
/// # Errors
/// When it could not be done or healed; what was begun is healed as far as that is possible.
pub async fn carry_out(
    stage: &Stage,
    archive: &Archive,
    fault: Fault,
    hold: Duration,
) -> Result<()> {
    match fault {
        Fault::Killed(role) => killed(stage, &[role], hold).await,
        Fault::BothKilled(roles) => killed(stage, &roles, hold).await,
        Fault::Terminated(role) => terminated(stage, role).await,
        Fault::Stopped(role) => {
            stage.pause(role).await;
            sleep(MAX_POLL + Duration::from_secs(1) + hold).await;
            stage.resume(role).await;
            Ok(())
        }
        Fault::ClockMoved(role, ahead) => clock_moved(stage, role, ahead, hold).await,
        Fault::PostgresCrashed => postgres_crashed(stage, hold).await,
        Fault::BackendsTerminated(role) => database::terminate(stage, role).await,
        Fault::ConnectionsExhausted => database::exhaust(stage, hold).await,
        Fault::RowsLocked => database::lock_rows(stage, hold).await,
        Fault::TableLocked(table) => database::lock_table(stage, table, hold).await,
        Fault::StatementsSlow => database::slow_down(stage, hold).await,
        Fault::HorizonPinned => database::pin_horizon(stage, hold * 4).await,
        Fault::DiskFull => disk_full(stage, hold).await,
        Fault::KafkaKilled => kafka_killed(stage, hold).await,
        Fault::KafkaStopped => kafka_stopped(stage, hold * 2).await,
        Fault::TopicRecreated => broker::recreate_topic(stage, archive, hold).await,
        Fault::RecordsDeleted => broker::delete_records(stage, archive).await,
        Fault::OffsetsDeleted => broker::delete_offsets(stage).await,
        Fault::OffsetsSetBack => broker::set_offsets(stage, archive, false).await,
        Fault::OffsetsSetAhead => broker::set_offsets(stage, archive, true).await,
        Fault::Rebalances => broker::rebalance(stage, hold).await,
        Fault::Wire(role, service, trouble) => {
            let proxy = match service {
                Service::Postgres => stage.postgres_wire(role),
                Service::Kafka => stage.kafka_wire(role),
            };
            wire(proxy, trouble, hold).await
        }
        Fault::CutAtCommit(role) => cut_after(stage.postgres_wire(role), EXECUTE).await,
        Fault::ClientWire(trouble) => wire(stage.client_wire(), trouble, hold).await,
        Fault::ClientCutAtCommit => cut_after(stage.client_wire(), COMMIT).await,
        Fault::PoisonHandler => database::poison(stage, archive).await,
    }
}

async fn killed(stage: &Stage, roles: &[Role], hold: Duration) -> Result<()> {
    for role in roles {
        stage.kill(*role).await;
    }
    sleep(hold / 2).await;
    for role in roles {
        stage.start_process(*role, &[]).await?;
    }
    Ok(())
}

async fn terminated(stage: &Stage, role: Role) -> Result<()> {
    let ended = stage.terminate(role, TERM_TIMEOUT).await;
    // Whatever came of it: the supervisor must get it back.
    stage.start_process(role, &[]).await?;
    let status = ended.with_context(|| format!("{role} does not end after SIGTERM"))?;
    if !status.success() {
        bail!("{role} ended with {status} after SIGTERM");
    }
    Ok(())
}

async fn postgres_crashed(stage: &Stage, hold: Duration) -> Result<()> {
    let kill = |postgres: &mut Postgres| {
        postgres.kill();
        Ok(())
    };
    stage.with_postgres(kill).await?;
    sleep(hold).await;
    stage.with_postgres(Postgres::start_again).await
}

async fn kafka_killed(stage: &Stage, hold: Duration) -> Result<()> {
    let kill = |kafka: &mut Kafka| {
        kafka.kill();
        Ok(())
    };
    stage.with_kafka(kill).await?;
    sleep(hold).await;
    stage.with_kafka(Kafka::start_again).await
}

async fn kafka_stopped(stage: &Stage, hold: Duration) -> Result<()> {
    let pause = |kafka: &mut Kafka| {
        kafka.pause();
        Ok(())
    };
    let resume = |kafka: &mut Kafka| {
        kafka.resume();
        Ok(())
    };
    stage.with_kafka(pause).await?;
    sleep(hold).await;
    stage.with_kafka(resume).await
}

async fn clock_moved(stage: &Stage, role: Role, ahead: bool, hold: Duration) -> Result<()> {
    let sign = if ahead { '+' } else { '-' };
    stage.start_with_clock(role, &format!("{sign}{CLOCK_STEP}")).await?;
    sleep(CLOCK_HOLD + hold).await;
    stage.start_process(role, &[]).await
}

async fn disk_full(stage: &Stage, hold: Duration) -> Result<()> {
    let disk = stage.disk().context("there is no small disk")?;
    let filled = tokio::task::block_in_place(|| disk.fill());
    sleep(hold).await;
    disk.free()?;
    filled
}

async fn wire(
    proxy: &dueline_testkit::proxy::TcpProxy,
    trouble: Trouble,
    hold: Duration,
) -> Result<()> {
    use dueline_testkit::proxy::Mode;
    match trouble {
        Trouble::Cut => proxy.cut(),
        Trouble::Delayed => proxy.set(Mode::Delay(DELAY)),
        Trouble::AnswersLost => proxy.set(Mode::DropAnswers),
        Trouble::Stalled => proxy.set(Mode::Stall),
        Trouble::Refused => proxy.set(Mode::Refuse),
    }
    if trouble != Trouble::Cut {
        sleep(hold).await;
        proxy.set(Mode::Pass);
    }
    if trouble == Trouble::AnswersLost {
        // A stream with a hole in it is no connection any more.
        proxy.cut();
    }
    Ok(())
}

pub(super) async fn cut_after(
    proxy: &dueline_testkit::proxy::TcpProxy,
    needle: &[u8],
) -> Result<()> {
    proxy.cut_after(needle);
    let struck =
        dueline_testkit::wait::until("a COMMIT", COMMIT_PATIENCE, async || Ok(proxy.has_cut()))
            .await;
    proxy.disarm();
    struck
}
