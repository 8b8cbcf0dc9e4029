//! Scheduling many at once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use dueline_store::client::{self, OnConflict, ReceiptKind, ScheduleMany};
use serde_json::json;

use super::stage::{HALF_HOUR, HERE, Phase, Stage, refusal};

fn many(keys: impl IntoIterator<Item = impl ToString>) -> ScheduleMany {
    ScheduleMany {
        kind: HERE.to_owned(),
        keys: keys.into_iter().map(|k| k.to_string()).collect(),
        delays: vec![HALF_HOUR],
        ..ScheduleMany::default()
    }
}

#[tokio::test]
async fn ten_thousand_are_scheduled_by_one_call() -> Result<()> {
    let stage = Stage::new().await?;
    let receipts = client::schedule_many(&stage.pool, &many(0..10_000)).await?;
    assert_eq!(receipts.len(), 10_000);
    for (n, receipt) in receipts.iter().enumerate() {
        assert_eq!(receipt.receipt, ReceiptKind::Scheduled);
        assert_eq!(receipt.key.as_deref(), Some(n.to_string().as_str()));
    }
    let whole: i64 = stage
        .ask(
            "select count(*) from dueline.task t join dueline.due d using (id)
             where d.next_at = t.due_at and d.generation = 0 and d.attempt = 0 and t.tier = '1h'
               and t.key_hash = dueline.key_hash('orders', t.kind, t.key)",
        )
        .await?;
    assert_eq!(whole, 10_000);
    let lanes: i64 = stage.ask("select count(distinct lane) from dueline.due").await?;
    assert_eq!(lanes, 4, "every slot is used");
    Ok(())
}

#[tokio::test]
async fn each_has_its_own_or_all_share_one() -> Result<()> {
    let stage = Stage::new().await?;
    let headers = BTreeMap::from([("traceparent".to_owned(), "00-a-b-01".to_owned())]);
    let request = ScheduleMany {
        delays: vec![Duration::from_secs(5), HALF_HOUR, Duration::from_secs(86_400)],
        payloads: vec![Some(json!({"n": 1})), None, Some(json!(3))],
        headers: vec![Some(headers)],
        ..many(["a", "b", "c"])
    };
    let receipts = client::schedule_many(&stage.pool, &request).await?;
    let tiers: Vec<_> = receipts.iter().map(|r| r.tier.as_deref().unwrap_or_default()).collect();
    assert_eq!(tiers, ["10s", "1h", "1d"]);
    for (key, payload) in ["a", "b", "c"].into_iter().zip(&request.payloads) {
        let view = client::get(&stage.pool, HERE, key).await?.expect("there");
        assert_eq!(&view.payload, payload);
        assert_eq!(view.headers, Some(json!({"traceparent": "00-a-b-01"})));
    }
    Ok(())
}

#[tokio::test]
async fn i01_what_is_there_already_is_answered_as_one_call_each_would() -> Result<()> {
    let stage = Stage::new().await?;
    for phase in Phase::ALL {
        stage.task_in(HERE, &format!("{phase:?}"), phase).await?;
    }
    let keys = ["new", "Waiting", "Leased", "Retry", "Done", "Skipped", "Cancelled", "Dead", "new"];
    let receipts = client::schedule_many(&stage.pool, &many(keys)).await?;
    let texts: Vec<_> = receipts.iter().map(|r| r.receipt.as_str()).collect();
    let expected = [
        "scheduled",
        "kept",
        "kept",
        "kept",
        "finished",
        "reopened",
        "reopened",
        "finished",
        "kept",
    ];
    assert_eq!(texts, expected);
    let upsert = ScheduleMany { on_conflict: OnConflict::Reschedule, ..many(keys) };
    let receipts = client::schedule_many(&stage.pool, &upsert).await?;
    let texts: Vec<_> = receipts.iter().map(|r| r.receipt.as_str()).collect();
    let expected = [
        "rescheduled",
        "rescheduled",
        "published_will_be_dropped",
        "rescheduled",
        "finished",
        "rescheduled",
        "rescheduled",
        "rescheduled",
        "rescheduled",
    ];
    assert_eq!(texts, expected);
    Ok(())
}

#[tokio::test]
async fn one_wrong_element_refuses_all_and_is_named() -> Result<()> {
    let stage = Stage::new().await?;
    let mut wrong_key = many(0..100);
    wrong_key.keys[41] = String::new();
    let mut wrong_delay = many(0..3);
    wrong_delay.delays = vec![HALF_HOUR, Duration::from_secs(1_000 * 366 * 86_400), HALF_HOUR];
    let mut wrong_count = many(0..3);
    wrong_count.payloads = vec![None, Some(json!(1))];
    let mut taken = many(["a", "b"]);
    taken.on_conflict = OnConflict::Error;
    stage.plan(HERE, "b").await?;
    for (request, state, expected) in [
        (wrong_key, "22023", "element 42"),
        (wrong_delay, "22023", "element 2"),
        (wrong_count, "22023", "payloads has 2 elements for 3 keys"),
        (ScheduleMany { kind: "close_odrer".into(), ..many(0..2) }, "22023", "close_order"),
        (taken, "23505", "there already"),
    ] {
        let (actual, text) = refusal(client::schedule_many(&stage.pool, &request).await);
        assert_eq!(actual, state, "{text}");
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(stage.count("live").await?, 1);
    let none = client::schedule_many(&stage.pool, &many(Vec::<String>::new())).await?;
    assert!(none.is_empty());
    Ok(())
}
