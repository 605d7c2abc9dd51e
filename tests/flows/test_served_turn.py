"""The whole turn: serve, log, feedback a day later, ingest, retrain, promote, and served again with the new adapter."""

import csv
import itertools
import json
import random
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import openai
import pandas as pd
import pytest
import yaml

from data.workspace_logs import log_record
from flows.commands.serve import BASE, Champions, _served
from flows.retrain import retrain
from flows.setup import resolve_config
from tasks.engine.reading import begin_run
from tasks.engine.run import Run
from tasks.tracking.registry import register
from tasks.tracking.tracking import Tracking
from tracewheel.config import load_config
from tracewheel.core import clock
from tracewheel.core.files import read_json
from tracewheel.environments import make_environment
from tracewheel.environments.base import opening_messages
from tracewheel.environments.recorded.build import build_recording
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.gateway.conversation_log import ConversationLog
from tracewheel.gateway.server import GatewayServer
from tracewheel.gateway.serving import ServingDoor
from tracewheel.gateway.serving_routes import serving_routes
from tracewheel.learner.rescoring import rescored
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel.policy.adapters import PolicyRef
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.traces.ingest import ingest

KEY, TURNS = "a-key-of-the-whole-turn", 12
TASKS, ATTEMPTS = 36, 5  # of the agent before, which nobody has logged a reward of
SERVED, SECOND = 12, 4
DAY = datetime(2026, 11, 2, 9, tzinfo=UTC)
NEVER, VERIFIED_LATER = (3, 7, 11), (2, 6, 10)  # served conversations of which nobody says anything, and a program does


@pytest.fixture
def tasks():
    """Tasks with prompts of their own: where nobody logs a starting point, the prompt is what tells tasks apart."""
    rng, found = random.Random(7), {}
    while len(found) < TASKS:
        task = make_task(FAMILIES[len(found) % 4], 2, rng)
        found.setdefault(task.prompt, task)
    return list(found.values())


