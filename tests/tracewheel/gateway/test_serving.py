"""A served policy: conversations, their log, a challenger, and promotions taken over or refused."""

import asyncio
import json

import httpx
import openai
import pandas
import pytest

from tests.tracewheel.gateway.conftest import Script
from tracewheel.config import IngestConfig, IngestSections, RedactionConfig, RetrainConfig
from tracewheel.core.errors import AdapterMismatchError
from tracewheel.engines.base import Generation, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.gateway.asking import ASKER, Asker
from tracewheel.gateway.conversation_log import ConversationLog, LogRedaction
from tracewheel.gateway.engine_thread import EngineThread
from tracewheel.gateway.exchange import ChatRequest
from tracewheel.gateway.server import GatewayServer
from tracewheel.gateway.serving import Challenger, Served, ServingDoor
from tracewheel.gateway.serving_routes import serving_routes
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import PolicyWeights
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest
from tracewheel.traces.redaction.pseudonyms import identity_pseudonym

KEY, OTHER = "a-key-of-the-tests", "another-key-of-tests"
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}]
HELLO = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Hello"}]


@pytest.fixture
def serving(config, base, renderer, versions, limits, tmp_path):
    """Makes a door that serves a version; engines end with the test."""
    engines = []

    def served(version):
        weights = PolicyWeights(config.policy.model_copy(update={"base": base}))
        engine = TransformersEngine(weights.load, versions.policy(version), renderer.end_of_turn_ids, Sampling(), 8, 400)
        engines.append(EngineThread(engine))
        return Served(engines[-1], f"version-{version}")

    def make(version=1, challenger=None, redaction=None, prompt=None, **settings):
        log, keys = ConversationLog(tmp_path / "log"), frozenset([KEY, OTHER])
        door = ServingDoor(served(version), renderer, limits, log, keys, redaction, prompt)
        if challenger:
            door.challenger = Challenger(served(challenger), **settings)
        return door

    yield make
    for engine in engines:
        engine.close()


def lines(folder):
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def ask(door, messages, session=None, user=None, tools=TOOLS):
    async def asked():
        ASKER.set(Asker(session, user))
        reply = await door.answer(KEY, ChatRequest(list(messages), tools))
        await asyncio.gather(*door._shadows)
        return reply

    return asyncio.run(asked())


def test_a_conversation_is_matched_by_its_history_and_logged_once(serving, tmp_path, versions):
    door = serving()
    first = ask(door, HELLO, user="ann")
    other = ask(door, HELLO)
    messages = [*HELLO, first.message, {"role": "user", "content": "And now?"}]
    second = ask(door, messages)
    assert door.health()["open"] == 2 or first.message == other.message
    door.end_idle(3600)
    assert door.logged == 0
    door.end_idle(0)
    logged = lines(tmp_path / "log")
    assert len(logged) == 2 and door.logged == 2
    record = next(each for each in logged if len(each["messages"]) > 3)
    assert record["messages"] == [*messages, second.message]
    assert record["model"] == "version-1" and record["tools"] == TOOLS and record["outcome"] is None
    tokens = record["tokens"]
    sampled = [token for token, acted in zip(tokens["token_ids"], tokens["action_mask"], strict=True) if acted]
    assert sampled == [token.id for reply in (first, second) for token in reply.tokens]
    fresh = [0.0, *versions.logprobs(1, tokens["token_ids"])]
    assert all(
        abs(logprob - fresh[place]) < 1e-4
        for place, (logprob, acted) in enumerate(zip(tokens["logprobs"], tokens["action_mask"], strict=True))
        if acted
    )


def test_a_prompt_in_place_of_the_programs_own(serving, tmp_path):
    """The conversation is known by what the program says, and logged as the policy was given it."""
    other = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "description": "Look closely."}}]
    system = {"role": "system", "content": "You serve."}
    door = serving(prompt=lambda messages, tools: ([system, *messages[1:]], other))
    first = ask(door, HELLO)
    messages = [*HELLO, first.message, {"role": "user", "content": "And now?"}]
    second = ask(door, messages)
    assert door.health()["open"] == 1
    door.end_idle(0)
    (record,) = lines(tmp_path / "log")
    assert record["messages"] == [system, *messages[1:], second.message] and record["tools"] == other
    assert record["info"].get("branches") is None


