"""The official OpenAI SDK for Python: what it sends arrives, what comes back it can read."""

import asyncio
import json
import os

import openai
import pytest

# A one-pixel PNG.
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def ask(text):
    return [{"role": "user", "content": text}]


def test_chat_answers_with_content_and_usage(client):
    answer = client.chat.completions.create(model="scripted-chat", messages=ask("Good morning"))
    assert answer.choices[0].message.content == "You said: Good morning"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == 18


def test_async_client_gets_the_same_answer(facts):
    async def once():
        async with openai.AsyncOpenAI(base_url=facts.base_url, api_key=facts.token, max_retries=0, default_headers={"X-IBEX-Agent-ID": facts.agent}) as client:
            return await client.chat.completions.create(model="scripted-chat", messages=ask("Good morning"))

    assert asyncio.run(once()).choices[0].message.content == "You said: Good morning"


def test_stored_memory_and_directive_reach_the_provider(client, facts, received):
    client.chat.completions.create(model="scripted-chat", messages=ask(facts.question))
    sent = received()["messages"]
    assert facts.question in sent[-1]["content"]
    injected = json.dumps(sent[:-1], ensure_ascii=False)
    assert facts.memory in injected
    assert facts.directive in injected


def test_unrelated_question_recalls_no_memory(client, facts, received):
    client.chat.completions.create(model="scripted-chat", messages=ask("Name three prime numbers above one hundred."))
    sent = json.dumps(received()["messages"], ensure_ascii=False)
    assert facts.directive in sent
    # What the session opens with is there whatever is asked.
    assert "<ibex_recall" not in sent and sent.count(facts.memory) == 1


def test_skip_memory_header_keeps_the_memory_out(make_client, facts, received):
    answer = make_client(X_IBEX_Skip_Memory="1").chat.completions.with_raw_response.create(model="scripted-chat", messages=ask(facts.question))
    assert answer.headers["X-IBEX-Context-Status"] == "skipped"
    assert "X-IBEX-Memories-Injected" not in answer.headers
    assert facts.memory not in json.dumps(received()["messages"], ensure_ascii=False)


def test_provider_gets_its_own_key_and_nothing_of_the_client(client, facts, provider):
    client.chat.completions.create(model="scripted-chat", messages=ask("Good morning"))
    (request,) = provider()
    assert request["headers"]["authorization"] == f"Bearer {facts.upstream_key}"
    assert facts.token not in json.dumps(request)
    assert not [name for name in request["headers"] if name.startswith("x-ibex-")]


@pytest.mark.parametrize("stream", [False, True])
def test_headers_tell_of_request_context_and_rate(client, facts, stream):
    answer = client.chat.completions.with_raw_response.create(model="scripted-chat", messages=ask(facts.question), stream=stream)
    headers = answer.headers
    assert headers["X-Request-ID"]
    assert headers["X-IBEX-Context-Status"] == "full"
    assert headers["X-IBEX-Context-Degradation"] == "L0"
    assert headers["X-IBEX-Context-Fallback"] == "false"
    assert int(headers["X-IBEX-Memories-Injected"]) == 1
    assert int(headers["X-IBEX-Context-Tokens"]) > 0
    assert 0 <= int(headers["X-RateLimit-Remaining"]) < int(headers["X-RateLimit-Limit"])
    assert int(headers["X-RateLimit-Reset"]) > 1_700_000_000
    assert int(headers["x-ratelimit-limit-requests"]) == int(headers["X-RateLimit-Limit"])
    parsed = answer.parse()
    text = "".join(chunk.choices[0].delta.content or "" for chunk in parsed) if stream else parsed.choices[0].message.content
    assert text.strip() == f"You said: {facts.question}"


def test_request_id_of_the_client_is_kept(make_client):
    answer = make_client(X_Request_ID="req-harlow-0001").chat.completions.create(model="scripted-chat", messages=ask("Good morning"))
    assert answer._request_id == "req-harlow-0001"


def test_stream_arrives_in_pieces_and_ends_with_the_usage_asked_for(client):
    chunks = list(client.chat.completions.create(
        model="scripted-chat", messages=ask("one two three"), stream=True, stream_options={"include_usage": True},
    ))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices).strip() == "You said: one two three"
    assert len(chunks) > 5
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 18


def test_stream_shows_no_usage_event_that_nobody_asked_for(client):
    chunks = list(client.chat.completions.create(model="scripted-chat", messages=ask("one two three"), stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_tool_call_and_its_result_make_the_round_trip(client, bus_tool, provider):
    messages = ask("When does the next bus leave Harlow Mill?")
    first = client.chat.completions.create(model="scripted-tools", messages=messages, tools=[bus_tool], tool_choice="auto")
    assert first.choices[0].finish_reason == "tool_calls"
    (call,) = first.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"stop": "Harlow Mill"}

    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "at 14:05"}]
    second = client.chat.completions.create(model="scripted-tools", messages=messages, tools=[bus_tool])
    assert second.choices[0].message.content == "The tool says: at 14:05"

    asked, answered = (json.loads(request["body"]) for request in provider())
    assert asked["tools"] == answered["tools"] == [bus_tool]
    assert asked["tool_choice"] == "auto"
    assert [message["role"] for message in answered["messages"][-3:]] == ["user", "assistant", "tool"]
    assert answered["messages"][-2]["tool_calls"] == [call.model_dump()]
    assert answered["messages"][-1] == messages[-1]


