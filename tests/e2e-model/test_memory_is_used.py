"""A real model, asked through the proxy, answers from memory; without the memory it cannot.

The model is tiny and its wording varies, so the tests look for the one word that only the memory holds. Each person's memory is
stored under that person as the agent's user, which makes a third question possible: what does somebody else get to hear?
"""

import os
from dataclasses import dataclass

import openai
import pytest
from ibex_process import Ibex
from local_model import API_KEY, MODEL, LocalModel


@dataclass(frozen=True)
class Person:
    """An end user of the agent, with a memory and a question that only the memory answers."""

    user: str
    memory: str
    question: str
    word: str


ROWAN = Person("rowan", "The user's dog is called Biscuit.", "What is my dog called?", "Biscuit")
INES = Person("ines", "The user's sister is called Philippa.", "What is my sister called?", "Philippa")
PEOPLE = pytest.mark.parametrize("person", [ROWAN, INES], ids=lambda person: person.user)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The proxy in front of the model, with both memories stored."""
    scratch = tmp_path_factory.mktemp("e2e-model")
    with LocalModel(os.environ["E2E_MODEL_PYTHON"], scratch) as model:
        with Ibex(os.environ["E2E_BINARY"], scratch / "ibex", model.base_url, API_KEY) as running:
            # Without any instruction the model's own template supplies one that makes it ramble.
            running.direct("You are a helpful assistant.")
            for person in (ROWAN, INES):
                status, answer = running.call("POST", "/v1/memories", {"content": person.memory}, {"X-IBEX-User-ID": person.user})
                assert status == 201, answer
            yield running


@pytest.fixture(scope="module")
def ask(proxy):
    """Asks as a user; returns the response headers and the text, and prints both sides."""
    client = openai.OpenAI(
        base_url=proxy.base_url, api_key=proxy.token, max_retries=0, timeout=120, default_headers={"X-IBEX-Agent-ID": proxy.agent},
    )

    def once(question, user, stream=False, **headers):
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL, stream=stream, temperature=0, max_tokens=40,
            messages=[{"role": "user", "content": question}],
            extra_headers={"X-IBEX-User-ID": user, **headers},
        )
        parsed = answer.parse()
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in parsed if chunk.choices)
        else:
            text = parsed.choices[0].message.content
        status = answer.headers["X-IBEX-Context-Status"]
        count = answer.headers.get("X-IBEX-Memories-Injected", "-")
        print(f"\n  {user}: {question}\n  model ({status}, memories: {count}): {' '.join(text.split())}")
        return answer.headers, text

    yield once
    client.close()


@STREAMED
@PEOPLE
def test_answer_holds_what_only_the_memory_knows(ask, person, stream):
    headers, text = ask(person.question, person.user, stream)
    assert person.word.lower() in text.lower()
    assert headers["X-IBEX-Memories-Injected"] == "1"


@STREAMED
@PEOPLE
def test_without_memory_the_model_does_not_know(ask, person, stream):
    headers, text = ask(person.question, person.user, stream, **{"X-IBEX-Skip-Memory": "1"})
    assert person.word.lower() not in text.lower()
    assert headers["X-IBEX-Context-Status"] == "skipped"


@pytest.mark.parametrize("owner, other", [(ROWAN, INES), (INES, ROWAN)], ids=["rowan's", "ines's"])
def test_memory_of_one_user_stays_unknown_to_another(ask, owner, other):
    _, text = ask(owner.question, other.user)
    assert owner.word.lower() not in text.lower()
