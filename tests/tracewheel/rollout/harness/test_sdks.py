"""Agents on other people's SDKs, unmodified, through the gateway: all that was sampled is in the record, in one branch.

`make test-harnesses` installs the SDKs that want an environment of their own.
"""

import json
import os
from collections import deque
from pathlib import Path

import pytest

from tracewheel.config import RolloutConfig
from tracewheel.engines.base import Generation
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

ROOT = Path(__file__).parents[4]
PYTHON = Path(os.environ.get("TRACEWHEEL_HARNESSES", ROOT / ".venv-harnesses")) / "bin" / "python"
DSPY = PYTHON.parents[1] / "dspy" / "bin" / "python"
OWN = [
    pytest.mark.harnesses,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the SDKs are not installed: make test-harnesses"),
]
SDKS = [
    pytest.param(["python", "openai_agent.py"], id="openai"),
    pytest.param([str(PYTHON), "openai_agents_agent.py"], id="openai-agents", marks=OWN),
    pytest.param([str(PYTHON), "pydantic_ai_agent.py"], id="pydantic-ai", marks=OWN),
    pytest.param([str(PYTHON), "langgraph_agent.py"], id="langgraph", marks=OWN),
]
# What SDKs could spoil: words before a call, white space in arguments, two calls at once, a name that is no ASCII.
SAID = (
    'I look.\n<tool_call>\n{"name": "list_files",  "arguments": { "path" : "/inbox"}}\n</tool_call>',
    '<tool_call>\n{"name": "list_files", "arguments": {"path": "/Bücher"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "read_file", "arguments": {"path":"/inbox/a \\"b\\".txt"}}\n</tool_call>',
    '<tool_call>\n{"name": "list_files", "arguments": {"path": "/inbox"}}\n</tool_call>',
    "  All done: *nothing* to move.\n",
)


class Scripted:
    """An engine whose policy says given texts; it notes the tokens that it sampled."""

    policy_version = 0

    def __init__(self, renderer, texts):
        self._renderer, self._texts, self._asked, self.sampled, self._held = renderer, deque(texts), deque(), [], {}

    @property
    def idle(self):
        return not self._asked

    def submit(self, request):
        self._asked.append(request)

    def step(self):
        request = self._asked.popleft()
        ids = [*self._renderer.tokenizer.encode(self._texts.popleft(), add_special_tokens=False), self._renderer.end_of_turn_id]
        self.sampled += ids
        return [Generation(request.session, ids, [-0.5] * len(ids), "stop", [0] * len(ids))]

    def close(self, session):
        pass


def harness(command):
    return {"command": [command[0], str(ROOT / "examples" / command[1])], "seconds": 120}


@pytest.fixture(params=SDKS)
def command(request):
    """The program; the wheel of dialects has its own."""
    return request.param


def test_what_the_policy_says_comes_back_as_it_was(command, renderer, tasks):
    engine = Scripted(renderer, SAID)
    config = RolloutConfig(max_tokens=2048, max_turn_tokens=300, harness=harness(command))
    (found,) = run_episodes(engine, renderer, config, RolloutPlan(tasks[:1], samples=1, seed=0))
    assert (found.stop_reason, found.detail) == ("finished", "")
    assert found.requests == {"asked": len(SAID), "refused": 0, "unmatched": 0, "lost_tokens": 0}
    assert found.branches == [] and len(found.turns) == len(SAID)
    assert [token for token, mask in zip(found.token_ids, found.action_mask, strict=True) if mask] == engine.sampled
    assert found.final_state["program"]["output"].strip() == SAID[-1].strip()


@pytest.mark.slow
@pytest.mark.parametrize("command", SDKS)
def test_its_episodes_are_those_of_the_built_in_loop(command, played, tasks):
    expected = played(tasks[:2], samples=2)
    for one, other in zip(played(tasks[:2], harness(command), samples=2), expected, strict=True):
        assert one.token_ids == other.token_ids and one.action_mask == other.action_mask
        assert one.branches == [] and one.requests["unmatched"] == one.requests["lost_tokens"] == 0


@pytest.mark.harnesses
@pytest.mark.slow
@pytest.mark.skipif(not DSPY.exists(), reason="DSPy is not installed: make test-harnesses")
def test_dspys_typed_answers_are_of_their_types(played, tasks):
    """The tiny base never learnt JSON: the form of each answer is held, and DSPy parses it at once."""
    harness = {"command": [str(DSPY), str(ROOT / "examples" / "dspy_answers.py")], "tools": "none", "seconds": 300}
    (found,) = played(tasks[:1], harness, max_tokens=2000, max_turn_tokens=200)
    print(found.requests, len(found.token_ids), found.final_state["program"]["output"])
    assert (found.stop_reason, found.detail) == ("finished", "")
    assert found.requests["asked"] == len(found.turns) == 5 and found.requests["refused"] == 0
    assert all(turn["grammar"] in found.grammars for turn in found.turns) and len(found.grammars) == 5
    answers = json.loads(found.final_state["program"]["output"])
    kinds = {"mode": str, "steps": int, "certain": bool, "folders": list, "plan": dict}
    assert {name: type(answer) for name, answer in answers.items()} == kinds
