//! What went wrong, and whose fault it is.

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// PostgreSQL or the connection to it refused.
    #[error("database: {0}")]
    Sqlx(#[from] sqlx::Error),
    /// A migration could not be applied.
    #[error("migration: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The number of rows that a conditional update changed is impossible.
    #[error("{step} changed {actual} rows where {expected} were expected")]
    Count {
        /// The step.
        step: &'static str,
        /// Rows expected.
        expected: usize,
        /// Rows changed.
        actual: usize,
    },
    /// The database is not what this process may work on; the text says what to do.
    #[error("{0}")]
    Refused(String),
    /// A value in the database is not one that this version knows.
    #[error("unexpected value in the database: {0}")]
    Unexpected(String),
}

/// Whose fault an error is: it decides between splitting the batch, an attempt, and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The data or the handler: SQLSTATE classes 22 (bad data), 23 (a rule broken) and 54 (a limit of the
    /// server exceeded, such as JSON that nests too deep), and P0001 (`raise exception`).
    Task,
    /// The environment: everything else. Costs no attempt.
    Environment,
}

impl StoreError {
    /// The SQLSTATE, if PostgreSQL answered with one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Sqlx(sqlx::Error::Database(error)) => error.code().map(|c| c.into_owned()),
            _ => None,
        }
    }

    /// What PostgreSQL said, without what we say around it.
    #[must_use]
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Sqlx(sqlx::Error::Database(error)) => error.message().to_owned(),
            other => other.to_string(),
        }
    }

    /// The detail that PostgreSQL gave.
    pub(crate) fn detail(&self) -> Option<&str> {
        match self {
            Self::Sqlx(sqlx::Error::Database(error)) => {
                error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.detail()
            }
            _ => None,
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn whose(&self) -> Whose {
        match self.sqlstate() {
            Some(code) if matches!(code.get(..2), Some("22" | "23" | "54")) || code == "P0001" => {
                Whose::Task
            }
            _ => Whose::Environment,
        }
    }

    /// Deadlock or serialization failure: the same transaction may be tried again at once, for free.
    #[must_use]
    pub fn is_free_retry(&self) -> bool {
        matches!(self.sqlstate().as_deref(), Some("40P01" | "40001"))
    }

    /// Whether the fate of a COMMIT is unknown: the connection broke, so nobody told us.
    #[must_use]
    pub fn is_connection_lost(&self) -> bool {
        match self {
            Self::Sqlx(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) => true,
            Self::Sqlx(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|c| c.starts_with("08") || c.starts_with("57P"))
            }
            _ => false,
        }
    }
}
