"""Dialects declare their paths: a user's own is served, and one that is not installed is named."""

import httpx
import pytest

from tracewheel import Asked, ChatRequest, Dialect, Event, Fields, Refusal, ToolCall, chat_message
from tracewheel.core.errors import ConfigError
from tracewheel.gateway.dialects.dialect import DIALECTS
from tracewheel.gateway.server import GatewayServer

KEY, EPISODE = "key-of-the-first", "first"  # as in conftest.py
OWN = {"x-api-key": KEY}


class Plain(Dialect):
    """A dialect of a user's own, with all that a dialect may declare."""

    PATHS = ("/plain/{name}",)
    COUNT_PATHS = ("/plain/{name}/count",)
    KEPT_PATHS = ("/plain/said/{identity}",)

    def __init__(self, name="nobody"):
        self._name = name

    @classmethod
    def speaks(cls, path, headers):
        return "x-plain" in headers

    def at(self, path, query):
        if path["name"] == "mute":
            raise Refusal("not_found", "mute says nothing")
        return Plain(path["name"])

    def read(self, body, said):
        fields = Fields(body)
        return Asked(ChatRequest([chat_message("user", fields.text("say"))], model=self._name), body, fields.flag("stream"))

    def write(self, asked, replies, created):
        return {"id": replies[0].id, "said": replies[0].text}

    def events(self, asked, replies, created):
        return [Event("piece", {"said": piece.text}) for piece in replies[0].content_pieces()]

    def remember(self, asked, replies, created, said):
        said.keep("plain", replies[0].id, self.write(asked, replies, created), most=1)

    def kept(self, identity, said, *, drop):
        if (found := said.kept("plain", identity)) is None:
            raise Refusal("not_found", "never said")
        if drop:
            said.drop("plain", identity)
        return found

    def read_for_count(self, body):
        return ChatRequest([chat_message("user", Fields(body).text("say"))])

    def write_count(self, tokens):
        return {"length": tokens}

    def write_models(self, names):
        return {"names": list(names)}

    def error(self, refusal, request_id):
        return {"wrong": refusal.message}


@pytest.fixture
def plain(replaceable, door, monkeypatch):
    """A client of it."""

    async def count_tokens(key, request):
        return len(request.messages[0]["content"])

    monkeypatch.setattr(replaceable, "count_tokens", count_tokens, raising=False)
    monkeypatch.setitem(DIALECTS, "plain", Plain)
    with GatewayServer(replaceable) as server, httpx.Client(base_url=f"{server.url(EPISODE)}/v1/", headers=OWN) as client:
        yield client


def test_a_dialect_of_ones_own(plain, door, events_of):
    for _ in range(3):
        door.reply("so it is", texts=["so ", "it is", "<end>"])
    answer = plain.post("plain/ann", json={"say": "hi"}).json()
    assert answer["said"] == "so it is" and door.requests[0].agent == "ann"
    streamed = plain.post("plain/ann", json={"say": "hi", "stream": True}).text
    assert events_of(streamed) == [("piece", {"said": "so "}), ("piece", {"said": "it is"})]
    assert plain.post("plain/ann/count", json={"say": "hi"}).json() == {"length": 2}
    assert plain.post("plain/ann", json={}).json() == {"wrong": "Missing required parameter: 'say'."}
    assert plain.get(f"plain/said/{answer['id']}").status_code == 404  # of its sort one is kept
    last = plain.post("plain/ann", json={"say": "hi"}).json()
    assert plain.get(f"plain/said/{last['id']}").json() == last == plain.delete(f"plain/said/{last['id']}").json()
    assert plain.get(f"plain/said/{last['id']}").status_code == 404
    assert plain.post("plain/mute", json={"say": "hi"}).json()["error"]["message"] == "mute says nothing"
    assert plain.get("models", headers={"x-plain": "1"}).json() == {"names": ["tiny", "tiny/planner"]}
    assert plain.get("models").json()["object"] == "list"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("v1/messages", "anthropic"),
        ("v1/messages/count_tokens", "anthropic"),
        ("v1/responses", "responses"),
        ("v1beta/models/policy:generateContent", "gemini"),
        (f"e/{EPISODE}/v1/messages", "anthropic"),
    ],
)
def test_a_path_of_a_dialect_that_is_not_installed_names_the_wheel(replaceable, monkeypatch, path, name):
    monkeypatch.setitem(vars(DIALECTS), "wheels", {})
    with GatewayServer(replaceable) as server:
        answer = httpx.post(f"{server.url()}/{path}", json={}, headers=OWN)
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "unknown_url"
    said = f"The dialect '{name}' of this path is not installed: pip install tracewheel-dialects"
    assert answer.json()["error"]["message"].startswith(said)


def test_a_dialect_that_cannot_be_imported_is_an_error_at_the_start(replaceable, monkeypatch):
    monkeypatch.setitem(DIALECTS._core, "broken", "tracewheel.no_such_module:Broken")
    with pytest.raises(ConfigError, match="dialect 'tracewheel.no_such_module:Broken' cannot be imported"):
        GatewayServer(replaceable)


@pytest.mark.parametrize("arguments", ['{"a":  1}', "{}", '{"a": 1', "[1]", ""])
def test_arguments_that_are_no_object_come_back_as_they_were(arguments):
    call = ToolCall("call-1", "find", arguments)
    back = ToolCall.given("call-1", "find", call.value)
    assert back.value == call.value and ToolCall.given("call-1", "find", back.value) == back
    assert call.object_text == arguments or "INVALID_JSON" in call.value
    assert "".join(call.pieces(call.object_text)) == call.object_text
    if "INVALID_JSON" in call.value:
        assert back == call
