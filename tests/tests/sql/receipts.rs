//! H19: cancel and reschedule at every phase, for effects here and elsewhere.

use anyhow::Result;
use dueline_core::TaskState;
use dueline_store::client::{self, Deadline, ReceiptKind, RescheduleRequest};

use super::stage::{ELSEWHERE, HALF_HOUR, HERE, Phase, Stage, TEAM, refusal};

/// What the dedupe table of an effect elsewhere says.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Nothing: never begun, or begun without `begin`.
    None,
    /// Begun, and its end is ahead.
    Running,
    /// Begun, and its end is over.
    Over,
    /// The last one failed, certainly.
    Failed,
    /// One of them ended unknown.
    Unknown,
    /// It happened; the outcome has not come back.
    Done,
}

impl Call {
    fn row(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Running => Some(
                "'in_progress', false, gen_random_uuid(), clock_timestamp() + interval '1 min', null",
            ),
            Self::Over => Some(
                "'in_progress', false, gen_random_uuid(), clock_timestamp() - interval '1 s', null",
            ),
            Self::Failed => Some("'failed', false, null, null, null"),
            Self::Unknown => Some("'failed', true, null, null, null"),
            Self::Done => Some("'done', false, null, null, clock_timestamp()"),
        }
    }
}

/// Kind, phase, call; the receipt of a cancel, and of a reschedule.
const TABLE: [(&str, Phase, Call, ReceiptKind, ReceiptKind); 28] = {
    use Call as C;
    use Phase as P;
    use ReceiptKind::{
        Cancelled, Finished, MayHaveRun, PublishedWillBeDropped, Rescheduled, Running,
    };
    [
        (HERE, P::Waiting, C::None, Cancelled, Rescheduled),
        (HERE, P::Leased, C::None, PublishedWillBeDropped, PublishedWillBeDropped),
        (HERE, P::Retry, C::None, Cancelled, Rescheduled),
        (HERE, P::Done, C::None, Finished, Finished),
        (HERE, P::Skipped, C::None, Finished, Rescheduled),
        (HERE, P::Cancelled, C::None, Cancelled, Rescheduled),
        (HERE, P::Dead, C::None, Cancelled, Rescheduled),
        (ELSEWHERE, P::Waiting, C::None, Cancelled, Rescheduled),
        (ELSEWHERE, P::Leased, C::None, MayHaveRun, MayHaveRun),
        (ELSEWHERE, P::Leased, C::Running, Running, Running),
        (ELSEWHERE, P::Leased, C::Over, MayHaveRun, MayHaveRun),
        (ELSEWHERE, P::Leased, C::Failed, MayHaveRun, MayHaveRun),
        (ELSEWHERE, P::Leased, C::Done, Finished, Finished),
        (ELSEWHERE, P::Retry, C::None, MayHaveRun, MayHaveRun),
        (ELSEWHERE, P::Retry, C::Failed, Cancelled, Rescheduled),
        (ELSEWHERE, P::Retry, C::Unknown, MayHaveRun, MayHaveRun),
        (ELSEWHERE, P::Done, C::Done, Finished, Finished),
        (ELSEWHERE, P::Skipped, C::None, Finished, Rescheduled),
        (ELSEWHERE, P::Cancelled, C::None, MayHaveRun, Rescheduled),
        (ELSEWHERE, P::Dead, C::None, MayHaveRun, MayHaveRun),
        (ELSEWHERE, P::Dead, C::Failed, Cancelled, Rescheduled),
        (ELSEWHERE, P::Dead, C::Unknown, MayHaveRun, MayHaveRun),
        (TEAM, P::Waiting, C::None, Cancelled, Rescheduled),
        (TEAM, P::Leased, C::None, MayHaveRun, MayHaveRun),
        (TEAM, P::Leased, C::Running, Running, Running),
        // A copy of its first message can be handled without a `begin`, whatever the second try said.
        (TEAM, P::Retry, C::Failed, MayHaveRun, MayHaveRun),
        (TEAM, P::Dead, C::None, MayHaveRun, MayHaveRun),
        (TEAM, P::Done, C::Done, Finished, Finished),
    ]
};

