//! The inequalities between values that the protocol stands on ("Checked at start, refused when
//! broken"). Each refusal names both sides with their keys and numbers, and what to change.
//!
//! What cannot be judged from configuration (a standby, the topics on the broker) is checked where the
//! connection is.

use std::time::Duration;

use crate::model::{Config, Handler};
use crate::read::Report;
use crate::span;

/// A value with the key that sets it, or with words for one that nobody sets.
#[derive(Clone)]
struct Term(String, Duration);

fn term(key: &str, value: Duration) -> Term {
    Term(key.to_owned(), value)
}

/// Checks every rule whose values could be read.
pub(crate) fn check(config: &Config, report: &Report) {
    let Config { postgres, kafka, relay, consumer, retention, .. } = config;
    let lease = term("relay.lease", relay.lease);
    let idle = term("postgres.idle_in_transaction_timeout", postgres.idle_in_transaction_timeout);
    let statement = term("postgres.statement_timeout", postgres.statement_timeout);
    let handler = term("consumer.handler_timeout", consumer.handler_timeout);
    let session = term("consumer.session_timeout", consumer.session_timeout);
    let poll = term("consumer.max_poll_interval", consumer.max_poll_interval);
    let heartbeat = term("relay.heartbeat_interval", relay.heartbeat_interval);
    let takeover = term("relay.takeover_after", relay.takeover_after);
    let delivery = term("kafka.delivery_timeout", kafka.delivery_timeout);
    let slack = term("relay.lease_slack", relay.lease_slack);
    let at_most = |left: Term, right: &Term| Rule::new([left], right).at_most().judge(report);
    let below = |left: Term, right: &Term| Rule::new([left], right).judge(report);

    Rule::new([delivery, slack], &lease).judge(report);
    at_most(handler.clone(), &idle);
    at_most(handler.clone(), &statement);
    below(idle, &lease);
    below(statement, &lease);
    below(handler, &poll);
    at_most(session, &poll);
    // Two heartbeats may be lost before anybody takes the lanes.
    Rule::new([heartbeat.clone(), heartbeat], &takeover).judge(report);
    below(takeover, &lease);
    for (min, max) in [
        (
            term("relay.busy_pause_min", relay.busy_pause_min),
            term("relay.busy_pause_max", relay.busy_pause_max),
        ),
        (term("relay.window_min", relay.window_min), term("relay.window_max", relay.window_max)),
        (
            term("consumer.environment_pause_min", consumer.environment_pause_min),
            term("consumer.environment_pause_max", consumer.environment_pause_max),
        ),
    ] {
        at_most(min, &max);
    }

    check_webhooks(
        config,
        report,
        &lease,
        &poll,
        &term("consumer.stop_timeout", consumer.stop_timeout),
    );

    let dedupe = term("retention.dedupe", retention.dedupe);
    let replay = term("retention.replay_window", retention.replay_window);
    let relay_age = term("relay.age_limit", relay.age_limit);
    Rule::new([relay_age, replay.clone()], &dedupe).judge(report);
    at_most(dedupe.clone(), &term("retention.task", retention.task));
    for kind in config.kinds.values().filter(|kind| kind.age_limit != relay.age_limit) {
        let age = term(&format!("kinds.{}.age_limit", kind.name), kind.age_limit);
        Rule::new([age, replay.clone()], &dedupe).judge(report);
    }
    for queue in config.queues.values() {
        let key = |key: &str| format!("queues.{}.{key}", queue.name);
        below(term(&key("topic_retention"), queue.topic_retention), &dedupe);
        below(term(&key("dead_letter_retention"), queue.dead_letter_retention), &dedupe);
    }
}

/// A call's key is held beyond its time limit, and a lease goes beyond that.
fn check_webhooks(config: &Config, report: &Report, lease: &Term, poll: &Term, stop: &Term) {
    for kind in config.kinds.values() {
        let Handler::Http(webhook) = &kind.handler else { continue };
        let timeout = term(&format!("kinds.{}.http.timeout", kind.name), webhook.timeout);
        let held = term("10s for our own part", Duration::from_secs(10));
        Rule::new([timeout.clone(), held], lease).judge(report);
        if !webhook.idempotent {
            // A clean stop hears every call to its end: one that it cut off would never be made again.
            Rule::new([timeout.clone()], stop).judge(report);
        }
        Rule::new([timeout], poll).judge(report);
    }
}

/// A sum that must be below (or at most) a value.
struct Rule<'a> {
    left: Vec<Term>,
    right: &'a Term,
    may_equal: bool,
}

impl<'a> Rule<'a> {
    fn new(left: impl Into<Vec<Term>>, right: &'a Term) -> Self {
        Self { left: left.into(), right, may_equal: false }
    }

    fn at_most(mut self) -> Self {
        self.may_equal = true;
        self
    }

    /// Reports the rule when it is broken and all of its values were read.
    fn judge(self, report: &Report) {
        let sum: Duration = self.left.iter().map(|Term(_, value)| *value).sum();
        let holds = sum < self.right.1 || (self.may_equal && sum == self.right.1);
        let unread = |Term(key, _): &Term| report.has_failed(key);
        if holds || unread(self.right) || self.left.iter().any(unread) {
            return;
        }
        let show = |Term(key, value): &Term| match key.contains(' ') {
            true => key.clone(),
            false => format!("{key} ({})", span::format(*value)),
        };
        let left: Vec<String> = self.left.iter().map(show).collect();
        let names = self.left.iter().map(|Term(key, _)| key.as_str());
        let mut keys: Vec<&str> = names.filter(|key| !key.contains(' ')).collect();
        keys.dedup();
        report.add(format!(
            "{} must be {} {}: raise {} or lower {}",
            left.join(" + "),
            if self.may_equal { "at most" } else { "below" },
            show(self.right),
            self.right.0,
            keys.join(" or "),
        ));
    }
}
