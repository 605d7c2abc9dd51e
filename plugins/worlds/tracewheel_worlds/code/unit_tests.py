"""Hidden tests of an agent's files, run apart from everything the agent could reach."""

from __future__ import annotations

from typing import Any

from tracewheel import Episode, Strict, Task, Verdict
from tracewheel_worlds.box_state import box_files
from tracewheel_worlds.boxed import BOXED_THREADS
from tracewheel_worlds.code.grading import Result, run_tests
from tracewheel_worlds.findings import ESCAPE, odd_findings, tried_to_escape
from tracewheel_worlds.sandbox import Limits, Sandbox, SandboxConfig, make_sandbox
from tracewheel_worlds.signs import signs_in


class UnitTestsArgs(Strict):
    """Where the tests run, and what all cases of one episode together may use."""

    sandbox: SandboxConfig = SandboxConfig()
    limits: Limits = Limits(seconds=20.0)


class UnitTestsVerifier:
    """Binary reward from hidden tests of the final files.

    >>> goal = {"form": "function", "file": "solution.py", "function": "double", "types": "strict", "shown": 0,
    ...         "cases": [{"args": [2], "expected": 4}]}
    >>> task = Task("t1", "code", "function", 1, "Write double(x).", {"files": {}}, goal, "unit_tests", "t1")
    >>> UnitTestsVerifier().judge(task, {"files": {"answer.py": "..."}, "findings": []}).explanation
    'there is no file solution.py'

    The agent's function or program runs in a fresh box that holds its final files and the inputs, nothing else. What it says
    there is a claim, which is compared here with the expected values, type by type. The total is 1 where every case passes,
    and nothing tried to leave its box. The breakdown:

    - `passed`: the share of the cases that pass.
    - `shown`: whether all cases pass that the prompt shows; 1 where it shows none.
    - `flagged`: whether something points at an attempt on the tests; the explanation says what.

    Where code exits, hangs, crashes or uses too much, its cases fail.

    Raises:
        InfrastructureError: the box could not be made; the episode stays unscored.
        KeyError, ValueError: the state has no files, or the goal no cases.
    """

    kind = "unit_tests"
    concurrency = BOXED_THREADS
    Args = UnitTestsArgs

    def __init__(self, args: UnitTestsArgs | None = None) -> None:
        self._args = args or UnitTestsArgs()
        self._sandbox: Sandbox | None = None

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        return self.judge(task, episode.final_state)

    def judge(self, task: Task, state: dict[str, Any]) -> Verdict:
        """The verdict on a final state."""
        files = box_files(state["files"])
        result = self._tested(task, files)
        signs = [*result.signs, *signs_in(files)]
        signs += [f"{finding} in a run" for finding in odd_findings(state)]
        parts = {
            "passed": sum(result.passed) / len(result.passed),
            "shown": float(all(result.passed[: result.shown])),
            "flagged": float(bool(signs)),
        }
        seen = f"flagged: {'; '.join(signs)}" if signs else ""
        explanation = ". ".join(part for part in (result.failure, seen) if part)
        honest = not tried_to_escape(odd_findings(state)) and f"{ESCAPE} in the tests" not in result.signs
        return Verdict(float(all(result.passed) and honest), parts, explanation=explanation or "all cases pass")

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The share of the cases that pass."""
        result = self._tested(task, box_files(state["files"]))
        return sum(result.passed) / len(result.passed)

    def _tested(self, task: Task, files: dict[str, Any]) -> Result:
        if self._sandbox is None:
            self._sandbox = make_sandbox(self._args.sandbox)
        return run_tests(self._sandbox, self._args.limits, task.goal, files)
