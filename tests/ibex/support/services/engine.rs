//! An engine of one test's own, which it may stop, pause, fill and start again.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use super::{aside, script, services};

/// The largest file that a full PostgreSQL has, in bytes. No segment of its log is larger.
const FULL: u32 = 1 << 20;

/// A PostgreSQL of its own, with pgvector. Its user is no superuser.
#[derive(Debug)]
pub(crate) struct OwnPostgres(Engine);

/// A Redis of its own. It keeps nothing over a restart.
#[derive(Debug)]
pub(crate) struct OwnRedis(Engine);

/// A process that listens on the same port of loopback as long as this lives, whether it runs or not. It lives no longer than the
/// thread that started it.
#[derive(Debug)]
pub(crate) struct Engine {
    kind: &'static str,
    folder: PathBuf,
    port: u16,
    url: String,
    process: Mutex<Option<Child>>,
}

impl std::ops::Deref for OwnPostgres {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl std::ops::Deref for OwnRedis {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        &self.0
    }
}

impl OwnPostgres {
    /// Starts one; it takes connections when this returns.
    pub(crate) fn start() -> Self {
        Self(Engine::start("postgres"))
    }

    /// From now on it is as on a full disk: no file of it grows beyond 1 MiB, and who writes more than that gets an error.
    pub(crate) fn fill(&self) {
        self.limit_files(&FULL.to_string());
    }

    /// There is space again.
    pub(crate) fn make_space(&self) {
        self.limit_files("unlimited");
    }

    fn limit_files(&self, size: &str) {
        for process in family(self.id()) {
            // Only the limit in force: without rights, nobody could ever raise the other one again.
            let limit = format!("--fsize={size}:");
            let process = format!("--pid={process}");
            services(&["as", "prlimit", &limit, &process]);
        }
    }
}

impl OwnRedis {
    /// Starts one; it takes connections when this returns.
    pub(crate) fn start() -> Self {
        Self(Engine::start("redis"))
    }

    /// From now on it has no memory left: it answers reads, and refuses what would add to it.
    pub(crate) fn fill(&self) {
        self.limit_memory(1);
    }

    /// There is memory again.
    pub(crate) fn make_space(&self) {
        self.limit_memory(0);
    }

    fn limit_memory(&self, bytes: u64) {
        aside(|| async {
            let client = redis::Client::open(self.url()).expect("a URL");
            let mut connection = client
                .get_multiplexed_async_connection()
                .await
                .expect("a connection");
            redis::cmd("CONFIG")
                .arg(&["SET", "maxmemory"])
                .arg(bytes)
                .exec_async(&mut connection)
                .await
                .expect("the limit is set");
        });
    }
}

impl Engine {
    fn start(kind: &'static str) -> Self {
        let told = services(&["fresh", kind]);
        let [folder, port, url] = told.lines().collect::<Vec<_>>()[..] else {
            panic!("services.sh fresh told {told}");
        };
        let engine = Self {
            kind,
            folder: folder.into(),
            port: port.parse().expect("a port"),
            url: url.to_owned(),
            process: Mutex::new(None),
        };
        engine.restart();
        engine
    }

    /// Where it is, with user and password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its port, also while it does not run.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once, as a crash would: connections break, and new ones are refused.
    pub(crate) fn stop(&self) {
        let ended = self.process().take();
        if let Some(mut process) = ended {
            let processes = family(process.id());
            // A paused process would take notice only when it is resumed.
            let signal = if self.kind == "postgres" {
                "QUIT"
            } else {
                "KILL"
            };
            send(signal, &[process.id()]);
            send("CONT", &processes);
            process.wait().expect("its end");
        }
    }

    /// Starts it again on the same port, with what it keeps; it takes connections when this returns.
    pub(crate) fn restart(&self) {
        self.stop();
        let mut process = script()
            .args(["run", self.kind])
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tests/tools/services.sh can be run");
        let log = process.stdout.take().expect("its log");
        *self.process() = Some(process);
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let mut before = Vec::new();
        let is_ready = |line: &String| line.to_lowercase().contains("ready to accept connections");
        let ready = lines.by_ref().any(|line| {
            before.push(line);
            before.last().is_some_and(is_ready)
        });
        assert!(ready, "{} does not start: {before:#?}", self.kind);
        // Somebody has to read on, or it waits one day for a reader.
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// Stops it without ending it: connections stay, and new ones are even taken, but nothing is answered.
    pub(crate) fn pause(&self) {
        let first = self.id();
        // The first one first, so that no process is added meanwhile.
        send("STOP", &[first]);
        send("STOP", &family(first));
    }

    /// Lets it go on from where it was paused.
    pub(crate) fn resume(&self) {
        send("CONT", &family(self.id()));
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().expect("nobody panicked")
    }

    fn id(&self) -> u32 {
        let process = self.process();
        process.as_ref().expect("the engine runs").id()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Sends a signal by its name. A process that has ended meanwhile is none of our business.
fn send(signal: &str, processes: &[u32]) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{signal}"));
    kill.args(processes.iter().map(u32::to_string));
    kill.stderr(Stdio::null()).status().expect("kill");
}

/// A process and its children.
fn family(parent: u32) -> Vec<u32> {
    let stat = |id: u32| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
    // The name of a program stands in parentheses and may hold anything, even more of them.
    let parent_of = |id: u32| -> Option<u32> {
        let stat = stat(id)?;
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.split(' ').nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = processes.filter(|id| parent_of(*id) == Some(parent));
    std::iter::once(parent).chain(children).collect()
}
