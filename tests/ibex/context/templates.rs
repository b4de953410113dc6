//! The chat templates of the tests: each takes what its family takes and refuses what its family refuses.

use serde_json::{Value, json};

use crate::support::templates::{Template, render};

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn calls(id: &str) -> Value {
    let call = json!({"id": id, "type": "function",
        "function": {"name": "weather", "arguments": "{\"town\": \"<Kiel>\"}"}});
    json!({"role": "assistant", "content": null, "tool_calls": [call]})
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
