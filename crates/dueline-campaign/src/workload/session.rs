//! One client's connection: opened anew whenever it breaks, and honest about what is not known.

use std::time::Duration;

use dueline_core::Micros;
use dueline_testkit::checker::Told;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

const CONNECT: Duration = Duration::from_secs(3);
/// The most that the work of one transaction may take: above every lock that a fault holds.
const WORK: Duration = Duration::from_secs(8);
const COMMIT: Duration = Duration::from_secs(5);

/// What became of a transaction.
#[derive(Debug)]
pub enum Outcome<T> {
    /// Committed.
    Done(T),
    /// Certainly rolled back.
    Failed(String),
    /// The connection broke at the COMMIT.
    Unknown(String),
}

/// A receipt and the deadline that it names, in microseconds.
pub type Receipt = (String, Option<i64>);

/// What a client may take a receipt for.
pub fn told((receipt, due_at): Receipt) -> Told {
    Told::Receipt(receipt, due_at.map(Micros))
}

impl Outcome<Receipt> {
    /// What the client was told.
    pub fn told(self) -> Told {
        match self {
            Self::Done(receipt) => told(receipt),
            Self::Failed(why) => Told::Failed(why),
            Self::Unknown(why) => Told::Unknown(why),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

impl Session {
    /// A session that connects when it is first used.
    #[must_use]
    pub fn new(options: PgConnectOptions) -> Self {
        Self { options, connection: None }
    }

    /// Runs `work` in a transaction.
    pub async fn transact<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Outcome<T> {
        let mut connection = match self.take().await {
            Ok(connection) => connection,
            Err(error) => return Outcome::Failed(error),
        };
        let done = async {
            sqlx::raw_sql("begin").execute(&mut connection).await?;
            work(&mut connection).await
        };
        let done = match timeout(WORK, done).await {
            Ok(Ok(done)) => done,
            // Without a COMMIT nothing is written: the connection goes, and its transaction with it.
            Ok(Err(error)) => return Outcome::Failed(error.to_string()),
            Err(_) => return Outcome::Failed("it took too long".to_owned()),
        };
        match timeout(COMMIT, sqlx::raw_sql("COMMIT").execute(&mut connection)).await {
            Ok(Ok(_)) => {
                self.connection = Some(connection);
                Outcome::Done(done)
            }
            Ok(Err(error)) if is_certain(&error) => Outcome::Failed(error.to_string()),
            Ok(Err(error)) => Outcome::Unknown(error.to_string()),
            Err(_) => Outcome::Unknown("the COMMIT was not answered".to_owned()),
        }
    }

    async fn take(&mut self) -> Result<PgConnection, String> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let connect = PgConnection::connect_with(&self.options);
        let connected = timeout(CONNECT, connect).await.map_err(|_| "no connection in time")?;
        connected.map_err(|error| error.to_string())
    }
}

/// Whether the server itself said that it did not commit. A session that an administrator ends (class
/// 57) may be ended after its commit.
fn is_certain(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| !code.starts_with("57") && !code.starts_with("08"))
}
