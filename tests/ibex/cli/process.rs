//! A process that keeps running while a test talks to it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A running process and the lines that it writes. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

/// A server whose log is read up to its address, and then no more. Dropping it kills it.
pub(crate) struct Unread {
    child: Child,
    pub(crate) address: String,
    stderr: BufReader<ChildStderr>,
}

impl Unread {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended");
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if let Some(address) = line["address"].as_str() {
                break address.to_owned();
            }
        };
        Self {
            child,
            address,
            stderr,
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The rest of the log, to its end.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Sends a signal by its name.
fn signal(process: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .status()
        .unwrap();
    assert!(sent.success(), "kill -{name}");
}

/// The lines of one output, read as they come so that the process never waits.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The lines up to and with the first that contains `text`.
    #[track_caller]
    pub(crate) fn until(&self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self
                .0
                .recv()
                .unwrap_or_else(|_| panic!("the output ended without {text:?}: {seen:#?}"));
            let last = line.contains(text);
            seen.push(line);
            if last {
                return seen;
            }
        }
    }

    /// Everything that is left, once the process has ended.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.0.iter().collect()
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdout: Lines::of(child.stdout.take().unwrap()),
            stderr: Lines::of(child.stderr.take().unwrap()),
            child,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
