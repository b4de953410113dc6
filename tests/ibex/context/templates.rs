//! The chat templates of the tests: each takes what its family takes and refuses what its family refuses. And what a template takes from
//! the client, it takes from us with memory in it, for a model that is configured as its family wants it.

use ibex::config::{Config, Layout, ModelConfig, RecallPlace, SystemRole};
use serde_json::{Value, json};

use crate::support::templates::{Template, render};
use crate::support::{Client, Overrides, TestApp, Upstream, patient};

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn calls(id: &str) -> Value {
    calls_all(&[id])
}

fn calls_all(ids: &[impl AsRef<str>]) -> Value {
    let call = |id: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": "weather", "arguments": "{\"town\": \"<Kiel>\"}"}})
    };
    let calls: Vec<Value> = ids.iter().map(|id| call(id.as_ref())).collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn answers(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn plain() -> Value {
    json!([
        says("user", "one"),
        says("assistant", "two"),
        says("user", "three")
    ])
}

fn tool_loop() -> Value {
    json!([
        says("user", "one"),
        calls("a"),
        answers("a", "rain"),
        answers("b", "wind"),
        calls("c"),
        answers("c", "sun"),
        says("assistant", "two"),
        says("user", "three"),
    ])
}

/// Which of the templates render `messages`.
fn accepted(messages: &Value) -> Vec<Template> {
    let renders = |template: &Template| render(*template, messages, None).is_ok();
    Template::ALL.into_iter().filter(renders).collect()
}

fn prompt(template: Template, messages: &Value) -> String {
    render(template, messages, None).expect("a conversation that fits")
}

fn refusal(template: Template, messages: &Value) -> String {
    render(template, messages, None).expect_err("a conversation that does not fit")
}

#[test]
fn a_plain_conversation_fits_everywhere() {
    assert_eq!(accepted(&plain()), Template::ALL);
    assert_eq!(
        prompt(Template::Qwen, &plain()),
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        prompt(Template::ChatMl, &plain()),
        prompt(Template::Qwen, &plain())
    );
    assert_eq!(
        prompt(Template::Gemma, &plain()),
        "<bos><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>\n<start_of_turn>user\nthree<end_of_turn>\n<start_of_turn>model\n"
    );
    assert_eq!(
        prompt(Template::Mistral, &plain()),
        "<s>[INST] one[/INST] two</s>[INST] three[/INST]"
    );
}

#[test]
fn text_parts_read_as_their_text() {
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": "on"}, {"type": "text", "text": "e"}]}]);
    let string = json!([says("user", "one")]);
    for template in Template::ALL {
        assert_eq!(prompt(template, &parts), prompt(template, &string));
    }
}

#[test]
fn a_system_message_at_the_beginning_fits_all_but_gemma() {
    let messages = json!([
        says("system", "rules"),
        says("user", "one"),
        says("assistant", "two"),
        says("user", "three")
    ]);
    let expected = [Template::Qwen, Template::Mistral, Template::ChatMl];
    assert_eq!(accepted(&messages), expected);
    assert_eq!(
        prompt(Template::Mistral, &messages),
        "<s>[INST] one[/INST] two</s>[INST] rules\n\nthree[/INST]"
    );
    assert!(
        prompt(Template::Qwen, &messages)
            .starts_with("<|im_start|>system\nrules<|im_end|>\n<|im_start|>user\none")
    );
    assert!(refusal(Template::Gemma, &messages).contains("System messages are not supported."));
}

#[test]
fn any_other_place_for_system_text_fits_only_where_anything_goes() {
    let two = json!([
        says("system", "a"),
        says("system", "b"),
        says("user", "one")
    ]);
    let later = json!([
        says("user", "one"),
        says("system", "b"),
        says("assistant", "two"),
        says("user", "three")
    ]);
    let last = json!([says("user", "one"), says("system", "b")]);
    let developer = json!([says("developer", "a"), says("user", "one")]);
    for messages in [two, later, last, developer] {
        assert_eq!(accepted(&messages), [Template::ChatMl], "{messages}");
    }
    let two = json!([
        says("system", "a"),
        says("system", "b"),
        says("user", "one")
    ]);
    assert!(refusal(Template::Qwen, &two).contains("must be the first message"));
}

#[test]
fn turns_must_alternate_where_the_family_says_so() {
    let double = json!([says("user", "one"), says("user", "two")]);
    let answer_first = json!([says("assistant", "one"), says("user", "two")]);
    for messages in [double, answer_first] {
        let lenient = [Template::Qwen, Template::ChatMl];
        assert_eq!(accepted(&messages), lenient, "{messages}");
    }
    let nobody = json!([says("system", "a"), says("assistant", "one")]);
    assert_eq!(accepted(&nobody), [Template::ChatMl]);
}

#[test]
fn a_tool_loop_fits_all_but_gemma() {
    let lenient = [Template::Qwen, Template::Mistral, Template::ChatMl];
    assert_eq!(accepted(&tool_loop()), lenient);
    let open = json!([says("user", "one"), calls("a"), answers("a", "rain")]);
    assert_eq!(accepted(&open), lenient);
    assert_eq!(
        prompt(Template::Qwen, &tool_loop()),
        "<|im_start|>user\none<|im_end|>\n\
         <|im_start|>assistant\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"<Kiel>\"}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nwind\n</tool_response><|im_end|>\n\
         <|im_start|>assistant\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"<Kiel>\"}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n\
         <|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn what_breaks_a_tool_loop_is_refused_where_the_family_says_so() {
    let lenient = [Template::Qwen, Template::ChatMl];
    let uncalled = json!([says("user", "one"), answers("a", "rain")]);
    let behind_an_answer = json!([
        says("user", "one"),
        says("assistant", "two"),
        answers("a", "rain"),
        says("user", "three")
    ]);
    let between = json!([
        says("user", "one"),
        calls("a"),
        says("user", "recalled"),
        answers("a", "rain")
    ]);
    let behind = json!([
        says("user", "one"),
        calls("a"),
        answers("a", "rain"),
        says("user", "recalled")
    ]);
    let unanswered = json!([
        says("user", "one"),
        calls("a"),
        says("assistant", "two"),
        says("user", "three")
    ]);
    for messages in [uncalled, behind_an_answer, between, behind, unanswered] {
        assert_eq!(accepted(&messages), lenient, "{messages}");
    }
}

#[test]
fn tools_are_shown_where_the_family_knows_them() {
    let tools = json!([{"type": "function", "function": {"name": "weather", "description": "<what> it's like"}}]);
    let messages = json!([says("system", "rules"), says("user", "one")]);
    for template in [Template::Qwen, Template::Mistral, Template::ChatMl] {
        let prompt = render(template, &messages, Some(&tools)).expect("a conversation that fits");
        assert!(
            prompt.contains("<what> it's like"),
            "{template:?}: {prompt}"
        );
        assert!(prompt.contains("rules"), "{template:?}: {prompt}");
    }
    let plain = json!([says("user", "one")]);
    let with = render(Template::Gemma, &plain, Some(&tools)).expect("a conversation that fits");
    assert_eq!(with, prompt(Template::Gemma, &plain));
}

/// A model as a user would configure it, with the template that it has.
#[derive(Debug, Clone, Copy)]
struct Fit {
    model: &'static str,
    template: Template,
    /// Nothing for a model that the configuration does not know.
    profile: Option<(SystemRole, RecallPlace)>,
}

const fn fit(
    model: &'static str,
    template: Template,
    system_role: SystemRole,
    recall: RecallPlace,
) -> Fit {
    Fit {
        model,
        template,
        profile: Some((system_role, recall)),
    }
}

const CONFIGURED: [Fit; 6] = [
    fit(
        "qwen",
        Template::Qwen,
        SystemRole::Single,
        RecallPlace::Inline,
    ),
    fit(
        "gemma",
        Template::Gemma,
        SystemRole::None,
        RecallPlace::Inline,
    ),
    fit(
        "mistral",
        Template::Mistral,
        SystemRole::Single,
        RecallPlace::Inline,
    ),
    // Without a system message of ours there is nothing that the template moves from turn to turn.
    fit(
        "mistral-kept",
        Template::Mistral,
        SystemRole::None,
        RecallPlace::Inline,
    ),
    fit(
        "chatml",
        Template::ChatMl,
        SystemRole::Multi,
        RecallPlace::Inline,
    ),
    fit(
        "chatml-apart",
        Template::ChatMl,
        SystemRole::Multi,
        RecallPlace::Separate,
    ),
];

const UNKNOWN: [Fit; 3] = [
    unknown("some-qwen", Template::Qwen),
    unknown("some-mistral", Template::Mistral),
    unknown("some-chatml", Template::ChatMl),
];

const fn unknown(model: &'static str, template: Template) -> Fit {
    Fit {
        model,
        template,
        profile: None,
    }
}

impl Fit {
    fn config(self) -> Option<ModelConfig> {
        let (system_role, recall) = self.profile?;
        Some(ModelConfig {
            pattern: self.model.to_owned(),
            provider: None,
            upstream_model: None,
            context_window: Some(128_000),
            max_output_tokens: None,
            tokenizer: None,
            system_role: Some(system_role),
            recall: Some(recall),
        })
    }

    /// Whether the template reads our prefix in another place each turn: this family's reads all system text with the last user message,
    /// so that nothing that is sent can keep its prompts alike.
    fn moves_the_prefix(self) -> bool {
        let single = self
            .profile
            .is_none_or(|(role, _)| role == SystemRole::Single);
        self.template == Template::Mistral && single
    }
}

const MEMORY: &str = "The spare key hangs behind the blue door.";
const QUESTION: &str = "Where is the spare key?";
const OPENING_MEMORY: &str = "Ada calls her boat Marigold.";
const DIRECTIVE: &str = "Answer in one sentence.";
const TURNS: usize = 3;

/// The client's own system text: in each of the ways that some template takes, and once in the middle as well.
const SYSTEMS: usize = 6;

fn leading(variant: usize) -> Vec<Value> {
    match variant {
        0 => vec![],
        1 => vec![says("system", "Help in the house.")],
        2 => vec![
            json!({"role": "system", "content": [{"type": "text", "text": "Help in the "}, {"type": "text", "text": "garden."}]}),
        ],
        3 => vec![says("system", "Be kind."), says("system", "Be brief.")],
        4 => vec![says("developer", "Be exact.")],
        _ => vec![says("system", "Be calm.")],
    }
}

/// A conversation of three turns, in the second of which the user's message is an array.
#[derive(Debug, Clone, Copy)]
struct Talk {
    system: usize,
    tools: bool,
    /// The turn that asks for what the memory says.
    asks: usize,
}

impl Talk {
    fn all() -> impl Iterator<Item = Self> {
        (0..SYSTEMS).flat_map(|system| {
            [false, true].into_iter().flat_map(move |tools| {
                (0..TURNS).map(move |asks| Self {
                    system,
                    tools,
                    asks,
                })
            })
        })
    }

    fn tools(self) -> Option<Value> {
        self.tools.then(
            || json!([{"type": "function", "function": {"name": "weather", "parameters": {}}}]),
        )
    }

    /// Its requests with their turns, each going on from the one before.
    fn requests(self) -> Vec<(usize, Value)> {
        let mut messages = leading(self.system);
        let mut requests = Vec::new();
        for turn in 0..TURNS {
            if self.system == SYSTEMS - 1 && turn == 1 {
                messages.push(says("system", "It is late."));
            }
            let question = if turn == self.asks {
                QUESTION.to_owned()
            } else {
                format!("Say something nice, number {turn}.")
            };
            messages.push(if turn == 1 {
                json!({"role": "user", "content": [{"type": "text", "text": question}]})
            } else {
                says("user", &question)
            });
            requests.push((turn, json!(messages)));
            if self.tools {
                let ids = ["a", "b", "c"].map(|id| format!("{id}{turn}"));
                for round in [&ids[..2], &ids[2..]] {
                    messages.push(calls_all(round));
                    messages.extend(round.iter().map(|id| answers(id, &format!("rain {id}"))));
                    requests.push((turn, json!(messages)));
                }
            }
            messages.push(says("assistant", &format!("Nice thing, number {turn}.")));
        }
        requests
    }

    /// The prompts that the client's messages make without us; nothing when the template refuses them anyway.
    fn alone(self, template: Template) -> Option<Vec<String>> {
        let tools = self.tools();
        let requests = self.requests();
        let prompts = requests
            .iter()
            .map(|(_, messages)| render(template, messages, tools.as_ref()));
        prompts.collect::<Result<_, _>>().ok()
    }
}

/// What stands in the prefix.
#[derive(Debug, Clone, Copy)]
struct Prefix {
    /// The mode of the directive, when there is one.
    directive: Option<&'static str>,
    snapshot: bool,
}

struct Service {
    app: TestApp,
    upstream: Upstream,
    layout: Layout,
    prefix: Prefix,
}

impl Service {
    async fn start(layout: Layout, prefix: Prefix) -> Self {
        let upstream = Upstream::echo_ok().await;
        let edit = |config: &mut Config| {
            patient(config);
            config.context.layout = layout;
            config.context.snapshot_tokens *= u32::from(prefix.snapshot);
            // Room for the one that is pinned: the memory that is asked for is to be recalled.
            config.context.snapshot_items = 1;
            config.models = CONFIGURED.into_iter().filter_map(Fit::config).collect();
        };
        let app = TestApp::with(&upstream.url(), edit, Overrides::default()).await;
        let this = Self {
            app,
            upstream,
            layout,
            prefix,
        };
        if let Some(mode) = prefix.directive {
            let directive = json!({"content": DIRECTIVE, "mode": mode, "promote": true});
            created(&this.app.client(), "/v1/directives", &directive).await;
        }
        this
    }

    /// Plays the conversations that fit without us, and tells how many there were.
    async fn play(&self, fit: Fit) -> usize {
        let mut played = 0;
        for talk in Talk::all() {
            if let Some(alone) = talk.alone(fit.template) {
                let user = format!("{}-{played}", fit.model);
                let client = self.app.client().header("x-ibex-user-id", &user);
                let sent = self.prompts(&client, fit, talk).await;
                self.holds(fit, talk, &alone, &sent);
                played += 1;
            }
        }
        played
    }

    /// The prompts of what the provider was sent.
    async fn prompts(&self, client: &Client, fit: Fit, talk: Talk) -> Vec<String> {
        if self.prefix.snapshot {
            let pinned = json!({"content": OPENING_MEMORY, "pinned": true});
            created(client, "/v1/memories", &pinned).await;
        }
        let (mut prompts, mut learnt) = (Vec::new(), false);
        for (turn, messages) in talk.requests() {
            if turn == talk.asks && !learnt {
                created(client, "/v1/memories", &json!({ "content": MEMORY })).await;
                learnt = true;
            }
            let mut body = json!({"model": fit.model, "messages": messages});
            if let Some(tools) = talk.tools() {
                body["tools"] = tools;
            }
            let answer = client.post("/v1/chat/completions", &body).await;
            assert_eq!(answer.status.as_u16(), 200, "{:?}", answer.body);
            assert_eq!(answer.header("x-ibex-context-degradation"), "L0");
            let sent = self.upstream.last().request.json();
            let prompt = render(fit.template, &sent["messages"], sent.get("tools"));
            prompts.push(prompt.unwrap_or_else(|refusal| {
                panic!("{fit:?}, {talk:?}, {:?}: {refusal}\n{sent:#}", self.prefix)
            }));
        }
        prompts
    }

    fn holds(&self, fit: Fit, talk: Talk, alone: &[String], sent: &[String]) {
        for ((turn, messages), prompt) in talk.requests().iter().zip(sent) {
            let told = |what: &str| {
                format!(
                    "{what}: {fit:?}, {talk:?}, {:?}, turn {turn}\n{prompt}",
                    self.prefix
                )
            };
            // Each once: neither lost nor given twice.
            let count = |text: &str| prompt.matches(text).count();
            // What one layout attached to a turn stays there; the other attaches anew, to what is asked now.
            let carries = match self.layout {
                Layout::Stable => *turn >= talk.asks,
                Layout::Assembled => *turn == talk.asks,
            };
            if carries {
                assert_eq!(count(MEMORY), 1, "{}", told("the memory"));
            }
            let opened = usize::from(self.prefix.snapshot);
            assert_eq!(count(OPENING_MEMORY), opened, "{}", told("the snapshot"));
            let directed = usize::from(self.prefix.directive.is_some());
            assert_eq!(count(DIRECTIVE), directed, "{}", told("the directive"));
            for text in texts(messages) {
                assert_eq!(count(&text), 1, "{}", told(&text));
            }
        }
        if self.layout == Layout::Assembled || fit.moves_the_prefix() {
            return;
        }
        let grows = |prompts: &[String], step: usize| prompts[step].starts_with(&prompts[step - 1]);
        for step in 1..sent.len() {
            // Where the template keeps the client's own prompts alike, ours are: even to where the answer begins.
            if grows(alone, step) {
                let (then, now) = (&sent[step - 1], &sent[step]);
                assert!(grows(sent, step), "{fit:?}, {talk:?}: {then}\n===\n{now}");
            } else {
                assert_eq!(fit.template, Template::Mistral, "no other moves anything");
            }
        }
    }
}

/// Everything that is said.
fn texts(messages: &Value) -> Vec<String> {
    let parts = |content: &Value| {
        let parts = content.as_array().into_iter().flatten();
        let texts = parts.map(|part| part["text"].clone());
        texts.chain([content.clone()]).collect::<Vec<_>>()
    };
    let contents = messages.as_array().unwrap().iter();
    contents
        .flat_map(|message| parts(&message["content"]))
        .filter_map(|text| text.as_str().map(|text| text.trim().to_owned()))
        .collect()
}

async fn created(client: &Client, path: &str, body: &Value) {
    let answer = client.post(path, body).await;
    assert_eq!(answer.status.as_u16(), 201, "{:?}", answer.body);
}

/// Conversations that a template takes when nobody adds anything.
const fn fitting(template: Template) -> usize {
    match template {
        // Without system text and without tools.
        Template::Gemma => TURNS,
        // At most one system message.
        Template::Qwen | Template::Mistral => 3 * 2 * TURNS,
        Template::ChatMl => SYSTEMS * 2 * TURNS,
    }
}

const BARE: Prefix = Prefix {
    directive: None,
    snapshot: false,
};
const FULL: Prefix = Prefix {
    directive: Some("system_first"),
    snapshot: true,
};

#[tokio::test]
async fn what_fits_a_template_fits_it_with_memory_and_keeps_its_prompt_cache() {
    for prefix in [BARE, FULL] {
        let service = Service::start(Layout::Stable, prefix).await;
        for fit in CONFIGURED {
            assert_eq!(service.play(fit).await, fitting(fit.template), "{fit:?}");
        }
    }
}

#[tokio::test]
async fn what_fits_a_template_fits_it_with_an_assembled_block() {
    for directive in [
        None,
        Some("system_first"),
        Some("system_append"),
        Some("user_prepend"),
    ] {
        let prefix = Prefix {
            directive,
            snapshot: false,
        };
        let service = Service::start(Layout::Assembled, prefix).await;
        for fit in CONFIGURED {
            assert_eq!(service.play(fit).await, fitting(fit.template), "{fit:?}");
        }
    }
}

#[tokio::test]
async fn a_model_that_nobody_configured_fits_what_takes_one_system_message() {
    for layout in [Layout::Stable, Layout::Assembled] {
        let prefix = Prefix {
            snapshot: layout == Layout::Stable,
            ..FULL
        };
        let service = Service::start(layout, prefix).await;
        for fit in UNKNOWN {
            assert_eq!(service.play(fit).await, fitting(fit.template), "{fit:?}");
        }
    }
}

#[tokio::test]
async fn a_template_that_moves_system_text_keeps_its_prompt_cache_when_ours_is_none() {
    let service = Service::start(Layout::Stable, FULL).await;
    let talk = Talk {
        system: 0,
        tools: false,
        asks: 1,
    };
    for fit in CONFIGURED {
        let client = service.app.client().header("x-ibex-user-id", fit.model);
        let sent = service.prompts(&client, fit, talk).await;
        let kept = sent.windows(2).all(|pair| pair[1].starts_with(&pair[0]));
        assert_eq!(kept, !fit.moves_the_prefix(), "{fit:?}");
    }
}
