//! Whose database this is: checked by every process before it does anything else (H21, H35).

use sqlx::{PgConnection, Postgres, Transaction};

use super::explain_missing_schema;
use crate::{Pool, StoreError};

/// The schema that this binary works on; `dueline migrate` brings a database to it.
pub const SCHEMA_VERSION: i32 = 1;
/// The oldest binary that may work on this schema.
pub const OLDEST_BINARY: &str = "0.1.0";
/// The version of this binary.
const THIS_BINARY: &str = env!("CARGO_PKG_VERSION");

/// The one row of `dueline.instance`: its name, uuid and timeline are the source of every message.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Instance {
    /// The name from the configuration, `[a-z0-9_-]`.
    pub name: String,
    /// Random; a clone that goes its own way gets another one.
    pub uuid: uuid::Uuid,
    /// What `initdb` gave the cluster; a decimal number.
    pub system_identifier: String,
    /// From 1; a failover adds one.
    pub timeline: i32,
    /// The schema's version, see [`SCHEMA_VERSION`].
    pub schema_version: i32,
    /// The oldest binary allowed, `major.minor.patch`.
    pub oldest_binary: String,
}

impl Instance {
    /// The `ce_source` of every message that this instance publishes.
    #[must_use]
    pub fn source(&self) -> String {
        let timeline = u32::try_from(self.timeline).unwrap_or_default();
        dueline_core::envelope::source_uri(&self.name, &self.uuid, timeline)
    }

    /// Whose a message with this source is.
    #[must_use]
    pub fn origin_of(&self, source: &str) -> SourceOrigin {
        origin_of(&self.source(), source)
    }
}

/// Whose a message with this source is, for an instance whose own messages have the source `own`.
#[must_use]
pub fn origin_of(own: &str, source: &str) -> SourceOrigin {
    if source == own {
        return SourceOrigin::Ours;
    }
    let timeline = |text: &str| {
        let (instance, timeline) = text.rsplit_once('/')?;
        Some((instance.to_owned(), timeline.parse::<i32>().ok()?))
    };
    match (timeline(source), timeline(own)) {
        (Some((theirs, at)), Some((ours, now))) if theirs == ours && at < now => {
            SourceOrigin::BeforeFailover
        }
        _ => SourceOrigin::Foreign,
    }
}

/// Whose a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrigin {
    /// Published by this instance on its present timeline.
    Ours,
    /// Published by this instance before a failover: its ids may have been lost, so it is stale; what is
    /// still live is published again when its lease ends.
    BeforeFailover,
    /// Another instance's, or a clone's.
    Foreign,
}

/// What the server says about itself.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
struct Cluster {
    standby: bool,
    system_identifier: String,
    timeline: i32,
}

/// What follows from the server and the row.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// The same cluster on a later timeline.
    Failover,
    Refused(String),
}

/// Checks that this process may work on the database, and writes down a failover if there was one.
///
/// # Errors
/// [`StoreError::Refused`] says what is wrong and what to do: no schema, no instance yet, a standby,
/// another instance's name, a clone, a schema too old or too new.
pub async fn check(pool: &Pool, expected_name: &str) -> Result<Instance, StoreError> {
    let cluster = cluster(pool).await?;
    let row = read(pool).await?;
    let Some(instance) = row else {
        return Err(refuse_standby(&cluster).unwrap_or_else(missing_row));
    };
    match verdict(&cluster, &instance, expected_name) {
        Verdict::Fine => Ok(instance),
        Verdict::Refused(why) => Err(StoreError::Refused(why)),
        Verdict::Failover => failed_over(pool, expected_name).await,
    }
}

/// Refuses a standby; for what must run before there is an instance.
///
/// # Errors
/// [`StoreError::Refused`] on a standby.
pub async fn check_primary(pool: &Pool) -> Result<(), StoreError> {
    refuse_standby(&cluster(pool).await?).map_or(Ok(()), Err)
}

/// The row as it is, without any check; `None` when there is none yet.
///
/// # Errors
/// When the schema is missing or the database does not answer.
pub async fn show(pool: &Pool) -> Result<Option<Instance>, StoreError> {
    read(pool).await
}

/// Makes the row if there is none, and writes down the schema's version; then checks it.
///
/// # Errors
/// As [`check`].
pub async fn create(pool: &Pool, name: &str) -> Result<Instance, StoreError> {
    let cluster = cluster(pool).await?;
    if let Some(refused) = refuse_standby(&cluster) {
        return Err(refused);
    }
    sqlx::query(include_str!("../../sql/operate/instance_create.sql"))
        .bind(name)
        .bind(&cluster.system_identifier)
        .bind(cluster.timeline)
        .bind(SCHEMA_VERSION)
        .bind(OLDEST_BINARY)
        .execute(pool)
        .await
        .map_err(explain_missing_schema)?;
    check(pool, name).await
}

