//! Which queues and kinds this process takes on, and whether it can.

use std::collections::BTreeMap;

use dueline_config::{Config, Handler as HandlerKind, Kind, Queue};
use dueline_core::name::nearest;

use crate::error::ConsumerError;
use crate::handler::Handler;

/// The queues to consume; without a choice those that have kinds and are not another team's.
pub(crate) fn chosen(
    config: &Config,
    names: Option<Vec<String>>,
) -> Result<Vec<Queue>, ConsumerError> {
    let Some(names) = names else {
        let used = |queue: &&Queue| {
            !queue.outcomes && config.kinds.values().any(|kind| kind.queue == queue.name)
        };
        let queues: Vec<Queue> = config.queues.values().filter(used).cloned().collect();
        if queues.is_empty() {
            let text = "there is nothing to consume: the configuration has no [kinds.<name>], or \
                        other teams handle them all";
            return Err(ConsumerError::Refused(text.to_owned()));
        }
        return Ok(queues);
    };
    names
        .iter()
        .map(|name| {
            let Some(queue) = config.queues.get(name) else {
                let known = config.queues.keys().map(String::as_str);
                let hint = nearest(name, known).map(|n| format!("; did you mean `{n}`?"));
                return Err(ConsumerError::Refused(format!(
                    "there is no queue `{name}` in the configuration{}",
                    hint.unwrap_or_default()
                )));
            };
            if queue.outcomes {
                return Err(ConsumerError::Refused(format!(
                    "queue `{name}` is another team's (`outcomes = true`): its group `{}` handles it, \
                     and a consumer of ours would take its messages away",
                    queue.group
                )));
            }
            Ok(queue.clone())
        })
        .collect()
}

pub(crate) fn kinds_of<'a>(config: &'a Config, queues: &[Queue]) -> impl Iterator<Item = &'a Kind> {
    let names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
    config.kinds.values().filter(move |kind| names.contains(&kind.queue))
}

/// Handlers and kinds must fit each other: a kind without a handler would only pile up.
pub(crate) fn check_handlers(
    config: &Config,
    queues: &[Queue],
    handlers: &BTreeMap<String, Box<dyn Handler>>,
) -> Result<(), ConsumerError> {
    let refused = |text: String| Err(ConsumerError::Refused(text));
    for name in handlers.keys() {
        match config.kinds.get(name).map(|kind| &kind.handler) {
            Some(HandlerKind::Rust) => {}
            Some(HandlerKind::Sql(_) | HandlerKind::Http(_) | HandlerKind::Outcomes { .. }) => {
                return refused(format!(
                    "kind `{name}` has a handler in this program and another one in the \
                     configuration: keep one of them (`rust = true` for this program's)"
                ));
            }
            None => {
                let known = config.kinds.keys().map(String::as_str);
                let hint = nearest(name, known).map(|n| format!("; did you mean `{n}`?"));
                return refused(format!(
                    "this program has a handler for kind `{name}`, which is not in the \
                     configuration{}",
                    hint.unwrap_or_default()
                ));
            }
        }
    }
    for kind in kinds_of(config, queues) {
        if kind.handler == HandlerKind::Rust && !handlers.contains_key(&kind.name) {
            return refused(format!(
                "kinds.{}: `rust = true`, but this program has no handler for it: run the program \
                 that links it, give the kind `sql` or `http`, or choose other queues (--queue)",
                kind.name
            ));
        }
    }
    Ok(())
}
