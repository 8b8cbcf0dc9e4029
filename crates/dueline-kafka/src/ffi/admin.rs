//! Admin requests: topics with their ids, members and offsets of a group.

use super::{CStr, CString, Duration, NO_ERROR, Owned, millis, ptr, sys};

use rdkafka::types::{RDKafka, RDKafkaErrorCode as Code};
use sys::rd_kafka_admin_op_t as Op;

/// A topic as the brokers know it.
#[derive(Clone, Debug)]
pub(crate) struct DescribedTopic {
    pub name: String,
    /// Base64; a topic that is deleted and made again has another one.
    pub id: String,
    pub partitions: u32,
    pub replication: u32,
}

/// Sends one admin request and waits for its result event, at most a little longer than `timeout`.
///
/// `send` gets the options and the queue to answer on.
fn request(
    client: *mut RDKafka,
    op: Op,
    timeout: Duration,
    send: impl FnOnce(*const sys::rd_kafka_AdminOptions_t, *mut sys::rd_kafka_queue_t),
) -> Result<Owned<sys::rd_kafka_event_t>, Code> {
    // SAFETY: the caller's client is alive; options and queue are owned by their guards, which are
    // dropped after the last use below. The error text buffer may be null with size 0.
    unsafe {
        let options = Owned::new(
            sys::rd_kafka_AdminOptions_new(client, op),
            sys::rd_kafka_AdminOptions_destroy,
        )
        .ok_or(Code::Fail)?;
        sys::rd_kafka_AdminOptions_set_request_timeout(
            options.ptr,
            millis(timeout),
            ptr::null_mut(),
            0,
        );
        let queue = Owned::new(sys::rd_kafka_queue_new(client), sys::rd_kafka_queue_destroy)
            .ok_or(Code::Fail)?;
        send(options.ptr, queue.ptr);
        let limit = millis(timeout.saturating_add(Duration::from_millis(500)));
        let event = sys::rd_kafka_queue_poll(queue.ptr, limit);
        let event =
            Owned::new(event, sys::rd_kafka_event_destroy).ok_or(Code::OperationTimedOut)?;
        match sys::rd_kafka_event_error(event.ptr) {
            NO_ERROR => Ok(event),
            error => Err(error.into()),
        }
    }
}

/// The elements of a C array of pointers; empty when there is none.
///
/// # Safety
/// `array` must be null or point to `count` pointers that outlive `'a`.
unsafe fn elements<'a, T>(array: *mut *const T, count: usize) -> &'a [*const T] {
    if array.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for the array.
    unsafe { std::slice::from_raw_parts(array.cast_const(), count) }
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `text` must be null or a terminated string.
unsafe fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for the string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Describes topics, each named once, in no particular order; missing ones are left out. Asks the
/// controller, or the broker of this id.
pub(crate) fn describe_topics(
    client: *mut RDKafka,
    names: &[&str],
    via: Option<i32>,
    timeout: Duration,
) -> Result<Vec<DescribedTopic>, Code> {
    let owned: Vec<CString> = names
        .iter()
        .map(|name| CString::new(*name).map_err(|_| Code::InvalidTopic))
        .collect::<Result<_, _>>()?;
    let mut pointers: Vec<_> = owned.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: the names outlive the collection, which copies them; the result array lives as long
    // as the event that it is read from.
    unsafe {
        let topics = Owned::new(
            sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()),
            sys::rd_kafka_TopicCollection_destroy,
        )
        .ok_or(Code::Fail)?;
        let op = Op::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let event = request(client, op, timeout, |options, queue| {
            if let Some(broker) = via {
                let options = options.cast_mut();
                sys::rd_kafka_AdminOptions_set_broker(options, broker, ptr::null_mut(), 0);
            }
            sys::rd_kafka_DescribeTopics(client, topics.ptr, options, queue);
        })?;
        let result = sys::rd_kafka_event_DescribeTopics_result(event.ptr);
        if result.is_null() {
            return Err(Code::Fail);
        }
        let mut count = 0;
        let array = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        let mut found = Vec::with_capacity(count);
        for topic in elements(array, count) {
            found.extend(described(*topic)?);
        }
        Ok(found)
    }
}

