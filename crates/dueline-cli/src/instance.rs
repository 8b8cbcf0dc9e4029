//! `migrate` and `instance`: the schema, and whose database it is.

use std::time::Duration;

use dueline_store::operate::instance::{self, Instance};
use dueline_store::{Pool, StoreError};
use serde_json::{Value, json};

use crate::args::InstanceCommand;
use crate::context::Context;
use crate::output::Reply;

/// A migration that waits longer for a table lock makes everybody wait who comes after it.
const MIGRATE_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const MIGRATE_TRIES: u32 = 5;

/// `dueline migrate`.
pub async fn migrate(context: &Context) -> anyhow::Result<Reply> {
    // No statement timeout: an index on a large table takes what it takes.
    let pool = context.pool_with(Duration::ZERO, MIGRATE_LOCK_TIMEOUT)?;
    instance::check_primary(&pool).await?;
    migrate_patiently(&pool).await?;
    instance::record_schema(&pool).await?;
    let instance = instance::create(&pool, &context.config.instance.name).await?;
    let text =
        format!("the schema has version {}; instance `{}`", instance.schema_version, instance.name);
    Ok(Reply::new(json!({ "instance": document(&instance) }), text))
}

async fn migrate_patiently(pool: &Pool) -> Result<(), StoreError> {
    let mut tries = 1;
    loop {
        match dueline_store::migrate(pool).await {
            Err(error) if tries < MIGRATE_TRIES && is_lock_timeout(&error) => {
                tracing::warn!(tries, "a migration waits for a lock that somebody holds; again");
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

fn is_lock_timeout(error: &StoreError) -> bool {
    error.sqlstate().as_deref() == Some("55P03")
        || matches!(error, StoreError::Migrate(e) if e.to_string().contains("lock timeout"))
}

/// `dueline instance show|adopt|renew`.
pub async fn instance(context: &Context, command: InstanceCommand) -> anyhow::Result<Reply> {
    let pool = context.pool()?;
    let name = &context.config.instance.name;
    let (instance, done) = match command {
        InstanceCommand::Show => (instance::check(&pool, name).await?, "it fits this cluster"),
        InstanceCommand::Adopt => {
            (instance::adopt(&pool).await?, "adopted: this cluster goes on as the same instance")
        }
        InstanceCommand::Renew => {
            (instance::renew(&pool, name).await?, "renewed: this is an instance of its own now")
        }
    };
    let text = format!(
        "{done}\nname      {}\nuuid      {}\ncluster   {}\ntimeline  {}\nschema    {} (binaries from {} on)",
        instance.name,
        instance.uuid,
        instance.system_identifier,
        instance.timeline,
        instance.schema_version,
        instance.oldest_binary
    );
    Ok(Reply::new(document(&instance), text))
}

fn document(instance: &Instance) -> Value {
    json!({
        "name": instance.name,
        "uuid": instance.uuid.to_string(),
        "system_identifier": instance.system_identifier,
        "timeline": instance.timeline,
        "schema_version": instance.schema_version,
        "oldest_binary": instance.oldest_binary,
        "source": instance.source(),
    })
}
