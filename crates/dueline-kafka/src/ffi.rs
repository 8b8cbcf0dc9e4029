//! The few librdkafka calls that rust-rdkafka does not offer. Nothing else in this crate is
//! `unsafe`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::message::BorrowedMessage;

mod admin;
mod commit;

pub(crate) use admin::{alter_topic, controller, describe_topics, group_members, group_offsets};
pub(crate) use commit::{CommitAnswer, CommitQueue};

use rdkafka::types::RDKafka;
use sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as NO_ERROR;

/// An owned librdkafka object with its destructor.
struct Owned<T> {
    ptr: *mut T,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// `ptr` must be owned by the caller and `destroy` its destructor; `None` when it is null.
    fn new(ptr: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        (!ptr.is_null()).then_some(Self { ptr, destroy })
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` was given an owned, non-null pointer and its own destructor; it runs once.
        unsafe { (self.destroy)(self.ptr) }
    }
}

/// Milliseconds as librdkafka takes them.
fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// What a delivery report says about whether the message is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persisted {
    /// Certainly not written.
    No,
    /// It may have been written.
    Possibly,
    /// Written.
    Yes,
}

/// librdkafka's own verdict on a reported message. It remembers earlier tries: a message that was
/// once in flight without an answer stays `Possibly`, whatever its last error is.
pub(crate) fn persisted(message: &BorrowedMessage<'_>) -> Persisted {
    use sys::rd_kafka_msg_status_t as Status;
    // SAFETY: the pointer is that of a delivery report's message, which `message` keeps alive.
    match unsafe { sys::rd_kafka_message_status(message.ptr()) } {
        Status::RD_KAFKA_MSG_STATUS_NOT_PERSISTED => Persisted::No,
        Status::RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED => Persisted::Possibly,
        Status::RD_KAFKA_MSG_STATUS_PERSISTED => Persisted::Yes,
    }
}

/// The headers of a consumed record. rust-rdkafka's own accessor panics on a name that is not
/// UTF-8, which any producer may write (hazard H14): here such bytes are replaced.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> Vec<(String, Vec<u8>)> {
    let mut list = ptr::null_mut();
    // SAFETY: the message pointer is alive as long as `message`; `list` is only written on success
    // and stays owned by the message.
    let error = unsafe { sys::rd_kafka_message_headers(message.ptr(), &mut list) };
    if error != NO_ERROR || list.is_null() {
        return Vec::new();
    }
    // SAFETY: `list` is a header list owned by the message.
    let count = unsafe { sys::rd_kafka_header_cnt(list) };
    let mut headers = Vec::with_capacity(count);
    for index in 0..count {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: `list` is alive, and the three out-pointers are valid for writing.
        let error =
            unsafe { sys::rd_kafka_header_get_all(list, index, &mut name, &mut value, &mut size) };
        if error != NO_ERROR || name.is_null() {
            break;
        }
        // SAFETY: librdkafka terminates a header's name with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let value = if value.is_null() || size == 0 {
            Vec::new()
        } else {
            // SAFETY: librdkafka says that `size` bytes stand at `value`, owned by the message.
            unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) }.to_vec()
        };
        headers.push((name, value));
    }
    headers
}

/// The partition's start and end offsets as the last fetch told them, without asking the broker.
/// `None` when nothing was fetched from it yet.
pub(crate) fn cached_watermarks(
    client: *mut RDKafka,
    topic: &str,
    partition: i32,
) -> Option<(i64, i64)> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the caller's client is alive during the call (it passes its own `native_ptr`), the
    // topic is a terminated string, and both out-pointers are valid.
    let error = unsafe {
        sys::rd_kafka_get_watermark_offsets(client, topic.as_ptr(), partition, &mut low, &mut high)
    };
    (error == NO_ERROR && high >= 0).then_some((low, high))
}

/// Puts a client into the state that librdkafka raises when idempotence cannot be kept up.
#[cfg(test)]
pub(crate) fn make_fatal(client: *mut RDKafka) {
    let code = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    // SAFETY: the caller's client is alive, and the reason is a terminated string.
    let _ = unsafe { sys::rd_kafka_test_fatal_error(client, code, c"planted".as_ptr()) };
}
