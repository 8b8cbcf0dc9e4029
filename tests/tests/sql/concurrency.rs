//! Two sessions at once.

use std::time::Duration;

use anyhow::Result;
use dueline_core::TaskState;
use dueline_store::client::{
    self, Deadline, OnConflict, Receipt, ReceiptKind, ScheduleMany, ScheduleRequest,
};
use dueline_store::{Pool, StoreError};
use dueline_tests::testkit::wait;
use sqlx::Connection as _;
use tokio::task::JoinHandle;

use super::stage::{HALF_HOUR, HERE, Stage};

const TIMEOUT: Duration = Duration::from_secs(30);

fn request(key: &str) -> ScheduleRequest {
    ScheduleRequest::new(HERE, key, Deadline::after(HALF_HOUR))
}

fn in_background(pool: &Pool, request: ScheduleRequest) -> JoinHandle<Result<Receipt, StoreError>> {
    let pool = pool.clone();
    tokio::spawn(async move { client::schedule(&pool, &request).await })
}

/// Waits until some session of this database waits for a lock.
async fn await_blocked(stage: &Stage) -> Result<()> {
    wait::until("a session to wait for a lock", TIMEOUT, async || {
        stage
            .ask(
                "select exists (select from pg_stat_activity
                                where datname = current_database() and wait_event_type = 'Lock')",
            )
            .await
    })
    .await
}

#[tokio::test]
async fn i01_the_second_of_two_sessions_is_told_of_the_first() -> Result<()> {
    let stage = Stage::new().await?;
    for commit in [true, false] {
        let key = format!("commit {commit}");
        let mut first = stage.connect().await?;
        let mut transaction = first.begin().await?;
        let one = client::schedule(&mut *transaction, &request(&key)).await?;
        let other = in_background(&stage.pool, request(&key));
        await_blocked(&stage).await?;
        if commit {
            // Committed after the other's statement began: one snapshot for insert and look would miss it.
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        let two = other.await??;
        if commit {
            assert_eq!((two.receipt, two.id), (ReceiptKind::Kept, one.id));
        } else {
            assert_eq!(two.receipt, ReceiptKind::Scheduled);
        }
    }
    Ok(())
}

#[tokio::test]
async fn i01_of_many_sessions_exactly_one_schedules() -> Result<()> {
    let stage = Stage::new().await?;
    for round in 0..20 {
        let key = round.to_string();
        let calls: Vec<_> = (0..8).map(|_| in_background(&stage.pool, request(&key))).collect();
        let mut scheduled = 0;
        for call in calls {
            match call.await??.receipt {
                ReceiptKind::Scheduled => scheduled += 1,
                other => assert_eq!(other, ReceiptKind::Kept),
            }
        }
        assert_eq!(scheduled, 1, "round {round}");
    }
    assert_eq!(stage.count("live").await?, 20);
    Ok(())
}

#[tokio::test]
async fn c01_a_schedule_waits_for_a_cancel_under_way_and_comes_after_it() -> Result<()> {
    let stage = Stage::new().await?;
    for (key, on_conflict, expected) in [
        ("keep", OnConflict::Keep, ReceiptKind::Reopened),
        ("upsert", OnConflict::Reschedule, ReceiptKind::Rescheduled),
    ] {
        stage.plan(HERE, key).await?;
        let mut session = stage.connect().await?;
        let mut transaction = session.begin().await?;
        client::cancel(&mut *transaction, HERE, key, None).await?;
        let other = in_background(&stage.pool, request(key).on_conflict(on_conflict));
        await_blocked(&stage).await?;
        transaction.commit().await?;
        let moved = other.await??;
        assert_eq!((moved.receipt, moved.generation), (expected, Some(2)));
        assert_eq!(moved.state, Some(TaskState::Live));
    }
    Ok(())
}

#[tokio::test]
async fn v09_a_storm_of_schedules_and_cancels_leaves_a_whole_task() -> Result<()> {
    let stage = Stage::new().await?;
    let tasks: Vec<JoinHandle<Result<(), StoreError>>> = (0..6)
        .map(|worker| {
            let pool = stage.pool.clone();
            tokio::spawn(async move {
                for round in 0..40 {
                    let key = (round % 3).to_string();
                    if worker % 2 == 0 {
                        client::schedule(&pool, &request(&key)).await?;
                    } else {
                        client::cancel(&pool, HERE, &key, None).await?;
                    }
                }
                Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let broken: i64 = stage
        .ask(
            "select count(*) from dueline.task t left join dueline.due d using (id)
             where (t.state = 'live') <> (d.id is not null) or d.generation <> t.generation
                or t.generation <> (select count(*) from dueline.task_event e where e.task_id = t.id)",
        )
        .await?;
    assert_eq!(broken, 0);
    Ok(())
}

#[tokio::test]
async fn many_in_opposite_orders_do_not_deadlock() -> Result<()> {
    let stage = Stage::new().await?;
    let forth: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let back: Vec<String> = forth.iter().rev().cloned().collect();
    let workers: Vec<JoinHandle<Result<(), StoreError>>> = [forth, back]
        .into_iter()
        .map(|keys| {
            let pool = stage.pool.clone();
            tokio::spawn(async move {
                for round in 0..12 {
                    let on_conflict =
                        if round % 2 == 0 { OnConflict::Reschedule } else { OnConflict::Keep };
                    let request = ScheduleMany {
                        kind: HERE.to_owned(),
                        keys: keys.clone(),
                        delays: vec![HALF_HOUR],
                        on_conflict,
                        ..ScheduleMany::default()
                    };
                    client::schedule_many(&pool, &request).await?;
                    client::cancel_many(&pool, HERE, &keys, None).await?;
                }
                Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok(())
}
