//! SQL handlers: what is refused at start, and what stops them later (H39).

use anyhow::Result;
use dueline_store::StoreError;
use dueline_store::effect::{SqlHandler, Trouble, check_session};
use dueline_tests::{CLOSE_ORDER, KIND};

use super::effect::{Lab, ROLE, is_done};

#[tokio::test]
async fn h39_wrong_statements_are_refused_at_start_with_what_to_do() -> Result<()> {
    let lab = Lab::new().await?;
    let cases = [
        ("update orders set status = 'closed'", "returning"),
        ("update orders set status = 'closed'; select 1", "one statement"),
        ("select b.key from batch b", "type TEXT"),
        ("select b.ord, b.key from batch b", "2 columns"),
        ("select b.ord from batch b where b.ord > $4", "parameters of its own"),
        ("selekt ord from batch", "one statement"),
        ("select ord from nowhere", "business schema"),
        ("select ord, from batch", "syntax"),
        ("", "one statement"),
        ("delete from dueline.task t using batch b where t.key = b.key returning b.ord", "grant"),
        ("delete from orders o using batch b where o.id = b.key::bigint returning b.ord", "grant"),
    ];
    for (statement, advice) in cases {
        let refused = SqlHandler::describe(&lab.pool, KIND, ROLE, statement).await;
        match refused {
            Err(StoreError::Refused(text)) => {
                assert!(text.contains(advice), "{statement}: {text}");
                assert!(text.contains("kinds.close_order.sql"), "{text}");
            }
            other => panic!("{statement}: {other:?}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn h39_statements_of_every_form_are_understood() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=6).await?;
    let update = CLOSE_ORDER.trim();
    let forms = [
        update.to_owned(),
        format!("{update};"),
        format!("-- closes\n/* what /* is */ unpaid */ {update} -- done"),
        "WITH own AS (SELECT ord, key FROM batch)
         UPDATE orders o SET status = 'closed', times = o.times + 1 FROM own
         WHERE o.id = own.key::bigint AND o.status = 'unpaid' RETURNING own.ord"
            .to_owned(),
        "with recursive n as (select 1 as i union all select i + 1 from n where i < 3)
         update orders o set status = 'closed', times = o.times + 1 from batch, n
         where n.i = 1 and o.id = batch.key::bigint and o.status = 'unpaid' returning batch.ord::bigint"
            .to_owned(),
        "update orders o set status = 'closed', times = o.times + 1
         from unnest($1::int[], $2::text[]) as task (ord, key)
         where o.id = task.key::bigint and o.status = 'unpaid' returning task.ord"
            .to_owned(),
    ];
    for (order, statement) in (1..).zip(&forms) {
        let mut tasks = lab.publish(order..=order).await?;
        let handler = lab.handler(statement).await?;
        let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
        assert!(is_done(fates[&tasks[0].id]), "{statement}");
    }
    assert_eq!(lab.number("select count(*) from orders where times = 1").await?, 6);
    Ok(())
}

#[tokio::test]
async fn h39_an_unknown_doubled_or_missing_ord_rolls_back_and_stops_the_handler() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    let before = lab.snapshot().await?;
    let close = "update orders set status = 'closed' from batch where orders.id = batch.key::bigint returning";
    let cases = [
        (format!("{close} batch.ord + 100"), "no `ord` of the batch"),
        (format!("{close} 0"), "no `ord` of the batch"),
        (format!("{close} null::integer"), "null"),
        (format!("{close} 1"), "twice"),
        (
            format!("with c as ({close} batch.ord) select ord from c union all select ord from c"),
            "twice",
        ),
    ];
    for (statement, says) in cases {
        let trouble = lab.run(&lab.handler(&statement).await?, &mut tasks).await;
        let Err(Trouble::Contract(reason)) = trouble else { panic!("{statement}: {trouble:?}") };
        assert!(reason.contains(says), "{reason}");
        assert_eq!(lab.snapshot().await?, before, "{statement}");
    }
    Ok(())
}

#[tokio::test]
async fn h39_a_statement_that_returns_nothing_skips() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    let handler = lab.handler("select ord from batch where false").await?;
    lab.run(&handler, &mut tasks).await.expect("no trouble");
    assert_eq!((lab.count("skipped").await?, lab.count_orders("unpaid").await?), (3, 3));
    assert_eq!(lab.number("select count(*) from dueline.dedupe").await?, 0);
    Ok(())
}

#[tokio::test]
async fn q05_payloads_reach_the_statement_as_json() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=2).await?;
    let mut tasks = lab.publish(1..=2).await?;
    tasks[1].payload =
        Some(serde_json::value::RawValue::from_string(r#"{"how": "it's \"so\""}"#.into())?);
    let with_payload = tasks[1].id;
    let handler =
        lab.handler("select ord from batch where payload ->> 'how' = 'it''s \"so\"'").await?;
    let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
    assert!(is_done(fates[&with_payload]));
    assert_eq!((lab.count("done").await?, lab.count("skipped").await?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn h14_json_that_only_postgres_refuses_is_the_tasks_fault() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut tasks = lab.publish(1..=1).await?;
    tasks[0].payload = Some(serde_json::value::RawValue::from_string(r#"{"a": "\u0000"}"#.into())?);
    let trouble = lab.run(&lab.close_order().await?, &mut tasks).await;
    assert!(matches!(trouble, Err(Trouble::Batch(ref f)) if f.permanent), "{trouble:?}");
    Ok(())
}

/// Otherwise one message would hold up its kind for ever: a trouble of the environment is waited for.
#[tokio::test]
async fn h14_json_that_is_too_deep_for_postgres_is_the_tasks_fault() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut tasks = lab.publish(1..=1).await?;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    tasks[0].payload = Some(serde_json::value::RawValue::from_string(deep)?);
    let trouble = lab.run(&lab.close_order().await?, &mut tasks).await;
    assert!(matches!(trouble, Err(Trouble::Batch(ref f)) if f.permanent), "{trouble:?}");
    Ok(())
}

#[tokio::test]
async fn h28_a_handlers_role_that_can_write_our_tables_is_refused() -> Result<()> {
    let lab = Lab::new().await?;
    check_session(&lab.pool, ROLE).await?;
    for (role, says) in [("dueline_operate", "can write"), ("no_such_role", "does not exist")] {
        let refused = check_session(&lab.pool, role).await;
        let Err(StoreError::Refused(text)) = refused else { panic!("{role}: {refused:?}") };
        assert!(text.contains(says), "{text}");
    }
    Ok(())
}
