//! What the database asks to be tried again at once.

use crate::StoreError;

/// How often a deadlock or serialization failure is tried again at once.
const MAX_FREE_RETRIES: usize = 5;

/// Runs `step`, and again while the database asks for nothing but that: a deadlock or a serialization failure rolled
/// all of it back.
pub(super) async fn freely<T, F>(step: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 0..MAX_FREE_RETRIES {
        match step().await {
            Err(error) if error.is_free_retry() => {}
            answer => return answer,
        }
    }
    step().await
}