def test_ingest_reads_the_log_without_quarantine(serving, tmp_path, config):
    door = serving()
    ask(door, HELLO, session="s-1", user="ann")
    assert door.end(KEY, "s-1", 1.0, {"task": "greet"}) and not door.end(KEY, "s-1", 1.0, {})
    sections = IngestSections.of(
        RetrainConfig.model_validate(config.model_dump() | {"ingest": {"paths": [str(tmp_path / "log" / "*.jsonl")]}})
    )
    ingest(sections.ingest, tmp_path / "ingested")
    import pandas as pd

    row = pd.read_parquet(tmp_path / "ingested" / "traces.parquet").iloc[0]
    assert (row["session"], row["user"], row["task"], row["outcome"], row["format"]) == (
        "s-1",
        "ann",
        "greet",
        1.0,
        "tracewheel",
    )
    assert json.loads(row["tokens"]) == lines(tmp_path / "log")[0]["tokens"]
    assert json.loads(row["info"])["turns"][0]["policy_version"] == 1
    assert (tmp_path / "ingested" / "quarantine.jsonl").read_text() == ""


def test_a_promotion_is_taken_over_within_a_conversation(serving, versions, tmp_path):
    door = serving()
    first = ask(door, HELLO, session="s")
    door.take_over(versions.policy(2), "version-2")
    second = ask(door, [*HELLO, first.message, {"role": "user", "content": "And now?"}], session="s")
    assert (first.policy_version, second.policy_version) == (1, 2)
    assert door.health()["policy"] == "version-2" and door.health()["policy_version"] == 2
    door.end(KEY, "s", None, {})
    assert [turn["policy_version"] for turn in lines(tmp_path / "log")[0]["info"]["turns"]] == [1, 2]


def test_a_bad_adapter_is_refused_and_the_old_one_serves(serving, versions, tmp_path):
    import shutil

    door, folder = serving(), tmp_path / "adapter"
    shutil.copytree(versions.policy(2).adapter, folder)
    shutil.copyfile(f"{versions.policy(3).adapter}/adapter_model.safetensors", folder / "adapter_model.safetensors")
    with pytest.raises(AdapterMismatchError, match="does not serve"):
        door.take_over(PolicyRef(versions.policy(2).base, str(folder), 2), "version-2")
    health = door.health()
    assert health["policy"] == "version-1" and "version-2" in health["refused"]
    assert ask(door, HELLO).policy_version == 1


def test_a_shadow_answers_and_is_not_sent(serving, tmp_path):
    door = serving(challenger=2, share=1.0, log=ConversationLog(tmp_path / "shadow", "replies"))
    reply = ask(door, HELLO)
    door.end_idle(0)
    logged = lines(tmp_path / "shadow")
    assert reply.policy_version == 1 and [each["shadow_by"] for each in logged] == [2]
    assert logged[0]["sent"] == reply.message and len(logged[0]["token_ids"]) == len(logged[0]["logprobs"]) > 0
    assert lines(tmp_path / "log")[0]["id"] == logged[0]["conversation"]


def test_a_live_challenger_has_its_share_of_conversations(serving, tmp_path):
    door = serving(challenger=2, share=0.5, live=True)
    versions = [ask(door, HELLO, session=f"s-{number}").policy_version for number in range(16)]
    assert 2 <= versions.count(2) <= 14
    again = ask(door, [*HELLO, {"role": "user", "content": "Again"}], session="s-0")
    assert again.policy_version == versions[0]
    door.end_idle(0)
    assert {(each["model"], each["info"]["policy_version"]) for each in lines(tmp_path / "log")} == {
        ("version-1", 1), ("version-2", 2),
    }  # fmt: skip


def test_over_http(serving, tmp_path):
    door = serving()
    with GatewayServer(door, routes=serving_routes(door)) as server, httpx.Client(base_url=server.url()) as client:
        assert client.get("/health", headers={"x-api-key": KEY}).json()["policy"] == "version-1"
        for other in ({}, {"x-api-key": "wrong"}, {"authorization": f"Bearer {KEY[:-1]}"}):
            assert client.get("/health", headers=other).json() == {"status": "ok"}
        body = {"model": "policy", "messages": HELLO, "user": "bob"}
        assert client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer wrong"}).status_code == 401
        headers = {"authorization": f"Bearer {KEY}", "x-tracewheel-session": "s-9"}
        assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        end = "/v1/conversations/s-9/end"
        assert client.post(end, json={"outcome": "good"}, headers=headers).status_code == 400
        assert client.post(end, json={"outcome": 0.5, "environment": {"kind": "x"}}, headers=headers).json()["logged"]
        assert client.post(end, json={}, headers=headers).status_code == 404
    record = lines(tmp_path / "log")[0]
    assert (record["session"], record["user"], record["outcome"], record["environment"]) == ("s-9", "bob", 0.5, {"kind": "x"})