/// # Safety
/// `topic` must be an element of a live DescribeTopics result.
unsafe fn described(
    topic: *const sys::rd_kafka_TopicDescription_t,
) -> Result<Option<DescribedTopic>, Code> {
    // SAFETY: the caller vouches for `topic`; what hangs on it lives as long as it.
    unsafe {
        let error = sys::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() {
            match sys::rd_kafka_error_code(error) {
                NO_ERROR => {}
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => {
                    return Ok(None);
                }
                other => return Err(other.into()),
            }
        }
        let mut partitions = 0;
        let array = sys::rd_kafka_TopicDescription_partitions(topic, &mut partitions);
        let mut replication = 0;
        if let Some(first) = elements(array, partitions).first() {
            sys::rd_kafka_TopicPartitionInfo_replicas(*first, &mut replication);
        }
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        let id = if id.is_null() { String::new() } else { text(sys::rd_kafka_Uuid_base64str(id)) };
        Ok(Some(DescribedTopic {
            name: text(sys::rd_kafka_TopicDescription_name(topic)),
            id,
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            replication: u32::try_from(replication).unwrap_or(u32::MAX),
        }))
    }
}

/// How many members a group has; 0 for a group that does not exist.
pub(crate) fn group_members(
    client: *mut RDKafka,
    group: &str,
    timeout: Duration,
) -> Result<usize, Code> {
    let name = CString::new(group).map_err(|_| Code::InvalidGroupId)?;
    let mut names = [name.as_ptr()];
    // SAFETY: `names` is copied during the call; the result lives as long as its event.
    unsafe {
        let op = Op::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
        let event = request(client, op, timeout, |options, queue| {
            sys::rd_kafka_DescribeConsumerGroups(client, names.as_mut_ptr(), 1, options, queue);
        })?;
        let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event.ptr);
        if result.is_null() {
            return Err(Code::Fail);
        }
        let mut count = 0;
        let array = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
        let Some(described) = elements(array, count).first() else { return Ok(0) };
        let error = sys::rd_kafka_ConsumerGroupDescription_error(*described);
        if !error.is_null() {
            match sys::rd_kafka_error_code(error) {
                NO_ERROR => {}
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND => return Ok(0),
                other => return Err(other.into()),
            }
        }
        Ok(sys::rd_kafka_ConsumerGroupDescription_member_count(*described))
    }
}

/// The committed offsets of a group in partitions `0..partitions` of a topic: one entry a
/// partition, `None` where nothing is committed.
pub(crate) fn group_offsets(
    client: *mut RDKafka,
    group: &str,
    topic: &str,
    partitions: u32,
    timeout: Duration,
) -> Result<Vec<Option<i64>>, Code> {
    let name = CString::new(group).map_err(|_| Code::InvalidGroupId)?;
    let count = i32::try_from(partitions).map_err(|_| Code::InvalidPartitions)?;
    let mut asked = rdkafka::TopicPartitionList::with_capacity(partitions as usize);
    for partition in 0..count {
        asked.add_partition(topic, partition);
    }
    // SAFETY: the request copies the group's name and the list; the result lives as long as its
    // event.
    unsafe {
        let query = Owned::new(
            sys::rd_kafka_ListConsumerGroupOffsets_new(name.as_ptr(), asked.ptr()),
            sys::rd_kafka_ListConsumerGroupOffsets_destroy,
        )
        .ok_or(Code::Fail)?;
        let mut queries = [query.ptr];
        let op = Op::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS;
        let event = request(client, op, timeout, |options, queue| {
            sys::rd_kafka_ListConsumerGroupOffsets(client, queries.as_mut_ptr(), 1, options, queue);
        })?;
        let result = sys::rd_kafka_event_ListConsumerGroupOffsets_result(event.ptr);
        if result.is_null() {
            return Err(Code::Fail);
        }
        let mut groups = 0;
        let array = sys::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &mut groups);
        let answer = *elements(array, groups).first().ok_or(Code::Fail)?;
        offsets_of(answer, partitions)
    }
}

