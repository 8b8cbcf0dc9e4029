//! Sending records, with reports that tell *certainly not written* from *unknown*.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError as Native;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::{mpsc, oneshot};

use crate::client::{log_error, log_line};
use crate::error::KafkaError;
use crate::ffi::{self, Persisted};
use crate::record::Record;
use crate::settings::KafkaSettings;

/// How a producer sends.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// How long a record may take from `send` to its report, at least 1 s. It must stay below the
    /// lease: after it, nothing is written any more.
    pub delivery_timeout: Duration,
    /// How long a record waits for company in its batch: 0 to 1 s, in whole milliseconds. Not at all
    /// by default: while requests are under way batches grow anyway, and librdkafka's thread spends
    /// more on watching a short wait than it saves (a quarter of the relay's processor time at 1 ms).
    pub linger: Duration,
    /// The most records on their way; `send` refuses more.
    pub max_in_flight: usize,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            delivery_timeout: Duration::from_secs(15),
            linger: Duration::ZERO,
            max_in_flight: 50_000,
        }
    }
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All in-sync replicas have it.
    Delivered {
        /// The partition it is in.
        partition: i32,
        /// Its offset there.
        offset: i64,
    },
    /// It is certainly in no log, and never will be: too large, unknown topic, no right to write,
    /// or it timed out before it was ever sent.
    NotWritten {
        /// Why.
        error: KafkaError,
    },
    /// It may be in the log: it was sent and no answer came.
    Unknown {
        /// What happened.
        error: KafkaError,
    },
}

/// The report on one record.
#[derive(Debug)]
pub struct Report<T> {
    /// What the caller gave to `send`.
    pub ticket: T,
    /// What became of the record.
    pub outcome: Outcome,
}

/// A record that was not taken: nothing of it was or will be written.
#[derive(Debug)]
pub struct SendRefused<T> {
    /// What the caller gave to `send`.
    pub ticket: T,
    /// Why.
    pub error: KafkaError,
    /// The queue is full: the same call works once some reports have come.
    pub queue_full: bool,
}

/// The stream of delivery reports.
///
/// Its channel has no bound of its own, so that librdkafka's thread never waits for a slow reader:
/// what it can hold is bounded by the records in flight, which the producer's queue bounds
/// ([`ProducerConfig::max_in_flight`]) and whose reports the caller counts.
#[derive(Debug)]
pub struct Reports<T>(mpsc::UnboundedReceiver<Report<T>>);

impl<T> Reports<T> {
    /// The next report; `None` after the producer is gone and all reports are read.
    pub async fn recv(&mut self) -> Option<Report<T>> {
        self.0.recv().await
    }

    /// Waits for at least one report and appends up to `limit` of them to `buffer`. Returns how
    /// many; 0 after the producer is gone and all reports are read. Safe to cancel.
    pub async fn recv_many(&mut self, buffer: &mut Vec<Report<T>>, limit: usize) -> usize {
        self.0.recv_many(buffer, limit).await
    }

    /// A report that is there already.
    pub fn try_recv(&mut self) -> Option<Report<T>> {
        self.0.try_recv().ok()
    }
}

/// Who waits for a report.
enum Ticket<T> {
    Caller(T),
    Waiter(oneshot::Sender<Outcome>),
}

struct Context<T> {
    reports: mpsc::UnboundedSender<Report<T>>,
}

impl<T: Send + Sync> ClientContext for Context<T> {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        log_line(level, facility, line);
    }

    fn error(&self, error: Native, reason: &str) {
        log_error(&error, reason);
    }
}

impl<T: Send + Sync> ProducerContext for Context<T> {
    type DeliveryOpaque = Box<Ticket<T>>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket<T>>) {
        let outcome = outcome(result);
        // A reader that is gone does not want its reports.
        match *ticket {
            Ticket::Caller(ticket) => drop(self.reports.send(Report { ticket, outcome })),
            Ticket::Waiter(waiter) => drop(waiter.send(outcome)),
        }
    }
}

