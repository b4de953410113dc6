//! Everything that can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::ids::UserId;
use crate::memory::Category;

use super::{agent, directive, init, memory, org, token, transfer};

/// An OpenAI-compatible reverse proxy that gives agents memory.
#[derive(Debug, Parser)]
#[command(name = "ibex", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// Configuration file [default: IBEX_CONFIG, else ./ibex.toml if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    Serve,
    /// Run the proxy with sample data and a provider that echoes what it was sent; needs no configuration
    Demo(DemoArgs),
    /// Create an organisation, an agent and a token, or another token when they exist
    Init(init::InitArgs),
    /// Say everything that is wrong with the configuration
    CheckConfig,
    /// Ask a running server whether it is alive, as a container's health check does
    Health(HealthArgs),
    /// Organisations
    #[command(subcommand)]
    Org(org::OrgCommand),
    /// Agents
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Access tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// The instructions of an agent, in versions
    #[command(subcommand)]
    Directive(directive::DirectiveCommand),
    /// Memories
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// Write the whole store into a file, to move it to another engine
    Export(transfer::ExportArgs),
    /// Fill an empty store from an exported file
    Import(transfer::ImportArgs),
    /// Bring the database of [postgres] up to date; the embedded store needs no call
    Migrate,
    /// Show what a request would be sent with, without sending it
    Preview(PreviewArgs),
}

/// Which agent a command is about.
#[derive(Debug, Clone, Args)]
pub struct AgentChoice {
    /// Organisation, by name or identifier [default: the only one]
    #[arg(long, value_name = "ORG")]
    pub org: Option<String>,
    /// Agent, by name or identifier [default: the only one]
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
}

/// Which agent's memories a command is about, and of which of its users.
#[derive(Debug, Clone, Args)]
pub struct ScopeChoice {
    /// The agent.
    #[command(flatten)]
    pub choice: AgentChoice,
    /// User whose memories are meant, besides the agent-wide ones
    #[arg(long, value_name = "USER")]
    pub user: Option<UserId>,
}

/// `ibex demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: std::net::SocketAddr,
}

/// `ibex health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Server to ask [default: where server.listen says]
    #[arg(long, value_name = "URL")]
    pub url: Option<http::Uri>,
    /// Ask whether it is ready for requests, too
    #[arg(long)]
    pub ready: bool,
}

/// `ibex memory add`.
#[derive(Debug, Args)]
pub struct MemoryAddArgs {
    /// What to remember
    pub content: String,
    /// Whose memory it is.
    #[command(flatten)]
    pub scope: ScopeChoice,
    /// Kind of memory; repeatable [default: factual]
    #[arg(long = "label", value_name = "LABEL")]
    pub labels: Vec<Category>,
    /// How sure it is, 0 to 1
    #[arg(long, value_name = "NUMBER")]
    pub confidence: Option<f32>,
    /// Keep it at hand whatever its score
    #[arg(long)]
    pub pinned: bool,
}

/// `ibex memory search`.
#[derive(Debug, Args)]
pub struct MemorySearchArgs {
    /// What to look for
    pub query: String,
    /// Whose memories are searched.
    #[command(flatten)]
    pub scope: ScopeChoice,
    /// Most results
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
}

/// `ibex memory import`.
#[derive(Debug, Args)]
pub struct MemoryImportArgs {
    /// File with one JSON object a line, as POST /v1/memories takes them
    #[arg(value_name = "FILE.jsonl")]
    pub file: PathBuf,
    /// Whose memories they become.
    #[command(flatten)]
    pub scope: ScopeChoice,
    /// Go on where an earlier, broken-off import of the same file stopped
    #[arg(long, value_name = "YES_OR_NO", default_value_t = true, action = clap::ArgAction::Set)]
    pub resume: bool,
    /// Memories written at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    pub batch: usize,
}

/// `ibex preview`.
#[derive(Debug, Args)]
pub struct PreviewArgs {
    /// The user message; or a whole chat request with --file
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub message: Option<String>,
    /// File with a chat request, - for standard input
    #[arg(long, value_name = "FILE.json")]
    pub file: Option<PathBuf>,
    /// Model the message is meant for
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "gpt-4o-mini",
        conflicts_with = "file"
    )]
    pub model: String,
    /// Session the request belongs to
    #[arg(long, value_name = "SESSION")]
    pub session: Option<crate::ids::SessionId>,
    /// Whose memories are used.
    #[command(flatten)]
    pub scope: ScopeChoice,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, Command};
    use crate::cli::memory::MemoryCommand;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_stand_anywhere() {
        for args in [
            &["ibex", "--json", "--config", "a", "init"][..],
            &["ibex", "init", "--config", "a", "--json"],
        ] {
            let cli = Cli::try_parse_from(args).unwrap();
            assert!(cli.json && cli.config.is_some() && matches!(cli.command, Command::Init(_)));
        }
    }

    #[test]
    fn an_import_resumes_unless_told_otherwise() {
        let parse = |args: &[&str]| {
            let cli =
                Cli::try_parse_from([&["ibex", "memory", "import", "f"], args].concat()).unwrap();
            let Command::Memory(MemoryCommand::Import(args)) = cli.command else {
                panic!("not an import")
            };
            args
        };
        assert!(parse(&[]).resume);
        assert!(!parse(&["--resume", "false"]).resume);
        assert!(Cli::try_parse_from(["ibex", "memory", "import", "f", "--batch", "0"]).is_err());
    }

    #[test]
    fn ids_are_checked_while_parsing() {
        let error = Cli::try_parse_from(["ibex", "memory", "forget", "nonsense"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("not a UUID"), "{error}");
    }
}
