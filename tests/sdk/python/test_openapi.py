"""The running binary keeps to its own OpenAPI document: what it serves is the document, and its answers have the shapes it promises."""

import json
import pathlib
import sys
import urllib.error
import urllib.request
import uuid

import pytest

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
from check_openapi import escaped, validator  # noqa: E402

DOCUMENT = json.loads((TOOLS.parents[1] / "src/server/openapi.json").read_text())
CONTENT = "Night trains to Dunmarrow leave from platform nine."


@pytest.fixture(scope="module")
def user():
    """An end user of this test run alone."""
    return f"user-{uuid.uuid4()}"


@pytest.fixture
def call(facts, user):
    """Calls a documented operation and holds the answer to what the document says of its status: (operation, status) -> body."""

    def once(method, route, status, body=None, token=facts.token, query="", **path):
        url = facts.base_url.removesuffix("/v1") + route.format(**path) + query
        headers = {"Authorization": f"Bearer {token}", "X-IBEX-Agent-ID": facts.agent, "X-IBEX-User-ID": user}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            text = answer.read().decode()
        assert answer.status == status, text
        pointer = f"/paths/{escaped(route)}/{method.lower()}/responses/{status}"
        described = DOCUMENT["paths"][route][method.lower()]["responses"][str(status)]
        if "$ref" in described:
            pointer = described["$ref"].removeprefix("#")
            described = DOCUMENT["components"]["responses"][described["$ref"].rpartition("/")[2]]
        if "content" not in described:
            assert text == ""
            return None
        media = answer.headers.get_content_type()
        assert media in described["content"]
        if media != "application/json":
            return text
        value = json.loads(text)
        validator(DOCUMENT, f"{pointer}/content/{escaped(media)}/schema").validate(value)
        return value

    return once


def test_served_document_is_the_one_in_the_sources(call):
    assert call("GET", "/openapi.json", 200) == DOCUMENT


def test_probes_and_metrics_answer_without_a_credential(call):
    assert call("GET", "/health", 200, token="")["status"] == "ok"
    assert call("GET", "/ready", 200, token="")["status"] == "ok"
    assert "# TYPE" in call("GET", "/metrics", 200, token="")


def test_memory_lives_from_creation_to_forgetting(call):
    made = call("POST", "/v1/memories", 201, {"content": CONTENT, "category": "factual", "metadata": {"line": 9}, "source": {"kind": "import"}})
    assert made["content"] == CONTENT
    assert made["metadata"] == {"line": 9}
    again = call("POST", "/v1/memories", 409, {"content": CONTENT})
    assert again["error"]["code"] == "DUPLICATE_CONTENT"
    assert again["error"]["existing_memory_id"] == made["id"]

    assert call("GET", "/v1/memories/{id}", 200, id=made["id"])["id"] == made["id"]
    assert made["id"] in [memory["id"] for memory in call("GET", "/v1/memories", 200, query="?limit=100&category=factual")["memories"]]
    hits = call("POST", "/v1/memories/search", 200, {"query": "Which platform do night trains leave from?", "limit": 3})["results"]
    assert (hits[0]["id"], hits[0]["rank"]) == (made["id"], 1)
    assert made["id"] in [member["id"] for member in call("GET", "/v1/memories/hot", 200, query="?limit=50")["results"]]

    call("DELETE", "/v1/memories/{id}", 204, id=made["id"])
    gone = call("GET", "/v1/memories/{id}", 404, id=made["id"])["error"]
    never = call("GET", "/v1/memories/{id}", 404, id=str(uuid.uuid4()))["error"]
    assert [gone[name] for name in ("code", "message", "param")] == [never[name] for name in ("code", "message", "param")]
    assert call("POST", "/v1/memories/search", 200, {"query": CONTENT})["results"] == []


def test_batch_answers_for_each_memory_in_order(call):
    content = f"Ticket office {uuid.uuid4()} opens at eight."
    results = call("POST", "/v1/memories/batch", 207, {"memories": [{"content": content}, {"content": content}, {"content": ""}]})["results"]
    assert [result["status"] for result in results] == [201, 409, 400]
    assert results[1]["error"]["existing_memory_id"] == results[0]["id"]
    call("DELETE", "/v1/memories/{id}", 204, id=results[0]["id"])


def test_wrong_field_is_named(call):
    error = call("POST", "/v1/memories", 400, {"content": "x", "confidence": 1.5})["error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert error["param"] == "confidence"


def test_missing_credential_is_refused(call):
    assert call("GET", "/v1/memories", 401, token="")["error"]["code"] in ("MISSING_TOKEN", "INVALID_TOKEN")


def test_preview_shows_messages_and_plan_and_asks_no_provider(call, facts, provider):
    shown = call("POST", "/v1/context/preview", 200, {"model": "scripted-chat", "messages": [{"role": "user", "content": facts.question}]})
    assert facts.memory in json.dumps(shown["messages"], ensure_ascii=False)
    assert [memory["decision"] for memory in shown["plan"]["memories"]].count("packed") == 1
    assert provider() == []


def test_assemble_gives_directive_and_memory_as_one_text(call, facts, provider):
    answer = call("POST", "/v1/context/assemble", 200, {"model": "scripted-chat", "messages": [{"role": "user", "content": facts.question}]})
    assert answer["assembled"].startswith(facts.directive)
    assert facts.memory in answer["assembled"]
    assert answer["tokens_used"] > 0
    assert provider() == []


def test_directives_are_added_promoted_and_rolled_back(call, facts):
    before = call("GET", "/v1/directives/active", 200)
    assert before["content"] == facts.directive
    added = call("POST", "/v1/directives", 201, {"content": "Answer in French.", "mode": "system_append"})
    assert (added["version"], added["active"]) == (before["version"] + 1, False)
    assert call("POST", "/v1/directives/{version}/promote", 200, version=added["version"])["active"]
    assert call("POST", "/v1/directives/rollback", 200)["version"] == before["version"]
    assert call("GET", "/v1/directives/active", 200) == before
    versions = call("GET", "/v1/directives", 200)["directives"]
    assert [version["version"] for version in versions] == [added["version"], before["version"]]
    call("POST", "/v1/directives/{version}/promote", 404, version=999)


def test_console_answers_as_described(call, facts):
    call("POST", "/v1/chat/completions", 200, {"model": "scripted-chat", "messages": [{"role": "user", "content": facts.question}]})
    assert "<!doctype html>" in call("GET", "/console", 200, token="")
    assert call("GET", "/console/{file}", 200, token="", file="app.js")
    call("GET", "/console/{file}", 404, token="", file="nothing.js")
    assert "ConsoleRead" in call("GET", "/console/api/viewer", 200)["permissions"]
    assert call("GET", "/console/api/live", 200)["counted"]["requests"] > 0
    newest = call("GET", "/console/api/requests", 200)["requests"][0]
    shown = call("GET", "/console/api/requests/{id}", 200, id=newest["id"])
    assert shown["plan"]["tokens"] == newest["tokens"]
    assert facts.memory in [memory["content"] for memory in shown["memories"]]
    call("GET", "/console/api/requests/{id}", 404, id=str(uuid.uuid4()))