def test_feedback_comes_by_the_ids_that_real_clients_hold_a_day_after_the_server_has_gone(serving, tmp_path):
    """OpenAI's client asks; the conversations end in silence; what is said then is joined by ingest."""
    door, names, config = serving(), {}, IngestConfig(paths=(str(tmp_path / "log"),))
    with GatewayServer(door, routes=serving_routes(door)) as server:
        client = openai.OpenAI(base_url=server.openai_url(), api_key=KEY, max_retries=0)
        said = [{"role": "user", "content": "Chat"}]
        first = client.chat.completions.create(model="policy", messages=said)
        said += [first.choices[0].message.to_dict(), {"role": "user", "content": "And?"}]
        client.chat.completions.create(model="policy", messages=said)
        names["chat"] = first.id
        for name in ("Second", "Third"):
            asked = [{"role": "user", "content": name}]
            names[name] = client.chat.completions.create(model="policy", messages=asked, max_tokens=20).id
        names["session"] = "ann@example.com"
        headers = {"x-tracewheel-session": names["session"]}
        client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "By name"}], extra_headers=headers)
    assert [name.partition("served-")[0] for name in names.values()] == [*["chatcmpl-"] * 3, "ann@example.com"]
    door.end_idle(0)
    report = ingest_new(config, tmp_path / "ingested")
    assert report["kept"] == 4 and "outcomes" not in report

    later = serving()
    with GatewayServer(later, routes=serving_routes(later)) as server, httpx.Client(base_url=server.url()) as client:
        headers = {"authorization": f"Bearer {KEY}"}

        def say(**body):
            return client.post("/v1/feedback", json=body, headers=headers)

        assert client.post("/v1/feedback", json={"id": names["chat"], "value": 1}).status_code == 401
        for bad in ({"value": 1}, {"id": "x"}, {"id": "x", "value": "soso"}, {"id": "x", "value": 1, "kind": "guess"}, {}):
            assert say(**bad).status_code == 400
        assert say(id=names["chat"], value=1).json()["kind"] == "thumb"
        assert say(response_id=names["Second"], value=False, kind="label").json()["taken"]
        assert say(id=names["Third"], value=1, said="2026-11-01T00:00:00Z").json()["said"] == "2026-11-01T00:00:00Z"
        assert say(id=names["Third"], value=0).status_code == 200  # a change of mind
        ended = client.post(f"/v1/conversations/{names['session']}/end", json={"outcome": 0, "task": "t"}, headers=headers)
        told = {"session": names["session"], "outcome": 0.0, "logged": False, "feedback": True, "ignored": ["task"]}
        assert ended.json() == told
        other = {"authorization": f"Bearer {OTHER}"}  # whose session of that name it is not
        assert client.post("/v1/feedback", json={"session": names["session"], "value": 1}, headers=other).status_code == 200
    assert names["session"] not in "".join(path.read_text() for path in (tmp_path / "log").glob("*.jsonl"))
    report = ingest_new(config, tmp_path / "ingested")
    assert (report["kept"], report["read"], report["outcomes"]["waiting"], report["outcomes"]["corrected"]) == (4, 4, 1, 1)
    frame = pandas.read_parquet(tmp_path / "ingested/traces.parquet")
    found = {json.loads(row["messages"])[0]["content"]: row["outcome"] for row in frame.to_dict("records")}
    assert found == {"Chat": 1.0, "Second": 0.0, "Third": 0.0, "By name": 0.0}
    kinds = [json.loads(info)["late_outcomes"]["by"] for info in frame["info"]]
    assert sorted(kinds) == ["label", "thumb", "thumb", "verified"]


def test_the_log_begins_another_file_at_its_size(tmp_path):
    log = ConversationLog(tmp_path, largest=100)
    for number in range(5):
        log.write({"number": number, "text": "x" * 40})
    log.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 5 and [each["number"] for each in lines(tmp_path)] == [0, 1, 2, 3, 4]


SECRET, MAIL = "sk-proj-" + "aB3dE5fG7hJ9kL1m" * 3, "ann.example@mail-of-ann.com"
TOLD = [{"role": "user", "content": f"My mail is {MAIL}, and OPENAI_API_KEY={SECRET}"}]


