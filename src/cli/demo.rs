//! `ibex demo`: the real proxy over sample data and a provider that echoes. It reads no configuration and leaves nothing behind.

use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::app::App;
use crate::auth::{Permissions, Principal, operator_principal};
use crate::config::{AuthStyle, Config, ProviderConfig, Variables};
use crate::ids::{AgentId, OrgId};
use crate::memory::write::write;
use crate::request::context::recall;
use crate::server::{Drained, Listening, listen};
use crate::store::{DirectiveMode, NewDirective};
use crate::telemetry;

use super::args::DemoArgs;
use super::run::{minted, open, patient};
use super::{CliError, Desk, Out, TokenRequest, agent, echo, org, serve, token};

/// The directive of the sample agent.
const DIRECTIVE: &str = "You are the assistant of the Larkspur bookshop. Answer in at most three sentences, and say so when you do not know.";

/// What the sample agent remembers; its people are invented.
const MEMORIES: [(&str, &str); 10] = [
    (
        "preference",
        "Mara Lindqvist drinks jasmine tea in the morning and never coffee.",
    ),
    (
        "factual",
        "Mara Lindqvist runs the Larkspur bookshop on Quarry Lane.",
    ),
    (
        "factual",
        "The Larkspur bookshop closes at seven on weekdays and at four on Saturdays.",
    ),
    (
        "procedural",
        "Rare books are shipped only after Tobin Asher has photographed the binding.",
    ),
    (
        "preference",
        "Tobin Asher wants invoices as PDF, not as a spreadsheet.",
    ),
    (
        "behavioral",
        "Ilse Okafor usually orders three poetry books at the start of each month.",
    ),
    (
        "episodic",
        "Ilse Okafor returned a damaged atlas in March and got a full refund.",
    ),
    (
        "factual",
        "The storage room's alarm is serviced by the Pellworth company every June.",
    ),
    (
        "procedural",
        "To restart the label printer, hold its green button for five seconds.",
    ),
    (
        "episodic",
        "The spring reading with Yusuf Brandt was moved to the garden because of the crowd.",
    ),
];

/// The questions of the printed commands, and the memory that one of them adds.
const QUESTION: &str = "Which tea does Mara Lindqvist drink in the morning?";
const STREAMED_QUESTION: &str = "When does the Larkspur bookshop close on Saturdays?";
const NEW_MEMORY: &str = "Nils Varga collects antique maps of the Baltic coast.";
const NEW_QUESTION: &str = "What does Nils Varga collect?";

/// A model of the catalogue, so that the budget is a real one.
const MODEL: &str = "gpt-4o-mini";

/// A folder that is gone when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("ibex-demo-{}", uuid::Uuid::new_v4()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(
                "the demonstration's folder {} stays: {error}",
                self.0.display()
            );
        }
    }
}

/// Runs the demonstration until SIGINT or SIGTERM.
///
/// # Errors
/// When the address is taken, or no temporary folder can be used.
pub(super) async fn run(
    args: DemoArgs,
    env: &Variables,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(e.to_string());
    let scratch = Scratch::new()?;
    let provider = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(|e| failed(&e))?;
    let config = config(
        &args,
        env,
        &scratch,
        provider.local_addr().map_err(|e| failed(&e))?,
    );
    let _logging = telemetry::init(&config.log).map_err(|e| failed(&e))?;
    let signals = serve::Signals::take()?;
    let opened = open(config).await?;
    let app = opened.app()?;
    let listening = bind(&app).await?;
    let stop = signals.stop(&app);
    let (told, counter) = (app.tasks.clone(), app.counter.clone());
    app.tasks.spawn(async move {
        let stopping = async move { told.stopping().await };
        if let Err(error) = echo::serve(provider, counter, stopping).await {
            tracing::error!("the echo provider ended: {error}");
        }
    });
    let seeded = seed(&app).await?;
    app.start();
    let url = base_url(listening.address());
    let ready = Ready {
        url: &url,
        console: url.replace("/v1", "/console"),
        org_id: seeded.org,
        agent_id: seeded.agent,
        token: &seeded.token,
    };
    out.one(&ready, ready.text())?;
    if listening.serve(stop).await != Drained::Whole {
        tracing::warn!("open requests were cut");
    }
    serve::close(&app, &opened).await?;
    if !out.is_json() {
        out.line("\nStopped; the sample data is gone.")?;
    }
    Ok(())
}

fn config(args: &DemoArgs, env: &Variables, scratch: &Scratch, provider: SocketAddr) -> Config {
    let mut config = Config::default();
    config.server.listen = args.listen;
    // Whoever presses Ctrl-C wants the prompt back.
    config.server.drain_timeout_ms = 2_000;
    config.store.path = scratch.0.join("ibex.db");
    let level = env.get("IBEX_LOG__LEVEL").or(env.get("IBEX_LOG_LEVEL"));
    // The text on the terminal is the point, so requests are not logged unless somebody asks for it.
    config.log.level = level.map_or("warn", String::as_str).to_owned();
    // On a busy machine the sample memories shall show all the same.
    patient(&mut config.context);
    // A snapshot would show all of the few sample memories whatever is asked, and hide that the right one is found.
    config.context.snapshot_tokens = 0;
    let echo = ProviderConfig {
        base_url: format!("http://{provider}/v1"),
        api_key: None,
        auth: AuthStyle::None,
        default: true,
    };
    config.providers.insert("echo".to_owned(), echo);
    config
}

