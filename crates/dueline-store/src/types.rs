//! The wire forms of PostgreSQL types that dueline binds and reads.

use std::time::Duration;

use dueline_core::Micros;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

/// Microseconds from 1970-01-01 to PostgreSQL's epoch, 2000-01-01.
const EPOCH_OFFSET_MICROS: i64 = 946_684_800_000_000;
/// The fixed object ids of the built-in types: naming them by id saves a look-up per connection.
const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);

/// `timestamptz` without a detour through a calendar: both sides count microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamptz(pub Micros);

impl From<Micros> for Timestamptz {
    fn from(micros: Micros) -> Self {
        Self(micros)
    }
}

impl From<Timestamptz> for Micros {
    fn from(value: Timestamptz) -> Self {
        value.0
    }
}

impl Type<Postgres> for Timestamptz {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Timestamptz {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Encode<'_, Postgres> for Timestamptz {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        // PostgreSQL's infinities are the extreme values; keep them, shift everything else.
        let wire = match self.0.0 {
            i64::MIN | i64::MAX => self.0.0,
            micros => micros.saturating_sub(EPOCH_OFFSET_MICROS),
        };
        buf.extend_from_slice(&wire.to_be_bytes());
        Ok(IsNull::No)
    }

    fn size_hint(&self) -> usize {
        8
    }
}

impl Decode<'_, Postgres> for Timestamptz {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => {
                let wire = i64::from_be_bytes(value.as_bytes()?.try_into()?);
                Ok(Self(Micros(match wire {
                    i64::MIN | i64::MAX => wire,
                    micros => micros.saturating_add(EPOCH_OFFSET_MICROS),
                })))
            }
            PgValueFormat::Text => Err("timestamptz is read in binary form only".into()),
        }
    }
}

/// An `interval` of microseconds (no months, no days): what a configured duration becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgInterval(pub Duration);

impl From<PgInterval> for sqlx::postgres::types::PgInterval {
    fn from(value: PgInterval) -> Self {
        Self {
            months: 0,
            days: 0,
            microseconds: i64::try_from(value.0.as_micros()).unwrap_or(i64::MAX),
        }
    }
}