/// Writes down that the schema is now the one of this binary; called after the migrations.
///
/// # Errors
/// When the database does not answer.
pub async fn record_schema(pool: &Pool) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/operate/instance_upgrade.sql"))
        .bind(SCHEMA_VERSION)
        .bind(OLDEST_BINARY)
        .execute(pool)
        .await?;
    Ok(())
}

/// This cluster goes on as the same instance: a restored backup that takes the original's place. The
/// original must never run again.
///
/// # Errors
/// On a standby, or when there is no instance yet.
pub async fn adopt(pool: &Pool) -> Result<Instance, StoreError> {
    become_instance(pool, None).await
}

/// This clone becomes an instance of its own, with this name: messages of the original are foreign to it.
///
/// # Errors
/// On a standby, or when there is no instance yet.
pub async fn renew(pool: &Pool, name: &str) -> Result<Instance, StoreError> {
    become_instance(pool, Some(name)).await
}

async fn become_instance(pool: &Pool, new_name: Option<&str>) -> Result<Instance, StoreError> {
    let cluster = cluster(pool).await?;
    if let Some(refused) = refuse_standby(&cluster) {
        return Err(refused);
    }
    let mut tx = pool.begin().await?;
    let old = lock(&mut tx).await?.ok_or_else(missing_row)?;
    let name = new_name.unwrap_or(&old.name);
    let instance = move_to(&mut tx, name, new_name.is_some(), &cluster).await?;
    tx.commit().await?;
    Ok(instance)
}

/// A new timeline is written down once, together with the jump of the sequences.
async fn failed_over(pool: &Pool, expected_name: &str) -> Result<Instance, StoreError> {
    let cluster = cluster(pool).await?;
    let mut tx = pool.begin().await?;
    let current = lock(&mut tx).await?.ok_or_else(missing_row)?;
    match verdict(&cluster, &current, expected_name) {
        // Somebody else was faster.
        Verdict::Fine => Ok(current),
        Verdict::Refused(why) => Err(StoreError::Refused(why)),
        Verdict::Failover => {
            let instance = move_to(&mut tx, &current.name, false, &cluster).await?;
            tx.commit().await?;
            tracing::warn!(
                from = current.timeline,
                to = instance.timeline,
                "the database failed over: ids and epochs go on a million further"
            );
            Ok(instance)
        }
    }
}

fn verdict(cluster: &Cluster, instance: &Instance, expected_name: &str) -> Verdict {
    if let Some(StoreError::Refused(why)) = refuse_standby(cluster) {
        return Verdict::Refused(why);
    }
    if instance.name != expected_name {
        return Verdict::Refused(format!(
            "this database belongs to instance `{}`, but instance.name is `{expected_name}`: correct \
             instance.name or postgres.url, or run `dueline instance renew` if this is a clone that \
             shall be an instance of its own",
            instance.name
        ));
    }
    if instance.system_identifier != cluster.system_identifier
        || instance.timeline > cluster.timeline
    {
        return Verdict::Refused(format!(
            "instance `{}` was made on cluster {} (timeline {}), but this is cluster {} (timeline {}): \
             a restored copy. Run `dueline instance adopt` if it takes the original's place, or \
             `dueline instance renew` if it shall be an instance of its own",
            instance.name,
            instance.system_identifier,
            instance.timeline,
            cluster.system_identifier,
            cluster.timeline
        ));
    }
    if let Some(why) = version_trouble(instance) {
        return Verdict::Refused(why);
    }
    if instance.timeline < cluster.timeline { Verdict::Failover } else { Verdict::Fine }
}

fn version_trouble(instance: &Instance) -> Option<String> {
    if instance.schema_version < SCHEMA_VERSION {
        return Some(format!(
            "the schema has version {}, this binary needs {SCHEMA_VERSION}: run `dueline migrate`",
            instance.schema_version
        ));
    }
    (parts(THIS_BINARY) < parts(&instance.oldest_binary)).then(|| {
        format!(
            "this binary is {THIS_BINARY}, the schema needs {} or newer: upgrade the binary",
            instance.oldest_binary
        )
    })
}