async fn stage_case(stage: &Stage, kind: &str, key: &str, phase: Phase, call: Call) -> Result<i64> {
    let id = stage.task_in(kind, key, phase).await?;
    if let Some(row) = call.row() {
        let statement = format!(
            "insert into dueline.dedupe
                 (key_hash, generation, attempt, outcome, unknown, token, until, finished_at)
             select key_hash, generation, attempt, {row} from dueline.task where id = $1"
        );
        sqlx::query(sqlx::AssertSqlSafe(statement)).bind(id).execute(&stage.pool).await?;
    }
    Ok(id)
}

#[tokio::test]
async fn h19_the_receipt_of_a_cancel_is_honest_at_every_phase() -> Result<()> {
    let stage = Stage::new().await?;
    for (n, (kind, phase, call, expected, _)) in TABLE.into_iter().enumerate() {
        let case = format!("{kind}, {phase:?}, {call:?}");
        let key = format!("cancel-{n}");
        let id = stage_case(&stage, kind, &key, phase, call).await?;
        let before = stage.picture(id).await?;
        let receipt = client::cancel(&stage.pool, kind, &key, Some("paid")).await?;
        assert_eq!(receipt.receipt, expected, "{case}");
        let unchanged = matches!(expected, ReceiptKind::Finished) || phase == Phase::Cancelled;
        let after = stage.picture(id).await?;
        if unchanged {
            assert_eq!(after, before, "{case}");
        } else if expected == ReceiptKind::Running {
            assert_eq!(receipt.state, Some(TaskState::Live), "{case}");
            assert_eq!(after["due"], before["due"], "{case}");
            assert!(
                after["task"]["cancel_wished_at"].is_string(),
                "{case}: the wish is remembered"
            );
        } else {
            assert_eq!(receipt.state, Some(TaskState::Cancelled), "{case}");
            let again = client::cancel(&stage.pool, kind, &key, None).await?;
            assert_eq!(again.receipt, expected, "{case}: asked again");
            assert_eq!(stage.picture(id).await?, after, "{case}: asked again");
        }
    }
    let missing = client::cancel(&stage.pool, HERE, "never", None).await?;
    assert_eq!((missing.receipt, missing.id), (ReceiptKind::NotFound, None));
    Ok(())
}

#[tokio::test]
async fn h19_the_receipt_of_a_reschedule_is_honest_at_every_phase() -> Result<()> {
    let stage = Stage::new().await?;
    for (n, (kind, phase, call, _, expected)) in TABLE.into_iter().enumerate() {
        let case = format!("{kind}, {phase:?}, {call:?}");
        let key = format!("reschedule-{n}");
        let id = stage_case(&stage, kind, &key, phase, call).await?;
        let before = stage.picture(id).await?;
        let request = RescheduleRequest::new(kind, &key, Deadline::after(HALF_HOUR * 3));
        let receipt = client::reschedule(&stage.pool, &request).await?;
        assert_eq!(receipt.receipt, expected, "{case}");
        let after = stage.picture(id).await?;
        if matches!(expected, ReceiptKind::Finished | ReceiptKind::Running) {
            assert_eq!(after["task"], before["task"], "{case}");
            assert_eq!(after["due"], before["due"], "{case}");
        } else {
            assert_eq!(receipt.state, Some(TaskState::Live), "{case}");
            assert_eq!(after["due"]["next_at"], after["task"]["due_at"], "{case}");
        }
    }
    let request = RescheduleRequest::new(HERE, "never", Deadline::after(HALF_HOUR));
    let missing = client::reschedule(&stage.pool, &request).await?;
    assert_eq!((missing.receipt, missing.id), (ReceiptKind::NotFound, None));
    Ok(())
}

#[tokio::test]
async fn h19_cancel_or_raise_fails_unless_the_task_is_out_of_the_way() -> Result<()> {
    let stage = Stage::new().await?;
    for (n, (kind, phase, call, expected, _)) in TABLE.into_iter().enumerate() {
        let key = format!("raise-{n}");
        stage_case(&stage, kind, &key, phase, call).await?;
        let answer = client::cancel_or_raise(&stage.pool, kind, &key, None).await;
        let out_of_the_way =
            matches!(expected, ReceiptKind::Cancelled | ReceiptKind::PublishedWillBeDropped);
        if out_of_the_way {
            assert_eq!(answer?.receipt, expected);
        } else {
            let (state, text) = refusal(answer);
            assert_eq!(state, "P0001");
            assert!(text.contains(expected.as_str()), "{text}");
        }
    }
    let (state, _) = refusal(client::cancel_or_raise(&stage.pool, HERE, "never", None).await);
    assert_eq!(state, "P0001");
    Ok(())
}

