//! The same work done in other ways, on the same machine in the same run.

pub(crate) mod obvious;
pub(crate) mod same_sql;