fn outcome(result: &DeliveryResult<'_>) -> Outcome {
    match result {
        Ok(message) => {
            Outcome::Delivered { partition: message.partition(), offset: message.offset() }
        }
        Err((error, message)) => {
            let error = KafkaError::from_native(format!("sending to `{}`", message.topic()), error);
            match ffi::persisted(message) {
                Persisted::No => Outcome::NotWritten { error },
                // An error on a persisted message is not expected; it is certainly not "not
                // written".
                Persisted::Possibly | Persisted::Yes => Outcome::Unknown { error },
            }
        }
    }
}

/// An idempotent producer: `acks=all`, murmur2, one own thread that handles all reports.
///
/// `T` is what the caller recognises a record by; it comes back with the report. Dropping a
/// producer abandons what is still queued (reported as not written) and in flight (reported as
/// unknown).
pub struct Producer<T: Send + Sync + 'static> {
    native: Arc<BaseProducer<Context<T>>>,
    _poller: Poller,
}

/// How long the thread of reports waits in one go, and so the longest that dropping a producer takes.
/// rust-rdkafka spins through the last millisecond of each wait: its own threaded producer, which
/// waits for a tenth of a second, keeps a hundredth of a core busy with nothing.
const POLL: Duration = Duration::from_millis(400);

/// The thread that handles all reports.
struct Poller {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    fn start<T: Send + Sync + 'static>(
        native: Arc<BaseProducer<Context<T>>>,
    ) -> Result<Self, KafkaError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("dueline-reports".to_owned())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    native.poll(POLL);
                }
            })
            .map_err(|error| KafkaError::Config(format!("no thread for the reports: {error}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of delivery reports panicked");
        }
    }
}

