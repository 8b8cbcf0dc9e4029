//! What the hot path costs, counted and not timed: round trips, statements, rows looked up, HOT updates.
//! A change that makes it dearer is caught here on any machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use dueline_core::Micros;
use dueline_store::effect::Batch;
use dueline_store::relay::{self, Cursor};
use dueline_store::{PoolSettings, Sessions};
use dueline_tests::testkit::wait;
use dueline_tests::{PATIENCE, QUEUE};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::effect::{Lab, ROLE, is_done, settings};
use super::relay_ground::{Ground, LEASE};

/// What clients said to the server.
#[derive(Debug, Default)]
struct Said {
    /// Times that somebody waited for an answer.
    trips: AtomicUsize,
    /// Statements run.
    statements: AtomicUsize,
    /// Statements parsed anew.
    parses: AtomicUsize,
}

impl Said {
    fn take(&self) -> (usize, usize, usize) {
        let take = |count: &AtomicUsize| count.swap(0, Ordering::SeqCst);
        (take(&self.trips), take(&self.statements), take(&self.parses))
    }

    /// One message of the wire protocol, by its type.
    fn count(&self, kind: u8) {
        let counts: &[&AtomicUsize] = match kind {
            b'Q' => &[&self.trips, &self.statements],
            b'S' => &[&self.trips],
            b'E' => &[&self.statements],
            b'P' => &[&self.parses],
            _ => &[],
        };
        for count in counts {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Reads along between clients and the server; answers the port. It ends with the test's runtime.
async fn listen_in(upstream: (String, u16), said: Arc<Said>) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (upstream, said) = (upstream.clone(), Arc::clone(&said));
            tokio::spawn(async move { pass(client, upstream, &said).await });
        }
    });
    Ok(port)
}

async fn pass(client: TcpStream, upstream: (String, u16), said: &Said) -> Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = async { tokio::io::copy(&mut from_server, &mut to_client).await.map(drop) };
    let questions = async {
        // The first message has no type.
        let mut length = [0; 4];
        from_client.read_exact(&mut length).await?;
        let mut message = length.to_vec();
        loop {
            let size = u32::from_be_bytes(length) as usize;
            let start = message.len();
            message.resize(start + size - 4, 0);
            from_client.read_exact(&mut message[start..]).await?;
            to_server.write_all(&message).await?;
            let kind = from_client.read_u8().await?;
            said.count(kind);
            from_client.read_exact(&mut length).await?;
            message = [&[kind], &length[..]].concat();
        }
        #[allow(unreachable_code)]
        std::io::Result::Ok(())
    };
    tokio::select! {
        result = answers => result?,
        result = questions => result?,
    }
    Ok(())
}

/// The sessions of a relay or consumer, and what they say.
async fn sessions(settings: PoolSettings) -> Result<(Sessions, Arc<Said>)> {
    let said = Arc::new(Said::default());
    let (front, rest) = settings.url.split_once('@').context("a user")?;
    let (address, database) = rest.split_once('/').context("a database")?;
    let (host, port) = address.split_once(':').context("a port")?;
    let port = listen_in((host.to_owned(), port.parse()?), Arc::clone(&said)).await?;
    let database = database.split('?').next().unwrap_or_default();
    let url = format!("{front}@127.0.0.1:{port}/{database}?sslmode=disable");
    let pool = dueline_store::connect_for_batches(&PoolSettings { url, ..settings })?;
    Ok((Sessions::new(pool), said))
}

/// The table's counters: rows that indexes led to, updates, HOT ones.
async fn counters(lab: &Lab, table: &'static str) -> Result<(i64, i64, i64)> {
    Ok(sqlx::query_as(
        "select pg_stat_get_tuples_fetched($1::regclass), pg_stat_get_tuples_updated($1::regclass),
                pg_stat_get_tuples_hot_updated($1::regclass)",
    )
    .bind(table)
    .fetch_one(&lab.pool)
    .await?)
}

#[tokio::test]
async fn s07_a_batch_of_a_thousand_is_one_round_trip_and_few_rows_looked_up() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3_000).await?;
    let mut tasks = lab.publish(1..=3_000).await?;
    let handler = lab.close_order().await?;
    let (sessions, said) = sessions(settings(&lab.url())).await?;
    let batch = Batch { queue: QUEUE, role: ROLE, handler: (&handler).into(), repeated: 0 };
    // The first two prepare; plans and connections are warm then.
    let (first, rest) = tasks.split_at_mut(1_000);
    let (second, third) = rest.split_at_mut(1_000);
    batch.run_in(&sessions, first).await.expect("no trouble");
    batch.run_in(&sessions, second).await.expect("no trouble");
    flush(&sessions).await?;
    let settled = wait::until("the counters of 2,000 settles", PATIENCE, async || {
        Ok(counters(&lab, "dueline.task").await?.1 >= 2_000)
    });
    settled.await?;
    let (task_before, due_before) =
        (counters(&lab, "dueline.task").await?, counters(&lab, "dueline.due").await?);
    said.take();
    let fates = batch.run_in(&sessions, third).await.expect("no trouble");
    assert_eq!(fates.values().filter(|fate| is_done(**fate)).count(), 1_000);
    assert_eq!(said.take(), (1, 1, 0), "round trips, statements, parsed anew");
    flush(&sessions).await?;
    let settled = wait::until("the counters of 3,000 settles", PATIENCE, async || {
        Ok(counters(&lab, "dueline.task").await?.1 >= 3_000)
    });
    settled.await?;
    let task = counters(&lab, "dueline.task").await?;
    let due = counters(&lab, "dueline.due").await?;
    // Admitted and locked; the settle goes by the row's place. The alarm is looked up to be deleted.
    assert!(task.0 - task_before.0 <= 2_000, "{} task rows", task.0 - task_before.0);
    assert!(due.0 - due_before.0 <= 1_000, "{} due rows", due.0 - due_before.0);
    assert_eq!(task.1 - task_before.1, 1_000, "one update a task");
    assert!(task.2 - task_before.2 >= 800, "{} of them HOT", task.2 - task_before.2);
    Ok(())
}

/// Has the session tell its counters now.
async fn flush(sessions: &Sessions) -> Result<()> {
    let flush = "select pg_stat_force_next_flush()";
    sessions
        .run(async |db| {
            sqlx::query(flush).execute(db).await?;
            Ok(())
        })
        .await
        .context("a flush of the counters")
}

#[tokio::test]
async fn s07_a_claim_with_its_bodies_is_one_round_trip() -> Result<()> {
    let ground = Ground::new().await?;
    for lane in &ground.lanes {
        ground.lay(*lane, 100, -1_000).await?;
    }
    let (sessions, said) = sessions(settings(&ground.url())).await?;
    let cursors: Vec<Cursor> = ground.beginning(&ground.lanes);
    let claim = async |budget| {
        let (epoch, never) = (ground.epoch, Micros(i64::MAX));
        let cursors = &cursors;
        sessions
            .run(async move |db| relay::claim(db, epoch, cursors, budget, LEASE, never).await)
            .await
    };
    claim(80).await?;
    said.take();
    let round = claim(400).await?;
    assert_eq!(said.take(), (1, 1, 0), "round trips, statements, parsed anew");
    assert_eq!((round.claimed.len(), round.bodies.len()), (400, 400));
    let bodies: std::collections::HashSet<i64> = round.bodies.iter().map(|body| body.id).collect();
    assert!(round.claimed.iter().all(|claimed| bodies.contains(&claimed.id)));
    Ok(())
}
