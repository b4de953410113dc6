//! A fleet: the shipped profile for replicas, processes that share its engines, and one provider behind all of them.

use std::process::Command;

use ibex::openai::edits::json_inner;
use serde_json::json;

use crate::cli::Ibex;
use crate::cli::process::Running;
use crate::cli::serving::started;
use crate::support::services::{Database, fresh_database, fresh_prefix, redis_url};
use crate::support::{Answer, Client, Upstream};

pub(super) const CHAT: &str = "/v1/chat/completions";

/// Where the engines are.
pub(super) struct Engines {
    pub(super) postgres: String,
    pub(super) redis: String,
}

/// A process, and where it listens.
pub(super) struct Replica {
    pub(super) process: Running,
    pub(super) address: String,
}

/// Replicas over the same engines.
pub(super) struct Fleet {
    pub(super) replicas: Vec<Replica>,
    pub(super) upstream: Upstream,
    /// An all-permissions token of the one agent.
    pub(super) token: String,
    ibex: Ibex,
    env: Vec<(&'static str, String)>,
    _database: Option<Database>,
}

impl Fleet {
    /// `count` replicas over the engines that tests share, with settings of the test's own.
    pub(super) async fn new(count: usize, settings: &[(&'static str, &str)]) -> Self {
        let database = fresh_database();
        let engines = Engines {
            postgres: database.url().to_owned(),
            redis: redis_url().to_owned(),
        };
        let mut fleet = Self::over(&engines, count, settings).await;
        fleet._database = Some(database);
        fleet
    }

    /// The same over engines of the test's own.
    pub(super) async fn over(
        engines: &Engines,
        count: usize,
        settings: &[(&'static str, &str)],
    ) -> Self {
        let upstream = Upstream::echo_ok().await;
        let mut env: Vec<(&'static str, String)> = [
            (
                "IBEX_CONFIG",
                concat!(env!("CARGO_MANIFEST_DIR"), "/config/replicas.toml"),
            ),
            ("IBEX_POSTGRES__URL", &engines.postgres),
            ("IBEX_REDIS__URLS", &engines.redis),
            ("IBEX_REDIS__PREFIX", &fresh_prefix()),
            (
                "IBEX_KEYS__TOKEN_DIGEST",
                "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            ),
            ("IBEX_SERVER__LISTEN", "127.0.0.1:0"),
            ("IBEX_LOG__FORMAT", "json"),
            ("IBEX_RATE_LIMIT__DEFAULT_RPM", "1000000"),
            ("OPENAI_BASE_URL", &upstream.url()),
            ("OPENAI_API_KEY", "sk-upstream-invented"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        env.extend(
            settings
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        let mut fleet = Self {
            replicas: Vec::new(),
            upstream,
            token: String::new(),
            ibex: Ibex::new(),
            env,
            _database: None,
        };
        fleet.ok(&["migrate"]);
        let init: serde_json::Value = serde_json::from_str(&fleet.ok(&["init", "--json"])).unwrap();
        fleet.token = init["token"].as_str().unwrap().to_owned();
        for _ in 0..count {
            let replica = fleet.start();
            fleet.replicas.push(replica);
        }
        fleet
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.ibex.command(args);
        command.envs(self.env.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }

    fn start(&self) -> Replica {
        let (process, address) = started(&mut self.command(&["serve"]));
        Replica { process, address }
    }

    /// Standard output of a command that must succeed, with the replicas' configuration.
    #[track_caller]
    pub(super) fn ok(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Another all-permissions token, made by the command line: its identifier and its text.
    pub(super) fn new_token(&self) -> (String, String) {
        let create = [
            "token",
            "create",
            "--agent",
            "default",
            "--permission",
            "all",
            "--json",
        ];
        let made: serde_json::Value = serde_json::from_str(&self.ok(&create)).unwrap();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("id"), text("token"))
    }

    /// A client of one replica with another token.
    pub(super) fn client_with(&self, replica: usize, token: &str) -> Client {
        Client::new(self.replicas[replica].address.parse().unwrap())
            .header("authorization", &format!("Bearer {token}"))
    }

    /// A client of one replica.
    pub(super) fn client(&self, replica: usize) -> Client {
        self.client_with(replica, &self.token)
    }

    /// Clients of all replicas.
    pub(super) fn clients(&self) -> Vec<Client> {
        (0..self.replicas.len())
            .map(|replica| self.client(replica))
            .collect()
    }

    /// Stores a memory for everybody, and says which it is.
    pub(super) async fn remember(&self, replica: usize, content: &str) -> String {
        let body = json!({"content": content, "category": "factual"});
        let answer = self.client(replica).post("/v1/memories", &body).await;
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// The sum of a replica's lines of one name, without those that have a label.
    pub(super) async fn metric_sum(&self, replica: usize, name: &str, without: &str) -> f64 {
        let text = self.client(replica).get("/metrics").await.body;
        let text = String::from_utf8(text.to_vec()).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && !line.contains(without));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// The value of a replica's line of metrics; 0 when it is not there yet.
    pub(super) async fn metric(&self, replica: usize, line: &str) -> f64 {
        let text = self.client(replica).get("/metrics").await.body;
        let text = String::from_utf8(text.to_vec()).unwrap();
        let value = text
            .lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// A question without any history.
pub(super) fn question(text: &str) -> String {
    format!(
        r#"{{"model":"gpt-4o","messages":[{}]}}"#,
        says("user", text)
    )
}

pub(super) fn says(role: &str, text: &str) -> String {
    format!(r#"{{"role":"{role}","content":"{}"}}"#, json_inner(text))
}

/// Asks until an answer is the wanted one; the test's own limit ends it.
pub(super) async fn until(
    what: &str,
    mut ask: impl AsyncFnMut() -> Answer,
    wanted: impl Fn(&Answer) -> bool,
) -> Answer {
    crate::support::soon(what, async {
        loop {
            let answer = ask().await;
            if wanted(&answer) {
                return answer;
            }
        }
    })
    .await
}

/// Limits so wide that a busy machine meets none of them.
pub(super) const PATIENT: &[(&str, &str)] = &[
    ("IBEX_CONTEXT__DEADLINE_MS", "60000"),
    ("IBEX_CONTEXT__TIMEOUT_MS", "60005"),
    ("IBEX_CONTEXT__DIRECTIVE_TIMEOUT_MS", "60000"),
    ("IBEX_CONTEXT__HOT_TIMEOUT_MS", "60000"),
    ("IBEX_CONTEXT__COLD_TIMEOUT_MS", "60000"),
    ("IBEX_AUTH__TIMEOUT_MS", "60000"),
    ("IBEX_REDIS__TIMEOUT_MS", "5000"),
    ("IBEX_POSTGRES__FENCE_TIMEOUT_MS", "1000"),
];
