//! Replay, resolve, discard: one transaction each, at the rate that was asked for.

use std::time::{Duration, Instant};

use dueline_core::KeyHash;
use dueline_core::letter::{DeadTask as LetteredTask, header};
use dueline_kafka::{HeaderList, Outcome as Delivery, Producer, ProducerConfig, Record, Reports};
use dueline_store::Pool;
use dueline_store::client::{self, Receipt, Replay};
use dueline_store::operate::dead::{self, LetterPlace};
use dueline_store::operate::instance::{Instance, SourceOrigin};
use serde_json::{Value, json};

use super::pace::Pace;
use super::source::{Dead, Letter};
use crate::context::Context;
use crate::exit;
use crate::progress::Progress;
use crate::task::in_words;

/// How long to wait for what is on its way at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do with the dead.
#[derive(Clone, Debug)]
pub enum Act {
    /// Send them again.
    Replay {
        /// Whatever their age and generation.
        force: bool,
    },
    /// They did happen.
    Resolve {
        /// Why.
        reason: String,
    },
    /// They are not wanted.
    Discard {
        /// Why.
        reason: String,
    },
}

impl Act {
    /// The verb.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Replay { .. } => "replay",
            Self::Resolve { .. } => "resolve",
            Self::Discard { .. } => "discard",
        }
    }
}

/// What became of one of them.
#[derive(Debug)]
pub struct Outcome {
    /// What it is called.
    pub name: String,
    /// The receipt: one of the SQL functions', or `foreign`, `resent`, `already_resent`, `no_origin`,
    /// `no_row`.
    pub receipt: String,
    /// What that means.
    pub words: String,
    /// Whether anything was changed.
    pub changed: bool,
    /// Going on from here begins after this one.
    pub cursor: String,
}

impl Outcome {
    /// For machines.
    pub fn document(&self) -> Value {
        json!({
            "name": self.name, "receipt": self.receipt, "words": self.words,
            "changed": self.changed, "after": self.cursor,
        })
    }
}

/// A receipt and what it means, before it is known of whom.
struct Verdict {
    receipt: String,
    words: String,
    changed: bool,
}

impl Verdict {
    fn new(receipt: &str, words: impl Into<String>, changed: bool) -> Self {
        Self { receipt: receipt.to_owned(), words: words.into(), changed }
    }

    fn of(receipt: &Receipt) -> Self {
        let (words, code) = in_words(receipt.receipt);
        Self::new(receipt.receipt.as_str(), words, code == exit::OK)
    }
}

/// Carries out one act on many.
pub struct Actor<'a> {
    context: &'a Context,
    pool: Pool,
    instance: Instance,
    act: Act,
    who: String,
    pace: Pace,
    producer: Option<(Producer<()>, Reports<()>)>,
}

impl<'a> Actor<'a> {
    /// `who` is written into the audit table; `rate` is per second.
    pub async fn new(
        context: &'a Context,
        act: Act,
        who: Option<String>,
        rate: u32,
    ) -> anyhow::Result<Self> {
        let (pool, instance) = context.checked().await?;
        let who = who
            .or_else(|| std::env::var("USER").ok().filter(|user| !user.is_empty()))
            .unwrap_or_else(|| "unknown".to_owned());
        let pace = Pace::new(rate);
        Ok(Self { context, pool, instance, act, who, pace, producer: None })
    }

    /// One after another. Stops at the first error, and returns what was done before it.
    pub async fn all(&mut self, dead: &[Dead]) -> (Vec<Outcome>, Option<anyhow::Error>) {
        let mut progress = Progress::new(self.act.name(), dead.len() as u64);
        let mut outcomes = Vec::with_capacity(dead.len());
        let start = Instant::now();
        for one in dead {
            tokio::time::sleep(self.pace.take(start.elapsed())).await;
            let verdict = match self.one(one).await {
                Ok(verdict) => verdict,
                Err(error) => return (outcomes, Some(error)),
            };
            let cursor = one.cursor();
            progress.step(&cursor);
            let Verdict { receipt, words, changed } = verdict;
            outcomes.push(Outcome { name: one.name(), receipt, words, changed, cursor });
        }
        (outcomes, None)
    }

    /// Ends the producer, if one was needed.
    pub async fn close(self) {
        if let Some((producer, _)) = self.producer {
            producer.close(CLOSE_TIMEOUT).await;
        }
    }