def test_streamed_tool_call_keeps_its_pieces_in_order(client, bus_tool):
    stream = client.chat.completions.create(model="scripted-tools", messages=ask("Next bus?"), tools=[bus_tool], stream=True)
    calls = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].id == "call_bus_1"
    assert json.loads("".join(call.function.arguments for call in calls)) == {"stop": "Harlow Mill"}


def test_image_parts_arrive_as_they_were_sent(client, received):
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}]
    answer = client.chat.completions.create(model="scripted-chat", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == "You said: What is this?"
    assert received()["messages"][-1] == {"role": "user", "content": parts}


def test_fields_this_service_does_not_know_arrive_as_they_were_sent(client, received):
    client.chat.completions.create(model="scripted-chat", messages=ask("Good morning"), seed=7, extra_body={"vendor_option": {"depth": [1, 2.50]}})
    assert received()["seed"] == 7
    assert received()["vendor_option"] == {"depth": [1, 2.5]}


def test_wrong_key_is_an_authentication_error(make_client, provider):
    with pytest.raises(openai.AuthenticationError) as refused:
        make_client(token="ibex_pat_0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3_wrong").chat.completions.create(model="scripted-chat", messages=ask("hi"))
    check(refused.value, 401, "INVALID_TOKEN", "authentication_error")
    assert provider() == []


def test_foreign_agent_is_a_permission_error(make_client, provider):
    with pytest.raises(openai.PermissionDeniedError) as refused:
        make_client(agent="0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3").chat.completions.create(model="scripted-chat", messages=ask("hi"))
    check(refused.value, 403, "AGENT_NOT_AUTHORIZED", "permission_error")
    assert provider() == []


def test_orphaned_tool_message_is_a_bad_request(client, provider):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="scripted-chat", messages=[*ask("hi"), {"role": "tool", "tool_call_id": "call_none", "content": "x"}])
    assert refused.value.status_code == 400
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param.startswith("messages[1]")
    assert refused.value.request_id == refused.value.response.headers["X-Request-ID"]
    assert provider() == []


def test_invalid_field_is_a_bad_request_that_names_it(client, provider):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="scripted-chat", messages=[])
    check(refused.value, 400, "VALIDATION_ERROR", "invalid_request_error")
    assert refused.value.param == "messages"
    assert refused.value.body["field_errors"][0]["field"] == "messages"
    assert provider() == []


def test_rate_limit_is_its_own_error_with_whole_seconds_to_wait(make_client, provider):
    client = make_client(os.environ["SDK_LIMITED_TOKEN"], os.environ["SDK_LIMITED_AGENT"], os.environ["SDK_LIMITED_BASE_URL"])
    answered = 0
    with pytest.raises(openai.RateLimitError) as refused:
        for _ in range(4):
            client.chat.completions.create(model="scripted-chat", messages=ask("hi"))
            answered += 1
    check(refused.value, 429, "RATE_LIMITED", "rate_limit_exceeded")
    assert 1 <= int(refused.value.response.headers["Retry-After"]) <= 60
    assert refused.value.response.headers["X-RateLimit-Remaining"] == "0"
    assert answered == len(provider()) == 2


def test_unknown_model_of_the_provider_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="scripted-missing", messages=ask("hi"))
    check(refused.value, 404, "model_not_found", "invalid_request_error")
    assert refused.value.param == "model"


def test_rate_limit_of_the_provider_keeps_its_words_and_wait(client):
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="scripted-limited", messages=ask("hi"))
    check(refused.value, 429, "rate_limit_exceeded", "requests")
    assert refused.value.response.headers["Retry-After"] == "7"


def test_key_refused_by_the_provider_is_our_fault_and_stays_secret(client, facts):
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="scripted-key-refused", messages=ask("hi"))
    check(refused.value, 503, "PROVIDER_UNAVAILABLE", "server_error")
    assert facts.upstream_key not in refused.value.response.text


@pytest.mark.parametrize("model", ["scripted-error-event", "scripted-cut"])
def test_failure_inside_a_stream_raises_after_what_came_before(client, model):
    heard = []
    with pytest.raises(openai.APIError) as failed:
        for chunk in client.chat.completions.create(model=model, messages=ask("one two three"), stream=True):
            heard.append(chunk.choices[0].delta.content)
    assert heard == ["", "You "]
    assert failed.value.code
    assert failed.value.type == "server_error"


def test_models_are_listed_and_retrieved(client):
    assert {"scripted-chat", "scripted-embedding"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("scripted-chat").owned_by == "harlow-labs"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("scripted-nowhere")


def test_embeddings_come_back_as_numbers(client, received):
    answer = client.embeddings.create(model="scripted-embedding", input=["one", "two"])
    assert [list(item.embedding) for item in answer.data] == [[0.5, -0.25, 1.0]] * 2
    assert received()["encoding_format"] == "base64"


def test_plain_completions_pass_through(client, received):
    assert client.completions.create(model="scripted-chat", prompt="Once").choices[0].text == "After that: Once"
    assert received()["prompt"] == "Once"


def check(error, status, code, kind):
    """What every typed error of the SDK carries."""
    assert error.status_code == status
    assert error.code == code
    assert error.type == kind
    assert error.request_id
    assert error.request_id == error.response.headers["X-Request-ID"]
