"""The recipes that ship, each with its real program, a scripted policy that acts three times, and no other settings.

`make test-harnesses` installs the programs; the ones that are missing are skipped.
"""

import json
import os
import shutil
from collections import deque
from pathlib import Path

import pytest
import yaml

from tracewheel.config import HarnessConfig, RolloutConfig
from tracewheel.core.types import Task
from tracewheel.engines.base import Generation
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel_projects.program import RECIPES

ROOT = Path(__file__).parents[3]
HARNESSES = Path(os.environ.get("TRACEWHEEL_HARNESSES", ROOT / ".venv-harnesses"))
FOLDERS = [*HARNESSES.glob("*/bin"), *HARNESSES.glob("*/node_modules/.bin")]
NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))
COMMANDS = ("echo one > a.txt", "cat a.txt && echo two >> a.txt", "cat a.txt")
END = "All done: a.txt has two lines."


def calls(name, key="command", **more):
    return [
        "I act.\n<tool_call>\n" + json.dumps({"name": name, "arguments": {key: text, **more}}) + "\n</tool_call>"
        for text in COMMANDS
    ]


def code(*texts):
    return [f"Thought: go on\n<code>\n{text}\n</code>" for text in texts]


SUBMIT = (
    '<tool_call>\n{"name": "bash", "arguments": {"command":'
    f" \"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{END}'\"}}}}\n</tool_call>"
)
SCRIPTS = {
    "aider": ["a.txt\n```\none\ntwo\n```\n"],
    "claude-code": [*calls("Bash", description="run"), END],
    "codex": [*calls("exec_command", "cmd"), END],
    "gemini-cli": [*calls("run_shell_command", description="run"), END],
    "mini-swe-agent": [*calls("bash"), SUBMIT],
    "opencode": [*calls("bash", description="run"), END],
    "openhands": [*calls("terminal", security_risk="LOW"), END],
    "qwen-code": [*calls("run_shell_command", is_background=False), END],
    "smolagents": code("x = 1\nprint(x)", "print(x + 1)", "final_answer('two')"),
}


class Acts:
    """An engine that says a script, and something short where no tools are offered beside a main agent that has them."""

    policy_version = 0

    def __init__(self, renderer, texts):
        self._renderer, self._texts, self._asked, self._held = renderer, deque(texts), deque(), {}
        self._calls = "<tool_call>" in texts[0]

    @property
    def idle(self):
        return not self._asked

    def submit(self, request):
        held = self._held.get(request.session, [])
        self._held[request.session] = [*(held if request.keep is None else held[: request.keep]), *request.new_ids]
        self._asked.append(request)

    def step(self):
        request = self._asked.popleft()
        is_side = self._calls and "<tools>" not in self._renderer.decode(self._held[request.session])
        text = "A title" if is_side or not self._texts else self._texts.popleft()
        ids = [*self._renderer.tokenizer.encode(text, add_special_tokens=False), self._renderer.end_of_turn_id]
        self._held[request.session] += ids
        return [Generation(request.session, ids, [-0.5] * len(ids), "stop", [0] * len(ids))]

    def close(self, session):
        pass


def recipe_of(name):
    return yaml.safe_load((RECIPES / f"{name}.yaml").read_text())["harness"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_a_harness(name):
    assert HarnessConfig(**recipe_of(name)).cwd == "{workdir}" and name in SCRIPTS


@pytest.mark.harnesses
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_program_works_as_it_is(name, renderer, monkeypatch):
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]]))
    recipe = recipe_of(name)
    program, *rest = recipe["command"]
    found = HARNESSES / name / "bin" / "python" if program == "python" else shutil.which(program)
    if found is None or not Path(found).exists():
        pytest.skip(f"{program} is not installed: make test-harnesses")
    harness = HarnessConfig(**{**recipe, "command": [str(found), *rest], "seconds": 150})
    config = RolloutConfig(max_tokens=400_000, max_turn_tokens=2000, max_turns=40, harness=harness)
    task = Task("t", "workspace", "f", 1, "Write one and two into a.txt, then show it.", {}, {}, "workspace", "0")
    (episode,) = run_episodes(Acts(renderer, SCRIPTS[name]), renderer, config, RolloutPlan([task], samples=1, seed=0))
    print(name, episode.requests, [(one["reason"], one["turns"]) for one in episode.branches], len(episode.token_ids))
    assert (episode.stop_reason, episode.fault) == ("finished", ""), episode.detail
    assert len(episode.turns) >= len(SCRIPTS[name]) and episode.requests["unmatched"] == 0
    results = [message["content"] for message in episode.messages if message["role"] == "tool"]
    assert name in ("aider", "smolagents") or any("one" in text and "two" in text for text in results)