#[tokio::test]
async fn c01_many_are_cancelled_at_once_and_answered_in_order() -> Result<()> {
    let stage = Stage::new().await?;
    stage.task_in(HERE, "a", Phase::Waiting).await?;
    stage.task_in(HERE, "b", Phase::Done).await?;
    let keys = ["b", "never", "a", "a"].map(str::to_owned);
    let receipts = client::cancel_many(&stage.pool, HERE, &keys, Some("sold out")).await?;
    let texts: Vec<_> = receipts.iter().map(|r| (r.receipt.as_str(), r.key.as_deref())).collect();
    assert_eq!(
        texts,
        [
            ("finished", Some("b")),
            ("not_found", Some("never")),
            ("cancelled", Some("a")),
            ("cancelled", Some("a")),
        ]
    );
    let reason: String = stage.ask("select detail ->> 'reason' from dueline.task_event").await?;
    assert_eq!(reason, "sold out");
    Ok(())
}

#[tokio::test]
async fn c02_get_shows_every_phase() -> Result<()> {
    let stage = Stage::new().await?;
    let shown = ["scheduled", "published", "scheduled", "done", "skipped", "cancelled", "dead"];
    for (phase, expected) in Phase::ALL.into_iter().zip(shown) {
        let key = format!("{phase:?}");
        let id = stage.task_in(HERE, &key, phase).await?;
        let view = client::get(&stage.pool, HERE, &key).await?.expect("there is one");
        assert_eq!((view.id, view.phase.as_str()), (id, expected));
        assert_eq!(view.next_at.is_some(), view.state == TaskState::Live, "{phase:?}");
        let phase_in_sql: String = sqlx::query_scalar("select phase from dueline.get($1, $2)")
            .bind(HERE)
            .bind(&key)
            .fetch_one(&stage.pool)
            .await?;
        assert_eq!(phase_in_sql, expected);
    }
    assert_eq!(client::get(&stage.pool, HERE, "never").await?, None);
    let (state, text) = refusal(client::get(&stage.pool, "close_oder", "1").await);
    assert_eq!(state, "22023");
    assert!(text.contains("close_order"), "{text}");
    Ok(())
}

#[tokio::test]
async fn h19_v4_what_a_team_was_once_given_may_have_run_whatever_came_after() -> Result<()> {
    let stage = Stage::new().await?;
    let move_on = async |key: &str| {
        let request = RescheduleRequest::new(TEAM, key, Deadline::after(HALF_HOUR));
        anyhow::Ok(client::reschedule(&stage.pool, &request).await?.receipt)
    };
    // Published, moved, cancelled: the first message is still in its topic.
    stage.task_in(TEAM, "moved", Phase::Leased).await?;
    assert_eq!(move_on("moved").await?, ReceiptKind::MayHaveRun);
    assert_eq!(move_on("moved").await?, ReceiptKind::MayHaveRun);
    let cancelled = client::cancel(&stage.pool, TEAM, "moved", None).await?;
    assert_eq!(cancelled.receipt, ReceiptKind::MayHaveRun);
    // The alarm that told of it is gone: the mark stays.
    stage.plan(TEAM, "moved").await?;
    let again = client::cancel(&stage.pool, TEAM, "moved", None).await?;
    assert_eq!(again.receipt, ReceiptKind::MayHaveRun);
    for phase in [Phase::Dead, Phase::Skipped] {
        let key = format!("{phase:?}");
        stage.task_in(TEAM, &key, phase).await?;
        move_on(&key).await?;
        let receipt = client::cancel(&stage.pool, TEAM, &key, None).await?.receipt;
        assert_eq!(receipt, ReceiptKind::MayHaveRun, "{phase:?}");
    }
    // Never published: nobody can have it.
    stage.plan(TEAM, "waiting").await?;
    assert_eq!(move_on("waiting").await?, ReceiptKind::Rescheduled);
    let receipt = client::cancel(&stage.pool, TEAM, "waiting", None).await?.receipt;
    assert_eq!(receipt, ReceiptKind::Cancelled);
    Ok(())
}