def bytes_in(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_log_holds_no_secret_and_is_its_owners_alone(serving, tmp_path):
    door = serving(challenger=2, share=1.0, log=ConversationLog(tmp_path / "shadow", "replies"))
    ask(door, TOLD, session="s", user=MAIL)
    assert door.end(KEY, "s", 1.0, {"environment": {"kind": "x", "note": f"write to {MAIL}"}})
    (record,), (shadow,) = lines(tmp_path / "log"), lines(tmp_path / "shadow")
    held = bytes_in(tmp_path)
    assert SECRET.encode() not in held and MAIL.encode() not in held
    assert record["tokens"] is None and record["info"]["redacted"].keys() > {"email", "token_ids"}
    assert record["user"] == identity_pseudonym("user", MAIL, b"") and record["session"] == "s"  # as ingest has them
    assert shadow["shadow"]["role"] == "assistant"
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


def test_ids_that_spell_a_secret_of_earlier_tools_are_dropped_and_those_of_a_named_user_kept(serving, tmp_path):
    door = serving()
    for session, description in (("s-1", f"Send it to {MAIL}."), ("s-2", "Look.")):
        tools = [{"type": "function", "function": {"name": "look", "description": description, "parameters": {}}}]
        for offered in (tools, TOOLS):
            ask(door, HELLO, session=session, user=MAIL, tools=offered)
        assert door.end(KEY, session, None, {})
    spelled, clean = lines(tmp_path / "log")
    assert spelled["tokens"] is None and spelled["info"]["redacted"]["token_ids"] == 1
    assert clean["tokens"]["token_ids"] and clean["info"]["redacted"] == {"email": 1}
    assert spelled["user"] == clean["user"] == identity_pseudonym("user", MAIL, b"")


def test_a_profile_that_redacts_nothing_logs_what_was_said(serving, renderer, tmp_path):
    door = serving(redaction=LogRedaction(RedactionConfig(enabled=False), renderer))
    ask(door, TOLD, session="s", user=MAIL)
    door.end_idle(0)
    (record,) = lines(tmp_path / "log")
    assert record["messages"][0] == TOLD[0] and record["user"] == MAIL and record["tokens"]["token_ids"]


def test_a_reply_at_its_limit_is_logged_as_cut(serving, tmp_path):
    door = serving()
    reply = asyncio.run(door.answer(KEY, ChatRequest(list(HELLO), TOOLS, max_tokens=1)))
    door.end_idle(0)
    assert reply.finish_reason == "length"
    [logged] = lines(tmp_path / "log")
    assert [message.get("unfinished") for message in logged["messages"]] == [None, None, "cut: length"]
    report = ingest(IngestConfig(paths=(str(tmp_path / "log"),)), tmp_path / "traces")
    assert report["kept"] == report["cut_turns"] == 1


def test_a_conversation_that_ends_empty_beside_another_branch_is_read(renderer, limits, tmp_path):
    thread = EngineThread(Script(renderer, ["Hello.", "It is sunny.", ""]))
    door = ServingDoor(Served(thread, "scripted"), renderer, limits, ConversationLog(tmp_path / "log"), frozenset([KEY]))
    first = ask(door, HELLO, session="s").message
    for question in ("And the weather?", "And the time?"):
        ask(door, [*HELLO, first, {"role": "user", "content": question}], session="s")
    door.end_idle(0)
    thread.close()
    (logged,) = lines(tmp_path / "log")
    assert not logged["messages"][-1]["content"] and "It is sunny." in json.dumps(logged["info"]["branches"])
    assert ingest(IngestConfig(paths=(str(tmp_path / "log"),)), tmp_path / "traces")["kept"] == 1


class SaysTheSame:
    """A policy that says to all the same in the same place: a call, then a text after each message."""

    policy_version = 1

    def __init__(self, renderer):
        self._renderer, self._asked, self._held = renderer, [], {}

    @property
    def idle(self):
        return not self._asked

    def submit(self, request):
        held = self._held.get(request.session, [])
        self._held[request.session] = [*(held if request.keep is None else held[: request.keep]), *request.new_ids]
        self._asked.append(request)

    def step(self):
        request = self._asked.pop()
        read = self._renderer.decode(self._held[request.session])
        text = CALL if "wants a call" in read and "<tool_response>" not in read else "Very well."
        ids = [*self._renderer.tokenizer.encode(text, add_special_tokens=False), self._renderer.end_of_turn_id]
        self._held[request.session] += ids
        return [Generation(request.session, ids, [-0.5] * len(ids), "stop", [1] * len(ids))]

    def close(self, session):
        self._held.pop(session, None)


CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("opening", ["wants a call", "wants words"])
def test_100_clients_of_whom_many_open_alike_have_100_whole_conversations(renderer, limits, tmp_path, opening):
    thread = EngineThread(SaysTheSame(renderer))
    config = limits.model_copy(update={"max_tokens": 4000})
    door = ServingDoor(Served(thread, "one"), renderer, config, ConversationLog(tmp_path / "log"), frozenset([KEY]))

    async def client(number):
        messages = [{"role": "user", "content": f"{opening} {number % 20}"}]
        for turn in range(4):
            message = (await door.answer(KEY, ChatRequest(list(messages), TOOLS))).message
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": "a rake"} for call in message.get("tool_calls") or []
            ]
            messages += [message, *(results or [{"role": "user", "content": f"go on {turn}, says {number}"}])]
            await asyncio.sleep(0.001 * (number * 7919 % 13))

    async def all_clients():
        await asyncio.gather(*map(client, range(100)))

    asyncio.run(all_clients())
    door.end_idle(0)
    thread.close()
    found = lines(tmp_path / "log")
    assert len(found) == 100
    assert [len(one["info"]["turns"]) for one in found] == [4] * 100
    assert not any("branches" in one["info"] for one in found)
