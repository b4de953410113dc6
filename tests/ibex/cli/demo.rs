//! `ibex demo`: what it prints works when it is pasted.

use http::StatusCode;
use serde_json::{Value, json};

use super::Ibex;
use super::process::Running;
use crate::support::{Answer, Client};

const DIRECTIVE: &str = "You are the assistant of the Larkspur bookshop.";

/// One printed command, as a shell would take it apart.
#[derive(Debug)]
struct Curl {
    address: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Value,
}

impl Curl {
    fn parse(text: &str) -> Self {
        // Between single quotes is one word, elsewhere white space parts them.
        let mut words: Vec<String> = Vec::new();
        for (i, piece) in text.replace("\\\n", " ").split('\'').enumerate() {
            if i % 2 == 1 {
                words.push(piece.to_owned());
            } else {
                words.extend(piece.split_whitespace().map(str::to_owned));
            }
        }
        let after = |flag: &str| -> Vec<&String> {
            let pairs = words.iter().zip(words.iter().skip(1));
            pairs
                .filter(|(word, _)| *word == flag)
                .map(|(_, value)| value)
                .collect()
        };
        let url = words.iter().find_map(|w| w.strip_prefix("http://"));
        let (address, path) = url.unwrap().split_once('/').unwrap();
        let header = |text: &&String| {
            let (name, value) = text.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        };
        Self {
            address: address.to_owned(),
            path: format!("/{path}"),
            headers: after("-H").iter().map(header).collect(),
            body: serde_json::from_str(after("-d")[0]).unwrap(),
        }
    }

    fn client(&self) -> Client {
        let client = Client::new(self.address.parse().unwrap());
        self.headers
            .iter()
            .fold(client, |client, (name, value)| client.header(name, value))
    }

    async fn run(&self) -> Answer {
        self.client().post(&self.path, &self.body).await
    }
}

fn start(ibex: &Ibex, listen: &str, more: &[&str]) -> Running {
    let args = [&["demo", "--listen", listen], more].concat();
    let scratch = ibex.folder.path().join("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let mut command = ibex.command(&args);
    // Settings of a real installation are no business of the demonstration.
    command
        .env("TMPDIR", scratch)
        .env("IBEX_STORE__PATH", "/nowhere/ibex.db")
        .env("IBEX_CONTEXT__ENABLED", "nonsense");
    Running::start(&mut command)
}

fn printed(demo: &Running) -> Vec<Curl> {
    let text = demo.stdout.until("Remember something new").join("\n")
        + "\n"
        + &demo.stdout.until("-d '").join("\n");
    let mut curls: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("curl ") {
            curls.push(line.to_owned());
        } else if let (true, Some(curl)) = (line.starts_with("  -"), curls.last_mut()) {
            *curl = format!("{curl}\n{line}");
        }
    }
    curls.iter().map(|text| Curl::parse(text)).collect()
}

#[tokio::test]
async fn the_printed_commands_work_and_nothing_is_left_behind() {
    let ibex = Ibex::new();
    let mut demo = start(&ibex, "127.0.0.1:0", &[]);
    let curls = printed(&demo);
    let [ask, stream, preview, store] = curls.as_slice() else {
        panic!("{curls:#?}")
    };

    let asked = ask.run().await;
    assert_eq!(asked.status, StatusCode::OK);
    assert_eq!(asked.header("x-ibex-memories-injected"), "1");
    let said = asked.json()["choices"][0]["message"]["content"].clone();
    let said = said.as_str().unwrap();
    assert!(
        said.contains(DIRECTIVE) && said.contains("Mara Lindqvist drinks jasmine tea"),
        "{said}"
    );

    let streamed = String::from_utf8(stream.run().await.body.to_vec()).unwrap();
    let pieces: String = streamed
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .filter_map(|event| {
            event["choices"][0]["delta"]["content"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    assert!(
        pieces.contains("at four on Saturdays") && streamed.ends_with("data: [DONE]\n\n"),
        "{streamed}"
    );

    let previewed = preview.run().await.json();
    assert_eq!(previewed["plan"]["status"], "full");
    assert_eq!(
        previewed["messages"].as_array().unwrap().last(),
        Some(
            &json!({"role": "user", "content": "Which tea does Mara Lindqvist drink in the morning?"})
        )
    );

    let stored = store.run().await;
    assert_eq!(stored.status, StatusCode::CREATED);
    let question = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "What does Nils Varga collect?"}]});
    let asked = ask.client().post(&ask.path, &question).await;
    assert!(
        String::from_utf8_lossy(&asked.body).contains("antique maps"),
        "{asked:?}"
    );

    demo.signal("INT");
    assert!(demo.wait().success());
    assert_eq!(demo.stderr.rest(), Vec::<String>::new());
    let left: Vec<_> = std::fs::read_dir(ibex.folder.path().join("scratch"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_echo_serves_the_other_operations_too() {
    let ibex = Ibex::new();
    let mut demo = start(&ibex, "127.0.0.1:0", &["--json"]);
    let ready: Value = serde_json::from_str(&demo.stdout.until("token")[0]).unwrap();
    let address = ready["url"].as_str().unwrap();
    let address = address
        .trim_start_matches("http://")
        .trim_end_matches("/v1");
    let token = format!("Bearer {}", ready["token"].as_str().unwrap());
    let client = Client::new(address.parse().unwrap()).header("authorization", &token);

    let models = client.get("/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "echo");
    let both = json!({"model": "m", "input": ["one", "two"]});
    let first = client.post("/v1/embeddings", &both).await.json();
    let again = client.post("/v1/embeddings", &both).await.json();
    assert_eq!(first, again);
    assert_ne!(first["data"][0]["embedding"], first["data"][1]["embedding"]);
    let completed = client
        .post(
            "/v1/completions",
            &json!({"model": "m", "prompt": "Dear reader"}),
        )
        .await
        .json();
    assert!(
        completed["choices"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Dear reader")
    );
    let asked = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [{"role": "user", "content": "Hello"}]});
    let streamed = client.post("/v1/chat/completions", &asked).await;
    assert!(
        String::from_utf8_lossy(&streamed.body).contains("\"total_tokens\""),
        "{streamed:?}"
    );
    demo.signal("TERM");
    assert!(demo.wait().success());
}

#[test]
fn a_taken_address_is_named_with_the_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ibex = Ibex::new();
    let text = ibex.fails(&["demo", "--listen", &address], 1);
    assert!(
        text.contains(&address) && text.contains("--listen"),
        "{text}"
    );
}
