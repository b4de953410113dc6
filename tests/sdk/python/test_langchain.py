"""LangChain's chat model, which speaks through the official SDK with settings of its own."""

import json

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI


@pytest.fixture
def model(facts):
    return ChatOpenAI(
        model="scripted-chat", base_url=facts.base_url, api_key=facts.token, max_retries=0, timeout=30,
        default_headers={"X-IBEX-Agent-ID": facts.agent},
    )


def test_invoke_answers_and_carries_the_memory(model, facts, received):
    answer = model.invoke([SystemMessage("Be kind."), HumanMessage(facts.question)])
    assert answer.content == f"You said: {facts.question}"
    assert answer.usage_metadata["total_tokens"] == 18
    sent = received()["messages"]
    instructions = json.dumps(sent[:-1], ensure_ascii=False)
    assert facts.memory in instructions
    assert "Be kind." in instructions
    assert sent[-1] == {"role": "user", "content": facts.question}


def test_stream_answers_in_pieces(model):
    pieces = [chunk.content for chunk in model.stream("one two three")]
    assert "".join(pieces).strip() == "You said: one two three"
    assert len(pieces) > 5


def test_bound_tool_is_called(model, bus_tool):
    answer = model.bind_tools([bus_tool]).invoke("Next bus?", model="scripted-tools")
    assert answer.tool_calls[0]["args"] == {"stop": "Harlow Mill"}
