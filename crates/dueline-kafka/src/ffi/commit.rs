//! Offset commits whose answers can be waited for, with a limit. rust-rdkafka's synchronous commit
//! waits without one, and the answers of its asynchronous commits never reach its callback.

use super::{CStr, Duration, NO_ERROR, Owned, millis, sys};

use rdkafka::TopicPartitionList;
use rdkafka::types::{RDKafka, RDKafkaErrorCode as Code};

/// What the broker said to one commit.
#[derive(Debug)]
pub(crate) struct CommitAnswer {
    /// The error of the request as a whole.
    pub error: Option<Code>,
    /// Topic, partition, offset, and whether it is committed.
    pub offsets: Vec<(String, i32, i64, bool)>,
}

/// Sends commits of one client and receives the answers to them. Used on one thread.
pub(crate) struct CommitQueue {
    client: *mut RDKafka,
    queue: Owned<sys::rd_kafka_queue_t>,
}

impl CommitQueue {
    /// The caller drops it before the client; `None` when there is no memory.
    pub(crate) fn new(client: *mut RDKafka) -> Option<Self> {
        // SAFETY: the caller's client is alive, and outlives the queue.
        let queue = unsafe { sys::rd_kafka_queue_new(client) };
        Some(Self { client, queue: Owned::new(queue, sys::rd_kafka_queue_destroy)? })
    }

    /// Hands a commit over to librdkafka; the answer comes to this queue.
    pub(crate) fn send(&self, offsets: &TopicPartitionList) -> Result<(), Code> {
        // SAFETY: client, list and queue are alive; the list is copied; without a callback the
        // answer is an event on the queue.
        let error = unsafe {
            sys::rd_kafka_commit_queue(
                self.client,
                offsets.ptr(),
                self.queue.ptr,
                None,
                std::ptr::null_mut(),
            )
        };
        if error == NO_ERROR { Ok(()) } else { Err(error.into()) }
    }

    /// The next answer, waiting up to `timeout` for it.
    pub(crate) fn answer(&self, timeout: Duration) -> Option<CommitAnswer> {
        // SAFETY: the queue is alive; the event is owned by its guard, and what is read from it is
        // copied before the guard is dropped.
        unsafe {
            let event = sys::rd_kafka_queue_poll(self.queue.ptr, millis(timeout));
            let event = Owned::new(event, sys::rd_kafka_event_destroy)?;
            let error = match sys::rd_kafka_event_error(event.ptr) {
                NO_ERROR => None,
                error => Some(error.into()),
            };
            let list = sys::rd_kafka_event_topic_partition_list(event.ptr);
            let mut offsets = Vec::new();
            if !list.is_null() {
                for index in 0..usize::try_from((*list).cnt).unwrap_or(0) {
                    let element = &*(*list).elems.add(index);
                    let topic = CStr::from_ptr(element.topic).to_string_lossy().into_owned();
                    let done = error.is_none() && element.err == NO_ERROR;
                    offsets.push((topic, element.partition, element.offset, done));
                }
            }
            Some(CommitAnswer { error, offsets })
        }
    }
}