async fn bind(app: &App) -> Result<Listening, CliError> {
    let wanted = app.config.server.listen;
    listen(app.clone()).await.map_err(|e| {
        CliError::Failed(format!(
            "cannot listen on {wanted} ({}); choose another address with --listen, such as --listen 127.0.0.1:8090",
            e.reason()
        ))
    })
}

/// Where a client on this machine finds the proxy.
fn base_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("http://{}/v1", SocketAddr::new(ip, address.port()))
}

struct Seeded {
    org: OrgId,
    agent: AgentId,
    token: String,
}

/// Creates the sample organisation, agent, token, directive and memories.
async fn seed(app: &App) -> Result<Seeded, CliError> {
    let mint = |request: TokenRequest| minted(&app.token_key, request);
    let desk = Desk {
        store: &*app.store,
        clock: &*app.clock,
        mint: &mint,
        directive_fits: &|_| Ok(()),
    };
    let org = org::create(&desk, "demo".to_owned()).await?.id;
    let agent = agent::create(&desk, org, "bookshop".to_owned()).await?.id;
    let token = token::create(
        &desk,
        TokenRequest {
            org,
            agent: Some(agent),
            user: None,
            name: "demo".to_owned(),
            permissions: Permissions::all(),
            created_at: app.clock.now(),
            expires_at: None,
        },
    )
    .await?;
    let directive = NewDirective {
        org,
        agent,
        content: DIRECTIVE.into(),
        mode: DirectiveMode::SystemFirst,
        created_at: app.clock.now(),
    };
    let added = app.store.add_directive(directive).await?;
    app.store
        .promote_directive(org, agent, added.version)
        .await?;
    let who = operator_principal(&*app.store, org, agent, None)
        .await
        .map_err(|e| CliError::Failed(e.to_string()))?;
    remember(app, &who).await?;
    Ok(Seeded {
        org,
        agent,
        token: token.secret,
    })
}

async fn remember(app: &App, who: &Principal) -> Result<(), CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(format!("the sample memories: {e}"));
    let objects: Vec<Box<RawValue>> = MEMORIES
        .iter()
        .map(|(category, content)| {
            serde_json::value::to_raw_value(&json!({"category": category, "content": content}))
                .map_err(|e| failed(&e))
        })
        .collect::<Result<_, _>>()?;
    let objects: Vec<&RawValue> = objects.iter().map(AsRef::as_ref).collect();
    for outcome in write(app, who, &objects).await {
        outcome.map_err(|e| failed(&e))?;
    }
    // The first search loads the partition; nobody's first request shall wait for that.
    let asked = recall::Asked {
        text: QUESTION,
        limit: 1,
        ..recall::Asked::default()
    };
    recall::search(app, who, &asked)
        .await
        .map_err(|e| failed(&e.message))?;
    Ok(())
}

/// A chat request, its members in the order in which people write them.
#[derive(Serialize)]
struct Chat<'a> {
    model: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    messages: [Message<'a>; 1],
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

impl<'a> Chat<'a> {
    fn asking(question: &'a str) -> Self {
        let message = Message {
            role: "user",
            content: question,
        };
        Self {
            model: MODEL,
            stream: false,
            messages: [message],
        }
    }

    fn streamed(self) -> Self {
        Self {
            stream: true,
            ..self
        }
    }
}

/// What the demonstration prints.
#[derive(Serialize)]
struct Ready<'a> {
    url: &'a str,
    console: String,
    org_id: OrgId,
    agent_id: AgentId,
    token: &'a str,
}

impl Ready<'_> {
    fn text(&self) -> String {
        format!(
            "IBEX runs at {url}\n\
             with a sample agent, its directive, {count} memories and a provider that answers with what it was sent.\n\
             Everything is gone when you press Ctrl-C.\n\n\
             base URL  {url}\n\
             token     {token}\n\
             console   {console} (sign in with the token)\n\n\
             Paste these into another terminal.\n\n\
             1. Ask something; the echo shows the directive and the memory that were added:\n\n{ask}\n\n\
             2. The same as a stream:\n\n{stream}\n\n\
             3. See what would be sent, and why, without a provider:\n\n{preview}\n\n\
             4. Remember something new; afterwards ask as in 1: {new_question}\n\n{store}\n",
            url = self.url,
            console = self.console,
            count = MEMORIES.len(),
            new_question = NEW_QUESTION,
            token = self.token,
            ask = self.curl("-s", "/chat/completions", &Chat::asking(QUESTION)),
            stream = self.curl(
                "-sN",
                "/chat/completions",
                &Chat::asking(STREAMED_QUESTION).streamed()
            ),
            preview = self.curl("-s", "/context/preview", &Chat::asking(QUESTION)),
            store = self.curl("-s", "/memories", &json!({"content": NEW_MEMORY})),
        )
    }

    fn curl(&self, flags: &str, path: &str, body: &impl Serialize) -> String {
        // Inside single quotes a shell leaves everything alone but the quote itself.
        let body = serde_json::to_string(body)
            .unwrap_or_default()
            .replace('\'', "\\u0027");
        format!(
            "curl {flags} {}{path} \\\n  -H 'Authorization: Bearer {}' \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'",
            self.url, self.token
        )
    }
}