@pytest.fixture
def served_profile(profile, tasks, tmp_path):
    """The short profile in the world that the logs show; no log of it has a reward: people have judged the old ones."""
    rng, rows = random.Random(8), [("trace_id", "label", "said")]
    with open(tmp_path / "old.jsonl", "w") as log:
        for number in range(TASKS * ATTEMPTS):
            task, moment = tasks[number % TASKS], DAY - timedelta(days=20) + timedelta(minutes=number)
            record = log_record(task, f"user-{number % TASKS}", f"old-{number}", moment, rng)
            solved = outcome_of(task, record["messages"])
            log.write(json.dumps({name: record[name] for name in record if name not in ("reward", "environment")}) + "\n")
            rows.append((record["id"], "good" if solved else "bad", (moment + timedelta(days=2)).isoformat()))
    with open(tmp_path / "people.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    values = yaml.safe_load(Path(profile).read_text())
    values["ingest"] = {
        "paths": [str(tmp_path / "old.jsonl"), str(tmp_path / "served" / "*.jsonl")],
        "outcomes": {"paths": [str(tmp_path / "people.csv")]},
    }
    values["environment"] = {"kind": f"recorded:{tmp_path / 'recorded'}"}
    values["curation"] |= {"harder_tasks": 0, "sets": {"sources": ["logged"]}}
    values["comparison"] = {"warm_starts": "one", "policies": "gate", "aa": False}
    values["training"]["iterations"] = 4  # fewer hardly part from the base
    path = tmp_path / "served.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def outcome_of(task, messages):
    """How a conversation went, found by its calls."""
    environment = make_environment(task.environment)
    environment.reset(task)
    for call in (call for message in messages for call in message.get("tool_calls") or []):
        environment.step(call["function"]["name"], json.loads(call["function"]["arguments"]))
    return make_verifier(task.verifier).verify(task, environment.snapshot())[0]


class World:
    """A task's tools, as a program has them that knows nothing of Tracewheel."""

    def __init__(self, task):
        self.task, self.environment = task, make_environment(task.environment)
        self.environment.reset(task)
        self.messages, self.tools = opening_messages(self.environment, task), self.environment.tools()
        self.done = False

    def reply(self, name, arguments):
        observation = self.environment.step(name, arguments)
        self.done = self.done or observation.done
        return observation.text

    def outcome(self):
        return make_verifier(self.task.verifier).verify(self.task, self.environment.snapshot())[0]


def by_openai(server, task):
    """OpenAI's client: returns the id of its last response, and how it went."""
    world, answered = World(task), None
    with openai.OpenAI(base_url=server.openai_url(), api_key=KEY, max_retries=0) as client:
        for _ in range(TURNS):
            try:
                answer = client.chat.completions.create(model="policy", messages=world.messages, tools=world.tools, user="ann")
            except openai.BadRequestError:
                break  # the conversation is too long
            answered, message = answer.id, answer.choices[0].message
            world.messages.append(message)
            for call in message.tool_calls or ():
                text = world.reply(call.function.name, json.loads(call.function.arguments))
                world.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
            if world.done or not message.tool_calls:
                break
    return answered, world.outcome()


def by_http(server, task, session=None):
    """A program without a vendor's library, as `by_openai`; with a session's name it says itself how it went."""
    world, answered = World(task), None
    headers = {"authorization": f"Bearer {KEY}"} | ({"x-tracewheel-session": session} if session else {})
    with httpx.Client(base_url=server.url(), headers=headers) as client:
        for _ in range(TURNS):
            body = {"model": "policy", "messages": world.messages, "tools": world.tools, "user": "eve"}
            reply = client.post("/v1/chat/completions", json=body, timeout=300)
            if reply.status_code != 200:
                break
            answered, message = reply.json()["id"], reply.json()["choices"][0]["message"]
            world.messages.append({key: value for key, value in message.items() if value is not None})
            for call in message.get("tool_calls") or []:
                text = world.reply(call["function"]["name"], json.loads(call["function"]["arguments"]))
                world.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            if world.done or not message.get("tool_calls"):
                break
        if session:
            client.post(f"/v1/conversations/{session}/end", json={"outcome": world.outcome()}).raise_for_status()
    return answered, world.outcome()


@pytest.fixture
def programs():
    """Who talks to it, in turns; the wheel of dialects has one more."""
    return [by_openai, by_http]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_harness")
def test_serve_feedback_a_day_later_retrain_promote_and_serve_again(served_profile, tasks, programs, tmp_path, monkeypatch):
    numbers = itertools.count(280102)  # such names read as phone numbers
    monkeypatch.setattr("secrets.token_hex", lambda size=32: str(9 * 10 ** (2 * size - 1) + next(numbers)))
    folder = tmp_path / "runs"
    config = resolve_config(str(served_profile), [], str(folder))
    champions, log = Champions(config), ConversationLog(tmp_path / "served")
    champion, policy, name = champions.now()
    assert champion is None and name == BASE
    with ExitStack() as made:
        served, renderer = _served(config, policy, name)
        made.callback(served.engine.close)
        door = ServingDoor(served, renderer, config.rollout, log, frozenset([KEY]))
        server = made.enter_context(GatewayServer(door, routes=serving_routes(door)))
        with clock.at(DAY):
            talks = [programs[number % len(programs)](server, task) for number, task in enumerate(tasks[:SERVED])]
            assert httpx.get(f"{server.url()}/health", headers={"x-api-key": KEY}).json()["open"] == SERVED
            door.end_idle(0)  # nobody has said how they ended
        first = ingest(config.ingest, tmp_path / "evening")
        assert (first["kept"], first["quarantined"]) == (TASKS * ATTEMPTS + SERVED, 0)
        assert first["outcomes"]["known"] == {"logged": 0, "label": TASKS * ATTEMPTS, "without an outcome": SERVED}
        build_recording(pd.read_parquet(tmp_path / "evening/traces.parquet"), tmp_path / "recorded")

        with clock.at(DAY + timedelta(days=1)):
            said = feedback(server, talks)
            summary = retrain(str(served_profile), [], str(folder))
        run = begin_run(config)
        joined(served_profile, folder, said, summary)
        weights = next(
            path / "adapter"
            for path in run.store.root.glob("update-*")
            if read_json(path / "adapter" / "adapter.json")["version"] == config.training.iterations
        )
        tracking = Tracking.open(config, run.record)
        with tracking.closing():  # whatever the gate says of so short a run
            version = register(Run(config, run.store, run.record, tracking=tracking), weights, {"verdict": "promoted"})

        found = champions.look()
        assert found is not None and found.version == version
        policy, name = champions.fetch(found)
        door.take_over(policy, name)  # without a restart
        health = httpx.get(f"{server.url()}/health", headers={"x-api-key": KEY}).json()
        assert health["policy"] == name and health["policy_version"] == int(version) and not health["refused"]
        for number, task in enumerate(tasks[:SECOND]):
            by_http(server, task, session=f"second-{number}")
    log.close()
    proves_live(config, tmp_path / "served", PolicyRef(config.policy.base, policy.adapter, int(version)), name)


def feedback(server, talks):
    """Users' thumbs and a program's verdicts, by the ids that the clients hold; conversation to its outcome and kind."""
    said = {}
    with httpx.Client(base_url=server.url(), headers={"authorization": f"Bearer {KEY}"}) as client:
        for number, (response, outcome) in enumerate(talks):
            conversation = response.removeprefix("chatcmpl-").removeprefix("msg_").rpartition("-")[0]
            kind = "verified" if number in VERIFIED_LATER else "thumb"
            if number in NEVER:
                said[conversation] = (None, None)
                continue
            value = outcome if kind == "verified" else ("up" if outcome == 1.0 else "down")
            body = {"id": response, "value": value} | ({} if kind == "thumb" else {"kind": kind})
            assert client.post("/v1/feedback", json=body).raise_for_status().json()["taken"]
            said[conversation] = (1.0 if outcome == 1.0 else 0.0) if kind == "thumb" else outcome, kind
    assert len(said) == SERVED
    return said


def joined(profile, folder, said, summary):
    """What was said counts, and nothing else does; the funnel accounts for each conversation."""
    store = folder / "store"
    traces = pd.read_parquet(next(store.glob("ingest-*")) / "traces.parquet").set_index("id")
    own = traces.loc[list(said)]
    late = [json.loads(info).get("late_outcomes") or {} for info in own["info"]]
    found = zip(own.index, own["outcome"], late, strict=True)
    assert {name: (None if pd.isna(value) else value, one.get("by")) for name, value, one in found} == said
    assert all(one["said"].startswith("2026-11-03T09") for one in late if one) and (own["created"] < "2026-11-03").all()
    kinds = [kind for _, kind in said.values()]
    old = TASKS * ATTEMPTS
    known = {"logged": 0, "verified": kinds.count("verified"), "label": old, "thumb": kinds.count("thumb")}
    outcomes = summary["intake"]["outcomes"]
    assert outcomes["known"] == known | {"without an outcome": len(NEVER)}
    assert (outcomes["said"], outcomes["waiting"], outcomes["corrected"]) == (old + SERVED - len(NEVER), 0, 0)

    curated = next(store.glob("curate-*"))
    episodes = pd.read_parquet(curated / "episodes.parquet").set_index("trace_id")
    in_use = episodes[episodes.index.isin(list(said))]
    for name, row in in_use.iterrows():
        value, kind = said[name]
        assert row["outcome_source"] == ("logged" if kind else "judged") or (
            kind is None and row["outcome_source"] == "unknown"
        )
        assert kind is None or row["label"] == value
    silent = {name for name, (_, kind) in said.items() if kind is None}
    sets = {path.stem: pd.read_parquet(path) for path in (curated / "sets").glob("*.parquet")}
    for column in ("trace_id", "chosen_trace", "rejected_trace"):
        assert not any(silent & set(frame[column]) for frame in sets.values() if column in frame), column
    bad = {name for name, (value, kind) in said.items() if kind and value < 1.0}
    imitated = episodes_to_imitate(load_config(profile).warm_start, curated, "verified")
    assert not bad & set(sets["demonstrations"]["trace_id"]) and not (bad | silent) & set(imitated["trace_id"])

    funnel = {f"{step['unit']} {step['name']}": step for step in summary["funnel"]}
    assert funnel["traces kept"]["of"] == {
        kind: count for kind, count in (known | {"without an outcome": len(NEVER)}).items() if count
    }
    assert funnel["traces kept"]["count"] == old + SERVED == funnel["traces read"]["count"]
    replayed = funnel["traces replayed"]
    assert replayed["count"] + sum(replayed["lost"].values()) == old + SERVED
    assert funnel["traces scored"]["count"] + sum(funnel["traces scored"]["lost"].values()) == replayed["count"]
    assert funnel["episodes of these tasks"]["count"] == len(episodes)
    assert funnel["demonstrations to imitate"]["count"] == len(sets["demonstrations"])
    page = next(folder.glob("*/report.html")).read_text()
    assert f"{len(NEVER)} without an outcome" in page and f"{kinds.count('thumb')} thumb" in page


def proves_live(config, logs, policy, name):
    """What was served after the promotion was sampled by the promoted adapter, and by nothing else."""
    records = [json.loads(line) for file in logs.glob("*.jsonl") for line in file.read_text().splitlines()]
    records = [record for record in records if "messages" in record]  # the others are feedback
    for prefix, model, other in (("served", BASE, policy), ("second", name, PolicyRef(config.policy.base))):
        own = [record for record in records if record["session"].startswith(prefix)]
        assert len(own) == (SECOND if prefix == "second" else SERVED) and {record["model"] for record in own} == {model}
        rows = [{"id": each["id"], **each["tokens"], "forks": json.dumps(each["info"].get("forks") or [])} for each in own]
        episodes = pd.DataFrame(rows).assign(temperature=[each["info"].get("temperature", 1.0) for each in own])
        right = policy if prefix == "second" else PolicyRef(config.policy.base)
        assert gap(config, right, episodes) < 1e-4 < 1e-3 < gap(config, other, episodes)
    versions = {
        turn["policy_version"] for record in records for turn in record["info"]["turns"] if "second" in record["session"]
    }
    assert versions == {policy.version}


def gap(config, policy, episodes):
    """The mean difference of a policy's log-probabilities of what was sampled from those that were logged, in nats a token."""
    scored = rescored(config.policy, policy, episodes)
    masks = [np.array(mask, dtype=bool) for mask in episodes["action_mask"]]
    differences = [
        np.abs(new - np.array(old))[mask] for new, old, mask in zip(scored, episodes["logprobs"], masks, strict=True)
    ]
    return float(np.concatenate(differences).mean())
