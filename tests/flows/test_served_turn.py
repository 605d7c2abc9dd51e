"""The whole turn: serve, log, ingest, retrain, promote, served again with the new adapter, with the proof that it is live."""

import json
import random
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
import yaml

from flows.commands.serve import BASE, Champions, _served
from flows.retrain import retrain
from flows.setup import resolve_config
from tasks.engine.reading import begin_run
from tasks.engine.run import Run
from tasks.tracking.registry import register
from tasks.tracking.tracking import Tracking
from tracewheel.core.files import read_json
from tracewheel.environments import make_environment
from tracewheel.environments.base import opening_messages
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.gateway.conversation_log import ConversationLog
from tracewheel.gateway.server import GatewayServer
from tracewheel.gateway.serving import ServingDoor
from tracewheel.gateway.serving_routes import serving_routes
from tracewheel.learner.rescoring import rescored
from tracewheel.policy.adapters import PolicyRef
from tracewheel.scoring.verifiers import make_verifier

KEY, EPISODES = "a-key-of-the-whole-turn", 12


@pytest.fixture
def served_profile(profile, tmp_path):
    """The short profile, which also reads what is served."""
    values = yaml.safe_load(Path(profile).read_text())
    values["ingest"]["paths"].append(str(tmp_path / "served" / "*.jsonl"))
    values["comparison"] = {"warm_starts": "one", "policies": "gate", "aa": False}
    path = tmp_path / "served.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def program(url, task, session):
    """A program that knows nothing of Tracewheel: it talks to a chat endpoint, calls its tools, and says how it went."""
    environment = make_environment(task.environment)
    environment.reset(task)
    messages, tools = opening_messages(environment, task), environment.tools()
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}", "x-tracewheel-session": session}) as client:
        for _ in range(12):
            body = {"model": "policy", "messages": messages, "tools": tools, "user": "user-1"}
            reply = client.post("/v1/chat/completions", json=body, timeout=300)
            if reply.status_code != 200:
                break
            message = reply.json()["choices"][0]["message"]
            messages.append({key: value for key, value in message.items() if value is not None})
            done = not message.get("tool_calls")
            for call in message.get("tool_calls") or []:
                observation = environment.step(call["function"]["name"], json.loads(call["function"]["arguments"]))
                done = done or observation.done
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": observation.text})
            if done:
                break
        outcome, _ = make_verifier(task.verifier).verify(task, environment.snapshot())
        given = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
        ended = {"outcome": outcome, "task": task.id, "environment": given}
        client.post(f"/v1/conversations/{session}/end", json=ended).raise_for_status()


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_harness")
def test_serve_log_ingest_retrain_promote_and_serve_again(served_profile, tmp_path):
    folder = tmp_path / "runs"
    config = resolve_config(str(served_profile), [], str(folder))
    rng = random.Random(7)
    tasks = [make_task(FAMILIES[number % 4], 1, rng) for number in range(EPISODES)]
    champions, log = Champions(config), ConversationLog(tmp_path / "served")
    champion, policy, name = champions.now()
    assert champion is None and name == BASE
    with ExitStack() as made:
        served, renderer = _served(config, policy, name)
        made.callback(served.engine.close)
        door = ServingDoor(served, renderer, config.rollout, log, frozenset([KEY]))
        server = made.enter_context(GatewayServer(door, routes=serving_routes(door)))
        for number, task in enumerate(tasks):
            program(server.url(), task, f"first-{number}")
        assert httpx.get(f"{server.url()}/health", headers={"x-api-key": KEY}).json()["logged"] == EPISODES

        summary = retrain(str(served_profile), [], str(folder))  # ingests the shipped logs and what was served
        run = begin_run(config)
        assert quarantined(folder) == 0
        traces = pd.read_parquet(next((folder / "store").glob("ingest-*")) / "traces.parquet")
        own = traces[traces["session"].fillna("").str.startswith("first-")]
        assert len(own) == EPISODES and (own["format"] == "tracewheel").all() and (own["user"] != "").all()
        weights = next(
            path / "adapter"
            for path in run.store.root.glob("update-*")
            if read_json(path / "adapter" / "adapter.json")["version"] == config.training.iterations
        )
        tracking = Tracking.open(config, run.record)
        with tracking.closing():  # whatever the gate says of so short a run
            version = register(Run(config, run.store, run.record, tracking=tracking), weights, {"verdict": "promoted"})
        assert summary["run_id"]

        found = champions.look()
        assert found is not None and found.version == version
        policy, name = champions.fetch(found)
        door.take_over(policy, name)  # without a restart
        health = httpx.get(f"{server.url()}/health", headers={"x-api-key": KEY}).json()
        assert health["policy"] == name and health["policy_version"] == int(version) and not health["refused"]
        for number, task in enumerate(tasks):
            program(server.url(), task, f"second-{number}")
    log.close()
    proves_live(config, tmp_path / "served", PolicyRef(config.policy.base, policy.adapter, int(version)), name)


def quarantined(folder):
    return sum(
        len([line for line in file.read_text().splitlines() if "served" in line])
        for file in (folder / "store").glob("ingest-*/quarantine.jsonl")
    )


def proves_live(config, logs, policy, name):
    """What was served after the promotion was sampled by the promoted adapter, and by nothing else."""
    records = [json.loads(line) for file in logs.glob("*.jsonl") for line in file.read_text().splitlines()]
    for prefix, model, other in (("first", BASE, policy), ("second", name, PolicyRef(config.policy.base))):
        own = [record for record in records if record["session"].startswith(prefix)]
        assert len(own) == EPISODES and {record["model"] for record in own} == {model}
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