/// # Safety
/// `group` must be an element of a live ListConsumerGroupOffsets result.
unsafe fn offsets_of(
    group: *const sys::rd_kafka_group_result_t,
    partitions: u32,
) -> Result<Vec<Option<i64>>, Code> {
    let mut offsets = vec![None; partitions as usize];
    // SAFETY: the caller vouches for `group`; its error and list live as long as it, and the list
    // says how many elements it has.
    unsafe {
        let error = sys::rd_kafka_group_result_error(group);
        if !error.is_null() && sys::rd_kafka_error_code(error) != NO_ERROR {
            return Err(sys::rd_kafka_error_code(error).into());
        }
        let list = sys::rd_kafka_group_result_partitions(group);
        if list.is_null() {
            return Ok(offsets);
        }
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        for index in 0..count {
            let element = &*(*list).elems.add(index);
            if element.err != NO_ERROR {
                return Err(element.err.into());
            }
            let slot = usize::try_from(element.partition).ok().and_then(|p| offsets.get_mut(p));
            if let Some(slot) = slot {
                *slot = (element.offset >= 0).then_some(element.offset);
            }
        }
    }
    Ok(offsets)
}

/// Sets settings of a topic and leaves its others alone.
pub(crate) fn alter_topic(
    client: *mut RDKafka,
    topic: &str,
    settings: &std::collections::BTreeMap<String, String>,
    timeout: Duration,
) -> Result<(), Code> {
    let name = CString::new(topic).map_err(|_| Code::InvalidTopic)?;
    // SAFETY: the resource copies every string; the result lives as long as its event.
    unsafe {
        let kind = sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC;
        let resource = Owned::new(
            sys::rd_kafka_ConfigResource_new(kind, name.as_ptr()),
            sys::rd_kafka_ConfigResource_destroy,
        )
        .ok_or(Code::Fail)?;
        for (setting, value) in settings {
            let setting = CString::new(setting.as_str()).map_err(|_| Code::InvalidConfig)?;
            let value = CString::new(value.as_str()).map_err(|_| Code::InvalidConfig)?;
            let set = sys::rd_kafka_AlterConfigOpType_t::RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET;
            let error = sys::rd_kafka_ConfigResource_add_incremental_config(
                resource.ptr,
                setting.as_ptr(),
                set,
                value.as_ptr(),
            );
            if !error.is_null() {
                let code = sys::rd_kafka_error_code(error);
                sys::rd_kafka_error_destroy(error);
                return Err(code.into());
            }
        }
        let mut resources = [resource.ptr];
        let op = Op::RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS;
        let event = request(client, op, timeout, |options, queue| {
            sys::rd_kafka_IncrementalAlterConfigs(
                client,
                resources.as_mut_ptr(),
                1,
                options,
                queue,
            );
        })?;
        let result = sys::rd_kafka_event_IncrementalAlterConfigs_result(event.ptr);
        if result.is_null() {
            return Err(Code::Fail);
        }
        let mut count = 0;
        let array = sys::rd_kafka_IncrementalAlterConfigs_result_resources(result, &mut count);
        for resource in elements(array, count) {
            match sys::rd_kafka_ConfigResource_error(*resource) {
                NO_ERROR => {}
                error => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// The id of the cluster's controller as the last metadata named it; waits for the first.
pub(crate) fn controller(client: *mut RDKafka, timeout: Duration) -> Option<i32> {
    // SAFETY: the caller's client is alive during the call.
    let id = unsafe { sys::rd_kafka_controllerid(client, millis(timeout)) };
    (id >= 0).then_some(id)
}
