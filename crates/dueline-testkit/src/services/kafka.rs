//! A private Apache Kafka broker in KRaft combined mode.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{START_TRIES, log_file, temp_dir};
use crate::child::{Running, bound_to_us, free_of_us};
use crate::{ports, tail};

const START_TIMEOUT: Duration = Duration::from_secs(90);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The version whose libraries `scripts/lib.sh` fetches; the cache folder is named by it.
const VERSION: &str = "4.1.1";
/// Any 16 bytes in unpadded URL-safe base64 do.
const CLUSTER_ID: &str = "ZHVlbGluZS10ZXN0a2l0MQ";

/// A broker of one node, quick to form groups and without topics that nobody asked for.
const PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=4
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
log.segment.delete.delay.ms=1000
controlled.shutdown.enable=true
";

const LOG4J: &str = "\
Configuration:
  status: WARN
  Appenders:
    Console:
      name: out
      target: SYSTEM_ERR
      PatternLayout:
        pattern: \"%d{ISO8601} %p %c{1} %m%n\"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        ref: out
    Logger:
      - name: kafka.server.KafkaRaftServer
        level: INFO
      - name: org.apache.kafka.server.config
        level: ERROR
";

/// One more listener: clients that come by it are told its own address, so that each client can
/// have a proxy of its own.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// The port on 127.0.0.1 that the broker listens on.
    pub port: u16,
    /// The address that clients which come by this door are told.
    pub advertised: SocketAddr,
}

/// What a caller may want different.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// More lines `name=value` for `server.properties`; later ones win.
    pub properties: Vec<String>,
    /// The address that clients are told, if they are to come through a proxy.
    pub advertised: Option<SocketAddr>,
    /// More listeners.
    pub doors: Vec<Door>,
    /// The JVM's heap, in MiB.
    pub heap_mib: u32,
    /// The JVM's options, instead of that heap and a small garbage collector.
    pub java: Vec<String>,
    /// Whether it is to go on after us: see [`Kafka::leave`].
    pub outlives_us: bool,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            properties: Vec::new(),
            advertised: None,
            doors: Vec::new(),
            heap_mib: 512,
            java: Vec::new(),
            outlives_us: false,
        }
    }
}

/// A running broker, killed and deleted on drop.
#[derive(Debug)]
pub struct Kafka {
    libs: PathBuf,
    options: KafkaOptions,
    port: u16,
    broker: Option<Running>,
    directory: TempDir,
}

impl Kafka {
    /// Formats a data folder and starts a broker on it.
    ///
    /// # Errors
    /// When there is no Java or no Kafka, or it does not answer in time; the error shows its log.
    pub fn start() -> Result<Self> {
        Self::start_with(KafkaOptions::default())
    }

    /// [`Self::start`] with options.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(options: KafkaOptions) -> Result<Self> {
        let libs = libraries()?;
        let mut last_error = None;
        for _ in 0..START_TRIES {
            let directory = temp_dir("kafka")?;
            let ports = ports::free(2)?;
            let mut kafka = Self {
                libs: libs.clone(),
                options: options.clone(),
                port: ports[0],
                broker: None,
                directory,
            };
            match kafka.format(ports[1]).and_then(|()| kafka.start_again()) {
                Ok(()) => return Ok(kafka),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.context("no try to start Kafka was made")?)
    }

