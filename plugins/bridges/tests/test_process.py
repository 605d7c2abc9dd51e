"""The process of a bridge: what it answers, and how it fails. The bridge here is a small one beside ours."""

import os
import sys
import time
from pathlib import Path

import pytest

from tracewheel.core.types import Task
from tracewheel.environments.base import BridgeFailure
from tracewheel.scoring.verifiers.verdict import VerdictVerifier
from tracewheel_bridges import process
from tracewheel_bridges.environment import BridgeArgs, BridgedEnvironment

WORLD = """
import os, time

class World:
    def open(self, args, start):
        print("noise on standard output")
        if start.get("broken"):
            raise RuntimeError("no such world")
        self.said = []
        tools = [{"type": "function", "function": {"name": "say", "description": "", "parameters": {"type": "object"}}}]
        return {"tools": tools, "text": "A room.", "system": ""}

    def step(self, tool, args):
        if tool == "hang":
            time.sleep(60)
        if tool == "die":
            os.write(2, b"out of memory")
            os._exit(9)
        if tool == "raise":
            raise ValueError("a bug of theirs")
        self.said.append(args["text"])
        return {"text": args["text"].upper(), "done": args["text"] == "bye"}

    def close(self):
        return {"state": {"said": self.said}, "verdict": {"reward": 2.5, "parts": {"words": len(self.said)}}}
"""


class Room(BridgedEnvironment):
    """A room."""

    kind = "room"
    BRIDGE = "room"


@pytest.fixture
def room(tmp_path, monkeypatch):
    """Makes environments; the bridge stands beside a copy of the runner."""
    runner = tmp_path / "bridges" / "run.py"
    runner.parent.mkdir()
    runner.write_text(process.RUNNER.read_text())
    (runner.parent / "room.py").write_text(WORLD)
    monkeypatch.setattr(process, "RUNNER", runner)
    made = []

    def make(**args):
        made.append(Room(BridgeArgs(python=sys.executable, folder=str(tmp_path), **args)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def task(**start):
    return Task("t", "room", "room", 1, "Talk.", start, {}, "verdict", "t")


def test_an_episode(room):
    environment = room()
    environment.reset(task())
    assert environment.system_prompt == "A room."
    assert [tool["function"]["name"] for tool in environment.tools()] == ["say"]
    assert environment.step("say", {"text": "hi"}).text == "HI"
    assert environment.step("say", {"text": "bye"}).done
    state = environment.snapshot()
    assert (
        state == environment.snapshot() == {"state": {"said": ["hi", "bye"]}, "verdict": {"reward": 2.5, "parts": {"words": 2}}}
    )
    assert VerdictVerifier().verify(task(), state) == (1.0, {"reward": 2.5, "words": 2})
    environment.reset(task())
    assert environment.snapshot()["state"] == {"said": []}


def test_failures_are_the_environments_and_no_exceptions_of_a_step(room):
    environment = room()
    environment.reset(task())
    observation = environment.step("raise", {})
    assert (observation.fault, "ValueError: a bug of theirs" in observation.text) == ("environment", True)
    environment = room(step_seconds=0.5)
    environment.reset(task())
    observation = environment.step("hang", {})
    assert (observation.fault, "took longer than 0.5 s" in observation.text) == ("environment", True)
    assert environment.step("say", {}).fault == "environment"
    with pytest.raises(BridgeFailure, match="the process was ended before"):
        environment.snapshot()


def test_a_process_that_dies_says_its_last_words(room):
    environment = room()
    environment.reset(task())
    observation = environment.step("die", {})
    assert "exit code 9" in observation.text
    assert observation.text.endswith("out of memory")


def test_a_world_that_does_not_open(room):
    with pytest.raises(BridgeFailure, match="open: RuntimeError: no such world") as failed:
        room().reset(task(broken=True))
    assert failed.value.fault == "environment"
    with pytest.raises(BridgeFailure, match="cannot be started"):
        Room(BridgeArgs(python="/no/such/python")).reset(task())


def test_a_process_ends_with_its_environment(room):
    environment = room()
    environment.reset(task())
    pid = environment._process._process.pid
    environment.close()
    for _ in range(300):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("verdict", [{"reward": None}, {"reward": float("nan")}])
def test_no_reward_is_no_score(verdict):
    with pytest.raises(ValueError, match="gave no reward"):
        VerdictVerifier().verify(task(), {"verdict": verdict})
