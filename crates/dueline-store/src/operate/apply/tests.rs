use super::diff::diff;
use super::*;
use crate::operate::plan::Action;

fn config(queues: &str) -> Config {
    Config::from_toml_str(queues).unwrap_or_else(|e| panic!("{e}"))
}

fn shop(slots: u16) -> Config {
    config(&format!(
        r#"
        [queues.orders]
        slots = {slots}
        tiers = [{{ name = "fast", max_delay = "1m" }}, {{ name = "slow", max_delay = "90d" }}]
        [kinds.close_order]
        queue = "orders"
        sql = "select 1"
        "#
    ))
}

/// The rows that applying a configuration to an empty database makes.
fn applied(config: &Config) -> Actual {
    let mut actual = Actual::default();
    for queue in config.queues.values() {
        let name = queue.name.clone();
        let (slots, consumer_group) = (i32::from(queue.slots), queue.group.clone());
        actual.queues.push(QueueRow { name: name.clone(), slots, consumer_group });
        for (rank, tier) in (0_i32..).zip(&queue.tiers) {
            actual.tiers.push(TierRow {
                queue: name.clone(),
                name: tier.name.clone(),
                rank,
                max_delay_us: i64::try_from(tier.max_delay.as_micros()).expect("short"),
            });
            for slot in 0..i32::from(queue.slots) {
                let lane = i32::try_from(actual.lanes.len()).expect("few");
                let (queue, tier) = (name.clone(), tier.name.clone());
                actual.lanes.push(LaneRow { lane, queue, tier, slot });
            }
        }
    }
    actual.kinds = config.kinds.values().map(diff::kind_row).collect();
    actual
}

fn actions(diff: &Diff) -> Vec<(&str, &str, Action)> {
    diff.items.iter().map(|i| (i.what, i.name.as_str(), i.action)).collect()
}

#[test]
fn an_empty_database_gets_everything_and_then_nothing() {
    let config = shop(2);
    let first = diff(&config, &Actual::default());
    assert!(first.items.iter().all(|i| i.action == Action::Create), "{:?}", first.items);
    let again = diff(&config, &applied(&config));
    assert!(again.items.iter().all(|i| i.action == Action::Keep), "{:?}", again.items);
    assert!(again.drains.is_empty());
}

#[test]
fn h38_fewer_slots_drain_the_lanes_beyond_into_the_same_tier() {
    let diff = diff(&shop(2), &applied(&shop(4)));
    assert_eq!(diff.drains.len(), 2, "one for each tier");
    for drain in &diff.drains {
        assert_eq!(drain.lanes.len(), 2);
        assert_eq!(drain.to.as_ref(), Some(&drain.from));
    }
    assert!(actions(&diff).contains(&("lanes", "orders/fast", Action::Remove)));
}

#[test]
fn h38_a_leaving_tier_gives_its_alarms_to_the_next_longer_or_to_the_last() {
    let one = |name: &str, delay: &str| {
        config(&format!(
            "[queues.orders]\ntiers = [{{ name = \"{name}\", max_delay = \"{delay}\" }}]\n\
             [kinds.close_order]\nqueue = \"orders\"\nsql = \"select 1\"\n"
        ))
    };
    let both = shop(1);
    for kept in [one("slow", "90d"), one("fast", "1m")] {
        let mut diff = diff(&kept, &applied(&both));
        let leaving: Vec<_> =
            diff.drains.iter().filter(|d| d.to.as_ref() != Some(&d.from)).collect();
        assert_eq!(leaving.len(), 1, "{:?}", diff.drains);
        assert_eq!(leaving[0].to.as_deref(), Some(kept.queues["orders"].tiers[0].name.as_str()));
        let index = diff.drains.iter().position(|d| d.to.as_ref() != Some(&d.from)).expect("one");
        diff.note_alarms(index, 7);
        assert!(diff.items.iter().any(|i| i.detail.contains("7 alarms move to tier")));
    }
}

#[test]
fn h38_a_queue_with_live_tasks_or_a_kind_with_tasks_is_refused() {
    let empty = config("");
    let mut diff = diff(&empty, &applied(&shop(1)));
    for index in 0..diff.drains.len() {
        diff.note_alarms(index, 3);
    }
    diff.refuse_occupied_queues();
    let kind = diff.doubtful_kinds[0].clone();
    diff.judge_kind(&kind, InUse { live: 6, dead: 1 }, &empty);
    let plan = Plan { items: diff.items };
    let refused: Vec<_> = plan.refusals().map(|i| (i.what, i.name.as_str())).collect();
    assert_eq!(refused, [("queue", "orders"), ("kind", "close_order")]);
    assert!(plan.refusals().all(|i| i.detail.contains("keep it until")));
}

#[test]
fn a_kind_moves_to_another_queue_only_when_no_task_needs_it() {
    let moved = config(
        "[queues.orders]\n[queues.other]\n[kinds.close_order]\nqueue = \"other\"\nsql = \"select 1\"\n",
    );
    let kept = "[queues.orders]\n[kinds.close_order]\nqueue = \"orders\"\nsql = \"select 1\"\n";
    let actual = applied(&config(kept));
    for (in_use, expected) in
        [(InUse::default(), Action::Change), (InUse { live: 1, dead: 0 }, Action::Refuse)]
    {
        let mut diff = diff(&moved, &actual);
        let kind = diff.doubtful_kinds[0].clone();
        diff.judge_kind(&kind, in_use, &moved);
        assert!(actions(&diff).contains(&("kind", "close_order", expected)));
    }
}
