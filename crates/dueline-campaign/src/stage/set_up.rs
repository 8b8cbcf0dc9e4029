//! From nothing to four processes that are ready.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_testkit::checker::Places;
use dueline_testkit::database::{ROW_RULES, url_of};
use dueline_testkit::disk::SmallDisk;
use dueline_testkit::process::Program;
use dueline_testkit::proxy::TcpProxy;
use dueline_testkit::services::{Door, Kafka, KafkaOptions, Postgres, PostgresOptions};
use dueline_testkit::{cli, ports, topics};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::{Slot, Stage, StageOptions, Wires, settings};
use crate::role::Role;

const DATABASE: &str = "shop";
/// The most connections of the server: few, so that a fault can take the rest.
pub const MAX_CONNECTIONS: u32 = 100;
/// The undisturbed connections: judges, monitors, faults that are SQL.
const POOL: u32 = 6;
/// What each refused connection costs an undisturbed statement at most.
const ACQUIRE: Duration = Duration::from_secs(5);

pub async fn set_up(options: StageOptions) -> Result<Stage> {
    let folder = tempfile::Builder::new().prefix("dueline-campaign-").tempdir()?;
    let (kafka_proxies, doors) = doors().await?;
    let (postgres, kafka) = services(doors).await?;
    let disk = match options.disk_mib {
        0 => None,
        mib => Some(SmallDisk::mount(mib)?),
    };
    let url = database(&postgres, disk.as_ref()).await?;
    let pool = pool(&url).await?;

    let mut settings = settings::campaign(&url, &kafka.bootstrap(), &topics::unique_prefix());
    for (path, value) in &options.settings {
        settings.set(path, value.clone());
    }
    let config_path = folder.path().join("dueline.toml");
    settings.write(&config_path)?;
    let config = settings.config()?;
    cli::run(&config_path, &["migrate"]).await?.ok()?;
    sqlx::raw_sql(ROW_RULES).execute(&pool).await?;
    sqlx::raw_sql(include_str!("../../sql/shop.sql")).execute(&pool).await?;
    cli::run(&config_path, &["apply"]).await?.ok()?;
    crate::planted::cut(&pool, &options.cuts).await?;

    let mut wires = Vec::new();
    for kafka in kafka_proxies {
        wires.push(Wires { postgres: TcpProxy::start(server_address(&postgres)).await?, kafka });
    }
    let client_wire = TcpProxy::start(server_address(&postgres)).await?;
    let mut slots = Vec::new();
    for role in Role::ALL {
        let (binary, clock_binary) = match role.is_relay() {
            true => (&options.relay_binary, &options.clock_relay_binary),
            false => (&options.consumer_binary, &options.consumer_binary),
        };
        let program = |binary: &str| {
            let program = Program::built(binary, role.name(), folder.path())?;
            anyhow::Ok(program.args(arguments(&config_path, &wires[role.place()])))
        };
        let (mut program, clock_program) = (program(binary)?, program(clock_binary)?);
        let own = options.environment.iter().filter(|(of, ..)| *of == role);
        program.environment.extend(own.map(|(_, name, value)| (name.clone(), value.clone())));
        let service = program.start()?;
        slots.push(tokio::sync::Mutex::new(Slot { service, program, clock_program, held: false }));
    }
    let stage = Stage {
        slots,
        ends: Mutex::default(),
        wires,
        client_url: by_proxy(&client_wire),
        client_wire,
        pool,
        places: Places::of(&config),
        config,
        config_path,
        kafka: Arc::new(Mutex::new(kafka)),
        postgres: Arc::new(Mutex::new(postgres)),
        disk,
        folder,
    };
    for role in Role::ALL {
        stage.ready(role).await?;
    }
    Ok(stage)
}

/// The configuration, and the process's own way to each service.
fn arguments(config: &Path, wires: &Wires) -> Vec<String> {
    vec![
        "--config".to_owned(),
        config.display().to_string(),
        "--set".to_owned(),
        format!("postgres.url={}", by_proxy(&wires.postgres)),
        "--set".to_owned(),
        format!("kafka.brokers={}", wires.kafka.address()),
    ]
}

/// A proxy for each process, before a listener of the broker that tells of that proxy.
async fn doors() -> Result<(Vec<TcpProxy>, Vec<Door>)> {
    let (mut proxies, mut doors) = (Vec::new(), Vec::new());
    for port in ports::free(Role::ALL.len())? {
        let proxy = TcpProxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        doors.push(Door { port, advertised: proxy.address() });
        proxies.push(proxy);
    }
    Ok((proxies, doors))
}

async fn services(doors: Vec<Door>) -> Result<(Postgres, Kafka)> {
    let kafka = tokio::task::spawn_blocking(move || {
        Kafka::start_with(KafkaOptions { doors, ..KafkaOptions::default() })
    });
    let postgres = tokio::task::spawn_blocking(move || {
        let settings = vec![format!("max_connections={MAX_CONNECTIONS}")];
        Postgres::start_with(PostgresOptions { settings, ..PostgresOptions::default() })
    });
    let kafka = kafka.await??;
    Ok((postgres.await??, kafka))
}

/// The shop's database, on the small disk if there is one. Returns its undisturbed URL.
async fn database(postgres: &Postgres, disk: Option<&SmallDisk>) -> Result<String> {
    let mut admin = PgConnection::connect(&postgres.url()).await?;
    let mut place = String::new();
    if let Some(disk) = disk {
        let folder = disk.path().join("tables");
        std::fs::create_dir(&folder)?;
        postgres.give(&folder)?;
        let create = format!("create tablespace small location '{}'", folder.display());
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut admin).await?;
        " tablespace small".clone_into(&mut place);
    }
    let create = format!("create database {DATABASE}{place}");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut admin).await?;
    admin.close().await?;
    Ok(url_of(&postgres.url(), DATABASE))
}

async fn pool(url: &str) -> Result<PgPool> {
    PgPoolOptions::new()
        .max_connections(POOL)
        .acquire_timeout(ACQUIRE)
        .connect(url)
        .await
        .context("the shop's database")
}

fn server_address(postgres: &Postgres) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, postgres.port()))
}

fn by_proxy(proxy: &TcpProxy) -> String {
    format!("postgres://postgres@{}/{DATABASE}", proxy.address())
}
