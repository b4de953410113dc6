//! The command line, as scripts and people use it: the built binary over a store of its own.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on stops where it is"
)]

mod check_config;
mod crash;
mod demo;
mod import;
mod lifecycle;
mod memory;
pub(crate) mod process;
pub(crate) mod serving;
mod transfer;
mod usage;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a store, and the binary run in it with no other environment.
pub(crate) struct Ibex {
    folder: TempDir,
}

impl Ibex {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The binary, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ibex"));
        command
            .args(args)
            .env_clear()
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Writes a file into the folder.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn run_with(&self, args: &[&str], env: &[(&str, &str)], stdin: &str) -> Output {
        let mut child = self
            .command(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run_with(args, &[], "");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Standard error of a command that must end with `code`.
    #[track_caller]
    fn fails(&self, args: &[&str], code: i32) -> String {
        let output = self.run_with(args, &[], "");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        stderr
    }
}

#[test]
fn init_again_answers_with_the_same_agent_and_a_further_token() {
    let ibex = Ibex::new();
    let (first, second) = (ibex.json(&["init"]), ibex.json(&["init"]));
    assert_eq!(
        (&first["org_id"], &first["agent_id"]),
        (&second["org_id"], &second["agent_id"])
    );
    assert_ne!(first["token"], second["token"]);
    let tokens = ibex.json(&["token", "list"]);
    let status: Vec<&str> = tokens
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["status"].as_str().unwrap())
        .collect();
    assert_eq!(status, ["valid", "valid"]);
    let text = ibex.ok(&["init"]);
    assert!(
        text.contains("ibex serve") && text.contains(first["agent_id"].as_str().unwrap()),
        "{text}"
    );
}

#[test]
fn tokens_are_listed_without_secrets_and_revoked_by_their_text() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    let made = ibex.json(&[
        "token",
        "create",
        "--permission",
        "MemoryRead",
        "--permission",
        "ActForUser",
        "--user",
        "ann",
        "--expires-in",
        "1h",
    ]);
    assert_eq!(
        made["permissions"],
        serde_json::json!(["MemoryRead", "ActForUser"])
    );
    let secret = made["token"].as_str().unwrap();
    assert!(!ibex.ok(&["token", "list", "--json"]).contains(secret));
    ibex.ok(&["token", "revoke", secret]);
    let tokens = ibex.json(&["token", "list"]);
    let row = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["id"] == made["id"])
        .unwrap();
    assert_eq!(row["status"], "revoked");
}

#[test]
fn directives_are_added_promoted_rolled_back_and_revoked() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    let add = |text: &str| ibex.run_with(&["directive", "add", "-"], &[], text);
    assert!(add("Be kind.\n").status.success() && add("Be brief.\n").status.success());
    assert!(
        ibex.fails(&["directive", "show"], 1)
            .contains("no directive in use")
    );
    ibex.ok(&["directive", "promote", "1"]);
    ibex.ok(&["directive", "promote", "2"]);
    assert_eq!(ibex.ok(&["directive", "show"]), "Be brief.\n");
    ibex.ok(&["directive", "rollback"]);
    assert_eq!(ibex.json(&["directive", "show"])["content"], "Be kind.\n");
    let versions = ibex.json(&["directive", "list"]);
    assert_eq!(
        (&versions[0]["version"], &versions[1]["active"]),
        (&2.into(), &true.into())
    );
    assert!(
        ibex.ok(&["directive", "revoke", "1"])
            .contains("version 1 is revoked; no version is in use")
    );
    assert!(
        ibex.fails(&["directive", "promote", "1"], 1)
            .contains("revoked")
    );
    assert!(ibex.json(&["directive", "list"])[1]["revoked_at"].is_string());
    assert_eq!(add(&"x".repeat(32_769)).status.code(), Some(1));
    assert_eq!(add(" \n").status.code(), Some(1));
}

#[test]
fn organisations_and_agents_change_their_status() {
    let ibex = Ibex::new();
    ibex.ok(&["init"]);
    ibex.ok(&["org", "suspend", "default"]);
    assert_eq!(ibex.json(&["org", "list"])[0]["status"], "suspended");
    ibex.ok(&["org", "resume", "default"]);
    ibex.ok(&["agent", "create", "second"]);
    ibex.ok(&["agent", "set-status", "paused", "--agent", "second"]);
    assert_eq!(ibex.json(&["agent", "list"])[1]["status"], "paused");
    assert!(ibex.fails(&["directive", "list"], 2).contains("--agent"));
    assert!(
        ibex.fails(
            &[
                "memory",
                "forget",
                "01890a5d-ac96-774b-bcce-b302099a8057",
                "--agent",
                "second"
            ],
            1
        )
        .contains("no such memory")
    );
}

#[test]
fn a_faulty_configuration_stops_every_command_with_the_same_verdict() {
    let ibex = Ibex::new();
    std::fs::write(
        ibex.folder.path().join("ibex.toml"),
        "[rate_limit]\nrmp = 5\n",
    )
    .unwrap();
    let verdict = ibex.fails(&["check-config"], 1);
    assert!(
        verdict.contains("rate_limit.rmp (ibex.toml:2)")
            && verdict.contains("rate_limit.default_rpm"),
        "{verdict}"
    );
    assert_eq!(ibex.fails(&["init"], 1), verdict);
    let missing = ibex.fails(&["check-config", "--config", "missing.toml"], 1);
    assert!(missing.contains("missing.toml (--config)"), "{missing}");
    let unknown = ibex.run_with(&["check-config"], &[("IBEX_RATE_LIMT", "5")], "");
    assert!(
        String::from_utf8_lossy(&unknown.stderr)
            .contains("IBEX_RATE_LIMT: there is no such setting; did you mean IBEX_RATE_LIMIT__")
    );
}