impl<T: Send + Sync + 'static> Producer<T> {
    /// A producer and the stream of its reports. Connects in the background: a broker that cannot
    /// be reached shows in the reports.
    ///
    /// # Errors
    /// When the settings are refused, by dueline or by librdkafka.
    pub fn new(
        settings: &KafkaSettings,
        config: &ProducerConfig,
    ) -> Result<(Self, Reports<T>), KafkaError> {
        let timeout = config.delivery_timeout.max(Duration::from_secs(1));
        let linger = config.linger.min(Duration::from_secs(1));
        let defaults = [
            ("linger.ms", linger.as_millis().to_string()),
            ("batch.num.messages", "10000".to_owned()),
            ("queue.buffering.max.kbytes", (256 * 1024).to_string()),
        ];
        let fixed = [
            ("enable.idempotence", "true".to_owned()),
            ("acks", "all".to_owned()),
            ("partitioner", "murmur2_random".to_owned()),
            ("delivery.timeout.ms", timeout.as_millis().to_string()),
            ("queue.buffering.max.messages", config.max_in_flight.max(1).to_string()),
        ];
        let client = settings.client_config(&defaults, &fixed)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let native = BaseProducer::from_config_and_context(&client, Context { reports: sender })
            .map_err(|error| KafkaError::from_native("creating the producer", &error))?;
        let native = Arc::new(native);
        let poller = Poller::start(Arc::clone(&native))?;
        Ok((Self { native, _poller: poller }, Reports(receiver)))
    }

    /// Queues a record; its report comes later. Never blocks.
    ///
    /// # Errors
    /// The ticket comes back and nothing was written: the queue is full, or the record can never be
    /// sent (too large, invalid topic name, the producer is in a fatal state).
    // The large error is the point: the ticket must come back without an allocation.
    #[allow(clippy::result_large_err)]
    pub fn send(&self, record: Record<'_>, ticket: T) -> Result<(), SendRefused<T>> {
        match self.enqueue(record, Box::new(Ticket::Caller(ticket))) {
            Ok(()) => Ok(()),
            Err((error, queue_full, ticket)) => match *ticket {
                Ticket::Caller(ticket) => Err(SendRefused { ticket, error, queue_full }),
                Ticket::Waiter(_) => unreachable!("a caller's ticket was queued"),
            },
        }
    }

    /// Sends a record and waits for its report, at most a little longer than the delivery timeout.
    pub async fn send_and_wait(&self, record: Record<'_>) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        if let Err((error, _, _)) = self.enqueue(record, Box::new(Ticket::Waiter(sender))) {
            return Outcome::NotWritten { error };
        }
        // librdkafka reports every record within the delivery timeout. Only a producer that is
        // dropped meanwhile closes the channel.
        receiver.await.unwrap_or(Outcome::Unknown { error: KafkaError::Closed })
    }

    #[allow(clippy::type_complexity)]
    fn enqueue(
        &self,
        record: Record<'_>,
        ticket: Box<Ticket<T>>,
    ) -> Result<(), (KafkaError, bool, Box<Ticket<T>>)> {
        let native = BaseRecord {
            topic: record.topic,
            partition: None,
            payload: record.value,
            key: record.key,
            timestamp: record.timestamp_ms,
            headers: record.headers.into_native(),
            delivery_opaque: ticket,
        };
        self.native.send(native).map_err(|(error, record)| {
            let full = error.rdkafka_error_code() == Some(Code::QueueFull);
            let doing = format!("queueing a record for `{}`", record.topic);
            (KafkaError::from_native(doing, &error), full, record.delivery_opaque)
        })
    }

    /// How many records are queued or in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.native.in_flight_count()).unwrap_or(0)
    }

    /// Sends everything now and waits until each record is reported, or the time is over.
    ///
    /// # Errors
    /// When records are still unreported at the end of `timeout`.
    pub async fn flush(&self, timeout: Duration) -> Result<(), KafkaError> {
        let native = Arc::clone(&self.native);
        tokio::task::spawn_blocking(move || native.flush(timeout))
            .await
            .map_err(|_| KafkaError::Closed)?
            .map_err(|error| KafkaError::from_native("flushing the producer", &error))
    }

    /// Flushes and ends the producer. What is unreported after `timeout` is abandoned and reported
    /// (not written, or unknown).
    pub async fn close(self, timeout: Duration) {
        if let Err(error) = self.flush(timeout).await {
            tracing::warn!(%error, "some records were still on their way when the producer closed");
        }
        // Dropping joins a thread and purges: not on an async worker.
        if tokio::task::spawn_blocking(move || drop(self)).await.is_err() {
            tracing::warn!("the producer's thread could not be ended");
        }
    }

    /// The error that made this producer useless, if one did: it must be dropped and made anew. Its
    /// unreported records are reported when it is dropped.
    #[must_use]
    pub fn fatal(&self) -> Option<String> {
        self.native.client().fatal_error().map(|(code, text)| format!("{code:?}: {text}"))
    }
}

impl<T: Send + Sync + 'static> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("in_flight", &self.in_flight()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fatal_error_is_told_and_what_is_queued_is_reported_by_closing() {
        let nowhere = KafkaSettings::new("127.0.0.1:1");
        let (producer, mut reports) =
            Producer::<u32>::new(&nowhere, &ProducerConfig::default()).expect("valid");
        assert_eq!(producer.fatal(), None);
        let record = || Record { topic: "t", key: Some(b"k"), ..Record::default() };
        producer.send(record(), 1).expect("queued");
        ffi::make_fatal(producer.native.client().native_ptr());
        assert!(producer.fatal().is_some_and(|text| text.contains("planted")));
        let refused = producer.send(record(), 2).expect_err("refused");
        assert_eq!((refused.ticket, refused.queue_full), (2, false));
        producer.close(Duration::ZERO).await;
        let report = reports.recv().await.expect("a report");
        assert_eq!(report.ticket, 1);
        assert!(matches!(report.outcome, Outcome::NotWritten { .. }), "{:?}", report.outcome);
        assert!(reports.recv().await.is_none());
    }
}
