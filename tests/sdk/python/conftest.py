"""What the tests of the Python clients share. The harness sets the environment."""

import json
import os
import urllib.request
from types import SimpleNamespace

import openai
import pytest

BUS_TOOL = {
    "type": "function",
    "function": {
        "name": "next_bus",
        "description": "When the next bus leaves a stop",
        "parameters": {"type": "object", "properties": {"stop": {"type": "string"}}, "required": ["stop"]},
    },
}


@pytest.fixture(scope="session")
def facts():
    """What the harness prepared: the stored memory, the directive, a question that the memory answers, keys."""
    names = ("TOKEN", "AGENT", "BASE_URL", "UPSTREAM_KEY", "DIRECTIVE", "MEMORY", "QUESTION")
    return SimpleNamespace(**{name.lower(): os.environ[f"SDK_{name}"] for name in names})


@pytest.fixture
def make_client(facts):
    """Makes clients that never retry, so that one call is one request."""
    opened = []

    def make(token=facts.token, agent=facts.agent, base_url=facts.base_url, **headers):
        opened.append(openai.OpenAI(
            base_url=base_url, api_key=token, max_retries=0, timeout=30,
            default_headers={"X-IBEX-Agent-ID": agent, **{name.replace("_", "-"): value for name, value in headers.items()}},
        ))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def client(make_client):
    """The official client, as a user would set it up."""
    return make_client()


@pytest.fixture
def provider():
    """What the provider has received since the test began: a function that returns the requests."""

    def everything():
        with urllib.request.urlopen(os.environ["SDK_UPSTREAM_URL"] + "/received", timeout=10) as answer:
            return json.load(answer)

    before = len(everything())
    return lambda: everything()[before:]


@pytest.fixture
def received(provider):
    """The one chat body that the provider received since the test began."""

    def only():
        (request,) = provider()
        return json.loads(request["body"])

    return only


@pytest.fixture(scope="session")
def bus_tool():
    """A function for the model to call."""
    return BUS_TOOL