    /// `127.0.0.1:port`, for `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The broker's process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.broker.as_ref().map(Running::id)
    }

    /// The broker's log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.directory.path().join("broker.log")
    }

    /// The folder of the libraries.
    #[must_use]
    pub fn libraries(&self) -> &Path {
        &self.libs
    }

    /// Starts the broker on the same data and port after [`Self::stop`] or [`Self::kill`].
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn start_again(&mut self) -> Result<()> {
        let log = log_file(&self.log_path())?;
        let program = Path::new("java");
        let mut command = if self.options.outlives_us {
            free_of_us(program)
        } else {
            bound_to_us(program, "KILL")
        };
        self.java_options(&mut command);
        command.arg("kafka.Kafka").arg(self.properties_path());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.broker = Some(Running::start(command).context("cannot start java")?);
        self.await_ready()
    }

    /// Stops with SIGTERM: the broker closes its logs.
    pub fn stop(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            broker.stop(Signal::TERM, STOP_TIMEOUT);
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            broker.kill();
        }
    }

    /// [`Self::stop`] and [`Self::start_again`].
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        self.start_again()
    }

    /// SIGSTOP: connections stay open, nobody answers.
    pub fn pause(&mut self) {
        if let Some(broker) = &mut self.broker {
            broker.signal(Signal::STOP);
        }
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        if let Some(broker) = &mut self.broker {
            broker.signal(Signal::CONT);
        }
    }

    fn properties_path(&self) -> PathBuf {
        self.directory.path().join("server.properties")
    }

    fn java_options(&self, command: &mut Command) {
        let log4j = self.directory.path().join("log4j2.yaml");
        if self.options.java.is_empty() {
            command.arg(format!("-Xmx{}m", self.options.heap_mib)).arg("-XX:+UseSerialGC");
        }
        command.args(&self.options.java);
        command.arg(format!("-Dlog4j2.configurationFile={}", log4j.display()));
        command.arg("-cp").arg(self.libs.join("*"));
    }

    fn format(&self, controller_port: u16) -> Result<()> {
        let folder = self.directory.path();
        let advertised = match self.options.advertised {
            Some(address) => address.to_string(),
            None => self.bootstrap(),
        };
        let mut properties = PROPERTIES.to_owned();
        let mut listeners =
            format!("PLAINTEXT://{},CONTROLLER://127.0.0.1:{controller_port}", self.bootstrap());
        let mut addresses = format!("PLAINTEXT://{advertised}");
        let mut protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned();
        for (n, door) in self.options.doors.iter().enumerate() {
            write!(listeners, ",DOOR{n}://127.0.0.1:{}", door.port)?;
            write!(addresses, ",DOOR{n}://{}", door.advertised)?;
            write!(protocols, ",DOOR{n}:PLAINTEXT")?;
        }
        writeln!(properties, "listeners={listeners}")?;
        writeln!(properties, "advertised.listeners={addresses}")?;
        writeln!(properties, "listener.security.protocol.map={protocols}")?;
        writeln!(properties, "controller.quorum.voters=1@127.0.0.1:{controller_port}")?;
        writeln!(properties, "log.dirs={}", folder.join("data").display())?;
        for line in &self.options.properties {
            writeln!(properties, "{line}")?;
        }
        fs::write(self.properties_path(), properties)?;
        fs::write(folder.join("log4j2.yaml"), LOG4J)?;
        let mut command = Command::new("java");
        self.java_options(&mut command);
        command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        let output = command.arg(self.properties_path()).output().context(
            "cannot run java: install a Java runtime of version 17 or newer (Debian: \
             default-jre-headless)",
        )?;
        ensure!(
            output.status.success(),
            "Kafka's storage format failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Lets it run on, with its files; returns its process id and folder. It must have been started
    /// with `outlives_us`.
    #[must_use]
    pub fn leave(mut self) -> (Option<u32>, PathBuf) {
        self.directory.disable_cleanup(true);
        let id = self.broker.take().map(Running::leave);
        (id, self.directory.path().to_owned())
    }

    fn await_ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let answered = brokers_in_metadata(self.port).is_ok_and(|count| count > 0);
            if let Some(status) = self.broker.as_mut().and_then(Running::ended) {
                bail!("Kafka ended ({status})\n{}", tail::of(&self.log_path()));
            }
            if answered {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!(
                    "Kafka did not answer within {} s\n{}",
                    START_TIMEOUT.as_secs(),
                    tail::of(&self.log_path())
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Asks for metadata (API 3, version 1, no topics) and returns how many brokers the answer lists.
///
/// A listening port proves nothing: the broker listens before it can serve. Eighteen bytes by hand
/// keep the client library out of the way of whoever only wants a broker.
fn brokers_in_metadata(port: u16) -> Result<i32> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let request: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0];
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&request)?;
    // Length, correlation id, count of brokers.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(i32::from_be_bytes([head[8], head[9], head[10], head[11]]))
}

/// `DUELINE_KAFKA_LIBS`, else the cache folder that `scripts/lib.sh` fills.
fn libraries() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("DUELINE_KAFKA_LIBS") {
        return Ok(given.into());
    }
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = from("DUELINE_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|path| path.join("dueline")))
        .or_else(|| from("HOME").map(|path| path.join(".cache/dueline")))
        .context("none of DUELINE_KAFKA_LIBS, DUELINE_CACHE, XDG_CACHE_HOME and HOME is set")?;
    let libs = cache.join(format!("kafka-{VERSION}"));
    ensure!(
        libs.is_dir(),
        "no Kafka libraries in {}: `./scripts/test` fetches them, or set DUELINE_KAFKA_LIBS to a \
         folder with the jars of Apache Kafka {VERSION}",
        libs.display()
    );
    Ok(libs)
}
