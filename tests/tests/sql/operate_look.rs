//! What the command line looks at: one key, what is pending, the dead.

use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_store::operate::dead::{self, DeadFilter, KeyPattern, LetterPlace};
use dueline_store::operate::pending::{self, PendingFilter};
use dueline_store::operate::why;

use super::stage::{ELSEWHERE, HERE, Phase, Stage};

#[tokio::test]
async fn c02_why_finds_a_key_in_every_phase_and_kind() -> Result<()> {
    let stage = Stage::new().await?;
    for (index, phase) in Phase::ALL.into_iter().enumerate() {
        let key = format!("order-{index}");
        let id = stage.task_in(HERE, &key, phase).await?;
        let found = why::find(&stage.pool, &key, None).await?;
        assert_eq!(found.len(), 1, "{phase:?}");
        let facts = &found[0];
        assert_eq!((facts.id, facts.kind.as_str()), (id, HERE));
        let live = matches!(phase, Phase::Waiting | Phase::Leased | Phase::Retry);
        assert_eq!(facts.next_at.is_some(), live, "{phase:?}");
        assert_eq!(facts.lane.is_some(), live);
        assert_eq!(facts.lease_until.is_some(), phase == Phase::Leased);
        assert_eq!(facts.dead_reason.is_some(), phase == Phase::Dead);
        assert_eq!(facts.max_attempts, 4);
    }
    stage.plan(ELSEWHERE, "order-0").await?;
    assert_eq!(why::find(&stage.pool, "order-0", None).await?.len(), 2, "one for each kind");
    assert_eq!(why::find(&stage.pool, "order-0", Some(HERE)).await?.len(), 1);
    assert!(why::find(&stage.pool, "' or true --", None).await?.is_empty());
    let near = why::nearest_key(&stage.pool, "ordr-3").await?;
    assert!(near.is_some_and(|near| near.starts_with("order-")));
    Ok(())
}

#[tokio::test]
async fn c04_why_tells_who_cancelled_it() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.plan(HERE, "1").await?.id.expect("a task");
    dueline_store::client::cancel(&stage.pool, HERE, "1", Some("paid")).await?;
    let events = why::events(&stage.pool, id).await?;
    let last = events.last().expect("an event");
    assert_eq!((last.step.as_str(), last.to_state.as_deref()), ("cancel", Some("cancelled")));
    assert!(last.detail.as_deref().is_some_and(|d| d.contains("paid")), "{last:?}");
    Ok(())
}

#[tokio::test]
async fn c02_pending_is_counted_and_paged_in_the_order_of_alarms() -> Result<()> {
    let stage = Stage::new().await?;
    for key in 0..5 {
        stage.task_in(HERE, &format!("w{key}"), Phase::Waiting).await?;
    }
    stage.task_in(HERE, "leased", Phase::Leased).await?;
    stage.task_in(HERE, "dead", Phase::Dead).await?;
    stage.schedule(HERE, 1..=2, Duration::ZERO).await?;
    let counts = pending::counts(&stage.pool, Some("orders")).await?;
    let sum = |get: fn(&pending::TierCount) -> i64| counts.iter().map(get).sum::<i64>();
    assert_eq!((sum(|c| c.waiting), sum(|c| c.due), sum(|c| c.published)), (5, 2, 1));
    let dead = pending::dead_counts(&stage.pool, None).await?;
    assert_eq!((dead.len(), dead[0].dead), (1, 1));

    let mut filter = PendingFilter { limit: 3, ..PendingFilter::default() };
    let mut seen = Vec::new();
    loop {
        let page = pending::list(&stage.pool, &filter).await?;
        let Some(last) = page.last() else { break };
        filter.after = Some((last.next_at.0, last.id));
        seen.extend(page.iter().map(|t| (t.next_at, t.id)));
    }
    assert_eq!(seen.len(), 8);
    assert!(seen.is_sorted(), "{seen:?}");
    let now = counts[0].now.0;
    let due = PendingFilter { until: Some(now), limit: 100, ..PendingFilter::default() };
    assert_eq!(pending::list(&stage.pool, &due).await?.len(), 2);
    let other = PendingFilter { kind: Some("remind".into()), limit: 9, ..PendingFilter::default() };
    assert!(pending::list(&stage.pool, &other).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn d06_the_dead_are_filtered_and_paged() -> Result<()> {
    let stage = Stage::new().await?;
    for key in 0..7 {
        stage.task_in(HERE, &format!("order_{key}"), Phase::Dead).await?;
    }
    stage.task_in(ELSEWHERE, "x%x", Phase::Dead).await?;
    let count = async |change: &dyn Fn(&mut DeadFilter)| -> Result<usize> {
        let mut filter = DeadFilter::default();
        change(&mut filter);
        Ok(dead::list(&stage.pool, &filter, None, 100).await?.len())
    };
    assert_eq!(count(&|_| {}).await?, 8);
    assert_eq!(count(&|f| f.kind = Some(HERE.into())).await?, 7);
    assert_eq!(count(&|f| f.queue = Some("mail".into())).await?, 0);
    assert_eq!(count(&|f| f.reason = Some("exhausted".into())).await?, 8);
    assert_eq!(count(&|f| f.reason = Some("permanent".into())).await?, 0);
    assert_eq!(count(&|f| f.key = Some(KeyPattern::new("order_?"))).await?, 7);
    assert_eq!(count(&|f| f.key = Some(KeyPattern::new("*%*"))).await?, 1, "h25: % is itself");
    let now = dueline_store::operate::now(&stage.pool).await?;
    assert_eq!(count(&|f| f.until = Some(now)).await?, 8);
    assert_eq!(count(&|f| f.since = Some(now)).await?, 0);

    let (mut after, mut seen) = (None, 0);
    loop {
        let page = dead::list(&stage.pool, &DeadFilter::default(), after, 3).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.died_at.0, last.id));
        seen += page.len();
    }
    assert_eq!(seen, 8);
    let one = &dead::list(&stage.pool, &DeadFilter::default(), None, 1).await?[0];
    assert_eq!(dead::by_id(&stage.pool, one.id).await?.map(|d| d.id), Some(one.id));
    assert!(dead::detail(&stage.pool, one.id).await?.is_some());
    assert_eq!(dead::by_id(&stage.pool, -1).await?, None);
    assert!(one.died_at.0 > Micros(0));
    Ok(())
}

#[tokio::test]
async fn d06_a_message_without_a_row_is_resent_once_and_audited() -> Result<()> {
    let stage = Stage::new().await?;
    let letter = LetterPlace { topic: "d.orders.dlq", partition: 1, offset: 9 };
    assert!(!dead::was_resent(&stage.pool, letter).await?);
    dead::note_resent(&stage.pool, letter, "ann").await?;
    assert!(dead::was_resent(&stage.pool, letter).await?);
    let other = LetterPlace { offset: 10, ..letter };
    assert!(!dead::was_resent(&stage.pool, other).await?);
    let who: String =
        stage.ask("select detail ->> 'who' from dueline.task_event where step = 'resend'").await?;
    assert_eq!(who, "ann");
    Ok(())
}
