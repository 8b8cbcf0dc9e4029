//! Handlers in Rust.

use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Duration;

use dueline_store::effect::{Effect, Failure, Trouble};
pub use dueline_store::effect::{Task, Verdict};
use sqlx::PgConnection;

/// The connection of the transaction that settles the batch: what is written through it happens exactly
/// when the tasks are settled, or not at all.
///
/// It runs as the handlers' role. A handler must not end the transaction; it may use savepoints.
pub struct EffectConnection<'c>(&'c mut PgConnection);

impl Deref for EffectConnection<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0
    }
}

impl DerefMut for EffectConnection<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0
    }
}

/// A failure of a whole batch.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// It may succeed later. The batch is split until a task fails alone; that one is charged an attempt.
    #[error("{0}")]
    Transient(String),
    /// Trying again cannot help. The batch is split until a task fails alone; that one dies.
    #[error("{0}")]
    Permanent(String),
    /// Not the tasks' fault (something that the handler needs is down): no task is charged, and the kind
    /// pauses.
    #[error("{0}")]
    Environment(String),
    /// What the database said; its SQLSTATE decides whose fault it is.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Carries out the tasks of one kind.
///
/// The handler must check the business state again, in the statement that changes it: the row that it
/// updates is the one that a payment updates too, and the condition stands on that row. Locks are to be
/// taken in the order of `tasks`, which are sorted by key.
#[async_trait::async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Acts on a batch and answers one verdict for each task, in their order.
    ///
    /// A [`Verdict::Transient`] or [`Verdict::Permanent`] rolls the transaction back; the failure is recorded
    /// for that task alone, and the others run again without it. So do everything through `effect`, or so
    /// that doing it twice does no harm.
    ///
    /// # Errors
    /// [`HandlerError`] when the batch as a whole failed.
    async fn handle(
        &self,
        effect: &mut EffectConnection<'_>,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, HandlerError>;
}

/// A [`Handler`] as the store's seam sees it, bounded in time.
pub(crate) struct RustEffect {
    pub handler: Box<dyn Handler>,
    pub timeout: Duration,
}

#[async_trait::async_trait]
impl Effect for RustEffect {
    async fn apply(
        &self,
        connection: &mut PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, Trouble> {
        let mut effect = EffectConnection(connection);
        let work = unpanicked(self.handler.handle(&mut effect, tasks));
        let failed = |text: &str| Err(Trouble::Batch(Failure::new(text, false)));
        match tokio::time::timeout(self.timeout, work).await {
            Ok(Some(Ok(verdicts))) => Ok(verdicts),
            Ok(Some(Err(error))) => Err(trouble(error)),
            Ok(None) => failed("the handler panicked; the log has the message"),
            Err(_) => failed(&format!("the handler took longer than {:?}", self.timeout)),
        }
    }
}

/// A panic of the handler is a failure of its batch, not the end of the consumer; `None` then. What the
/// handler touched is rolled back and dropped with its future.
async fn unpanicked<T>(work: impl Future<Output = T> + Send) -> Option<T> {
    let mut work = Box::pin(work);
    std::future::poll_fn(move |context| {
        let poll = AssertUnwindSafe(|| work.as_mut().poll(context));
        match std::panic::catch_unwind(poll) {
            Ok(Poll::Ready(answer)) => Poll::Ready(Some(answer)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

fn trouble(error: HandlerError) -> Trouble {
    match error {
        HandlerError::Transient(text) => Trouble::Batch(Failure::new(&text, false)),
        HandlerError::Permanent(text) => Trouble::Batch(Failure::new(&text, true)),
        HandlerError::Environment(error) => Trouble::Environment { error, free: false },
        HandlerError::Database(error) => Trouble::from_handler(&error.into()),
    }
}
