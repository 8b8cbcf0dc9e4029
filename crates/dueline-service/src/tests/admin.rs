//! The admin port over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use dueline_config::Admin;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::Health;
use crate::admin::{AdminError, AdminPort, open};
use crate::connection::{BoundedListener, MAX_CONNECTIONS};

async fn port(health: &Health, stop: &CancellationToken) -> AdminPort {
    let config = Admin { bind: Some("127.0.0.1:0".parse().expect("an address")) };
    let port = open(&config, "test", health.clone(), stop.clone()).await.expect("a free port");
    port.expect("it is on")
}

/// The status line's code and the body.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (code, body.to_owned())
}

#[tokio::test]
async fn the_three_pages_tell_what_they_should() {
    let (health, stop) = (Health::new(), CancellationToken::new());
    health.set("kafka", Err("no broker answers"));
    let port = port(&health, &stop).await;
    assert_ne!(port.address.port(), 0, "the real port is told");
    assert_eq!(get(port.address, "/readyz").await, (503, "kafka: no broker answers\n".to_owned()));
    assert_eq!(get(port.address, "/livez").await.0, 200);
    health.set("kafka", Ok::<(), String>(()));
    assert_eq!(get(port.address, "/readyz").await, (200, "kafka: ok\n".to_owned()));
    let hung = health.watch("scan", Duration::ZERO);
    while health.liveness().ok {
        tokio::task::yield_now().await;
    }
    let (code, body) = get(port.address, "/livez").await;
    assert_eq!(code, 503);
    assert!(body.starts_with("scan: no tick for"), "{body}");
    drop(hung);
    metrics::counter!("dueline_test_total", "queue" => "orders").increment(3);
    metrics::histogram!("dueline_test_seconds").record(0.02);
    let (code, body) = get(port.address, "/metrics").await;
    assert_eq!(code, 200);
    assert!(body.contains("dueline_test_total{queue=\"orders\"} 3"), "{body}");
    assert!(body.contains("dueline_test_seconds_bucket{le=\"0.025\"} 1"), "{body}");
    assert!(body.contains("dueline_build_info{"), "{body}");
    assert_eq!(get(port.address, "/other").await.0, 404);
    stop.cancel();
    let address = port.address;
    port.closed().await;
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn off_is_off_and_a_taken_address_is_named() {
    let stop = CancellationToken::new();
    let off = open(&Admin { bind: None }, "test", Health::new(), stop.clone()).await;
    assert!(off.expect("nothing to fail").is_none());
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = taken.local_addr().expect("bound");
    let result = open(&Admin { bind: Some(address) }, "test", Health::new(), stop).await;
    match result {
        Err(error @ AdminError::Bind { .. }) => {
            assert!(error.to_string().contains(&address.to_string()));
        }
        _ => panic!("the address is taken"),
    }
}

#[tokio::test]
async fn h29_idle_connections_cannot_keep_a_probe_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let listener = BoundedListener::new(listener, Duration::from_millis(300));
    let routes = axum::Router::new().route("/livez", axum::routing::get(|| async { "ok" }));
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let mut idle = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        idle.push(TcpStream::connect(address).await.expect("it listens"));
    }
    let answer = tokio::time::timeout(Duration::from_secs(20), get(address, "/livez")).await;
    assert_eq!(answer.expect("idle connections are closed").0, 200);
    server.abort();
}
