//! Topic names that no other test has.

use uuid::Uuid;

/// A topic prefix for one test: tests share a broker.
#[must_use]
pub fn unique_prefix() -> String {
    let uuid = Uuid::new_v4().simple().to_string();
    format!("t{}", &uuid[..12])
}