    async fn one(&mut self, dead: &Dead) -> anyhow::Result<Verdict> {
        match dead {
            Dead::Task(task) => {
                self.judge(task.id, task.generation, KeyHash(task.key_hash.into_bytes())).await
            }
            Dead::Letter(letter) => match &letter.letter.task {
                Some(task) => self.lettered(task).await,
                None => self.without_row(letter).await,
            },
        }
    }

    /// A letter acts only on the row that it tells of, in the instance that it comes from.
    async fn lettered(&mut self, task: &LetteredTask) -> anyhow::Result<Verdict> {
        if self.instance.origin_of(&task.source) == SourceOrigin::Foreign {
            let words = format!("it is of another instance, {}: nothing was changed", task.source);
            return Ok(Verdict::new("foreign", words, false));
        }
        self.judge(task.task_id, task.generation, task.key_hash).await
    }

    async fn judge(
        &mut self,
        id: i64,
        generation: i32,
        key_hash: KeyHash,
    ) -> anyhow::Result<Verdict> {
        let who = self.who.as_str();
        let receipt = match &self.act {
            Act::Replay { force } => {
                let request = Replay {
                    id,
                    generation,
                    key_hash,
                    who,
                    force: *force,
                    dedupe_retention: self.context.config.retention.dedupe,
                };
                client::replay(&self.pool, &request).await?
            }
            Act::Resolve { reason } => {
                client::resolve(&self.pool, id, generation, who, reason).await?
            }
            Act::Discard { reason } => {
                client::discard(&self.pool, id, generation, who, reason).await?
            }
        };
        dueline_failpoints::reached("command.replayed");
        Ok(Verdict::of(&receipt))
    }

    /// A message that no row could be told from: it can be sent again as it was, and nothing else.
    async fn without_row(&mut self, letter: &Letter) -> anyhow::Result<Verdict> {
        if !matches!(self.act, Act::Replay { .. }) {
            let words = "no row belongs to it, so there is nothing to settle: its letter \
                         ends with the topic's retention";
            return Ok(Verdict::new("no_row", words, false));
        }
        let Some(topic) = self.origin_topic(letter) else {
            let words = "its letter names no topic of the configured queues to send it to: nothing was sent";
            return Ok(Verdict::new("no_origin", words, false));
        };
        let place = LetterPlace {
            topic: &letter.record.topic,
            partition: letter.record.partition,
            offset: letter.record.offset,
        };
        if dead::was_resent(&self.pool, place).await? {
            return Ok(Verdict::new("already_resent", "it was sent again before", false));
        }
        self.resend(letter, &topic).await?;
        dueline_failpoints::reached("command.resent");
        dead::note_resent(&self.pool, place, &self.who).await?;
        Ok(Verdict::new("resent", format!("sent to {topic} as it was"), true))
    }

    /// A letter is data: it may lead to our own tier topics, and nowhere else (H25).
    fn origin_topic(&self, letter: &Letter) -> Option<String> {
        let origin = letter.letter.origin.as_ref()?;
        let mut queues = self.context.config.queues.values();
        queues
            .any(|queue| queue.tier_topics().contains(&origin.topic))
            .then(|| origin.topic.clone())
    }

    async fn resend(&mut self, letter: &Letter, topic: &str) -> anyhow::Result<()> {
        let producer = match &mut self.producer {
            Some((producer, _)) => producer,
            empty => {
                let config = ProducerConfig {
                    delivery_timeout: self.context.config.kafka.delivery_timeout,
                    ..ProducerConfig::default()
                };
                &empty.insert(Producer::new(&self.context.kafka(), &config)?).0
            }
        };
        let original = letter.record.headers.iter().filter(|(n, _)| !n.starts_with(header::PREFIX));
        let headers: HeaderList = original.map(|(n, v)| (n.as_str(), v.as_slice())).collect();
        let record = Record {
            topic,
            key: letter.record.key.as_deref(),
            value: letter.record.value.as_deref(),
            headers,
            timestamp_ms: None,
        };
        match producer.send_and_wait(record).await {
            Delivery::Delivered { .. } => Ok(()),
            Delivery::NotWritten { error } => Err(error.into()),
            Delivery::Unknown { error } => {
                Err(anyhow::Error::from(error).context("the message may or may not have been sent"))
            }
        }
    }
}