/// `1.2.3` as numbers; what is no number counts as zero.
fn parts(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

fn refuse_standby(cluster: &Cluster) -> Option<StoreError> {
    cluster.standby.then(|| {
        StoreError::Refused(
            "this server is a standby (in recovery): point postgres.url at the primary, for example \
             with target_session_attrs or a proxy that follows it"
                .to_owned(),
        )
    })
}

fn missing_row() -> StoreError {
    StoreError::Refused("this database has no instance yet: run `dueline apply`".to_owned())
}

async fn cluster(pool: &Pool) -> Result<Cluster, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/cluster.sql")).fetch_one(pool).await?)
}

async fn read(pool: &Pool) -> Result<Option<Instance>, StoreError> {
    sqlx::query_as(include_str!("../../sql/operate/instance_read.sql"))
        .fetch_optional(pool)
        .await
        .map_err(explain_missing_schema)
}

async fn lock(tx: &mut Transaction<'_, Postgres>) -> Result<Option<Instance>, StoreError> {
    sqlx::query_as(include_str!("../../sql/operate/instance_lock.sql"))
        .fetch_optional(&mut **tx)
        .await
        .map_err(explain_missing_schema)
}

async fn move_to(
    connection: &mut PgConnection,
    name: &str,
    new_uuid: bool,
    cluster: &Cluster,
) -> Result<Instance, StoreError> {
    sqlx::query(include_str!("../../sql/operate/instance_skip_ids.sql"))
        .execute(&mut *connection)
        .await?;
    Ok(sqlx::query_as(include_str!("../../sql/operate/instance_move.sql"))
        .bind(name)
        .bind(new_uuid)
        .bind(&cluster.system_identifier)
        .bind(cluster.timeline)
        .fetch_one(connection)
        .await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        Cluster { standby: false, system_identifier: "7".into(), timeline: 2 }
    }

    fn instance() -> Instance {
        Instance {
            name: "shop".into(),
            uuid: uuid::Uuid::nil(),
            system_identifier: "7".into(),
            timeline: 2,
            schema_version: SCHEMA_VERSION,
            oldest_binary: OLDEST_BINARY.into(),
        }
    }

    fn refusal(cluster: &Cluster, instance: &Instance, name: &str) -> String {
        match verdict(cluster, instance, name) {
            Verdict::Refused(why) => why,
            other => panic!("{other:?} instead of a refusal"),
        }
    }

    #[test]
    fn h21_a_standby_is_refused_whatever_else_holds() {
        let standby = Cluster { standby: true, timeline: 0, ..cluster() };
        assert!(refusal(&standby, &instance(), "shop").contains("standby"));
    }

    #[test]
    fn h35_a_clone_is_refused_with_both_ways_out() {
        for clone in [
            Cluster { system_identifier: "8".into(), ..cluster() },
            Cluster { timeline: 1, ..cluster() },
        ] {
            let why = refusal(&clone, &instance(), "shop");
            assert!(why.contains("adopt") && why.contains("renew"), "{why}");
        }
        assert!(refusal(&cluster(), &instance(), "other").contains("instance.name"));
    }

    #[test]
    fn h35_a_later_timeline_is_a_failover() {
        let later = Cluster { timeline: 3, ..cluster() };
        assert_eq!(verdict(&later, &instance(), "shop"), Verdict::Failover);
        assert_eq!(verdict(&cluster(), &instance(), "shop"), Verdict::Fine);
    }

    #[test]
    fn a_schema_too_old_or_a_binary_too_old_says_what_to_upgrade() {
        let old_schema = Instance { schema_version: SCHEMA_VERSION - 1, ..instance() };
        assert!(refusal(&cluster(), &old_schema, "shop").contains("dueline migrate"));
        let old_binary = Instance { oldest_binary: "99.0.0".into(), ..instance() };
        assert!(refusal(&cluster(), &old_binary, "shop").contains("upgrade the binary"));
        let newer_schema = Instance { schema_version: SCHEMA_VERSION + 1, ..instance() };
        assert_eq!(verdict(&cluster(), &newer_schema, "shop"), Verdict::Fine);
    }

    #[test]
    fn h35_sources_are_told_apart() {
        let ours = instance();
        let of = |i: &Instance| ours.origin_of(&i.source());
        assert_eq!(of(&ours), SourceOrigin::Ours);
        let before = Instance { timeline: 1, ..instance() };
        assert_eq!(of(&before), SourceOrigin::BeforeFailover);
        for foreign in [
            Instance { timeline: 3, ..instance() },
            Instance { uuid: uuid::Uuid::max(), ..instance() },
            Instance { name: "other".into(), ..instance() },
        ] {
            assert_eq!(of(&foreign), SourceOrigin::Foreign);
        }
        assert_eq!(ours.origin_of(""), SourceOrigin::Foreign);
    }
}
