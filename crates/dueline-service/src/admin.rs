//! The admin port: `/livez`, `/readyz` and `/metrics` over plain HTTP, on loopback by default.

use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::connection::BoundedListener;
use crate::health::{Health, Verdict};

/// How long one connection may last; a scraper opens the next.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(60);
/// How often recorded histogram samples are folded into their buckets when nobody scrapes: they would
/// pile up otherwise.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Bucket bounds of every histogram whose name ends with `_seconds`.
const SECONDS: [f64; 22] = [
    0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0, 86_400.0,
];
/// Bucket bounds of every histogram whose name ends with `_size`: rows, messages.
const SIZES: [f64; 10] = [1.0, 3.0, 10.0, 30.0, 100.0, 200.0, 400.0, 600.0, 800.0, 1_000.0];

/// Why there is no admin port.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("admin.bind: cannot listen on {address}: {source}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The metrics recorder cannot be installed.
    #[error("the metrics recorder cannot be installed: {0}")]
    Metrics(String),
}

/// A running admin port.
pub struct AdminPort {
    /// The real address, also when port 0 was asked for.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl AdminPort {
    /// Waits until the port is closed, which the cancelled token makes it do.
    pub async fn closed(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the admin port ended badly");
        }
    }
}

/// Opens the admin port and starts collecting metrics; `None` when it is configured `off`, and then
/// nothing is collected either. `process` is the service's name (`relay`, `consumer`).
///
/// Open it early: it says "not ready" while the process still connects. It closes when `stop` is
/// cancelled, so give it a token that is cancelled after the drain, not the one that starts it.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn open(
    config: &dueline_config::Admin,
    process: &'static str,
    health: Health,
    stop: CancellationToken,
) -> Result<Option<AdminPort>, AdminError> {
    let Some(address) = config.bind else { return Ok(None) };
    let bind_error = |source| AdminError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;
    let metrics = recorder()?;
    metrics::gauge!(
        "dueline_build_info", "process" => process, "version" => env!("CARGO_PKG_VERSION")
    )
    .set(1.0);
    let listener = BoundedListener::new(listener, MAX_CONNECTION_AGE);
    let task = tokio::spawn(run(listener, routes(health, metrics.clone()), metrics, stop));
    tracing::info!(%address, process, "admin port: /livez /readyz /metrics");
    Ok(Some(AdminPort { address, task }))
}

async fn run(
    listener: BoundedListener,
    routes: Router,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let mut upkeep = tokio::time::interval(UPKEEP_INTERVAL);
    let mut server = std::pin::pin!(axum::serve(listener, routes).into_future());
    loop {
        tokio::select! {
            // Open connections end with the process: nothing here is worth waiting for.
            () = stop.cancelled() => return,
            _ = upkeep.tick() => metrics.run_upkeep(),
            _ = &mut server => return,
        }
    }
}

/// The process's one recorder.
fn recorder() -> Result<PrometheusHandle, AdminError> {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = RECORDER.get() {
        return Ok(handle.clone());
    }
    let failed = |e: metrics_exporter_prometheus::BuildError| AdminError::Metrics(e.to_string());
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(|b| b.set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &SIZES))
        .map_err(failed)?
        .install_recorder()
        .map_err(failed)?;
    Ok(RECORDER.get_or_init(|| handle).clone())
}

fn routes(health: Health, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/livez", get(|State(health): State<Health>| async move { health.liveness() }))
        .route("/readyz", get(|State(health): State<Health>| async move { health.readiness() }))
        .route("/metrics", get(move || async move { metrics_page(&metrics) }))
        .with_state(health)
}

/// 200 when all is well, else 503; one line a part.
impl IntoResponse for Verdict {
    fn into_response(self) -> Response {
        let status = if self.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.text).into_response()
    }
}

fn metrics_page(metrics: &PrometheusHandle) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render()).into_response()
}
