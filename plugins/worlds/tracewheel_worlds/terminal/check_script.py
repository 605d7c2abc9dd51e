"""A check script that looks at an agent's final files, in a box that the agent never was in."""

from __future__ import annotations

from typing import Any

from tracewheel import Episode, InfrastructureError, Strict, Task, Verdict, parse_json, stored_json, untimed
from tracewheel_worlds.box_state import box_files
from tracewheel_worlds.boxed import BOXED_THREADS
from tracewheel_worlds.code.values import same
from tracewheel_worlds.findings import odd_findings, tried_to_escape
from tracewheel_worlds.sandbox import Limits, Sandbox, SandboxConfig, make_sandbox

READY = b"ready\n"
START = "import os; os.write(2, b'ready\\n')\n"


class CheckScriptArgs(Strict):
    """Where the check runs, and what it may use."""

    sandbox: SandboxConfig = SandboxConfig()
    limits: Limits = Limits(seconds=20.0)


class CheckScriptVerifier:
    """Binary reward from what a check script finds.

    >>> check = {"script": "print(1)", "given": {}, "expected": 1}
    >>> goal = {"family": "script", "tier": 1, "check": check}
    >>> task = Task("t1", "terminal", "script", 1, "Write count.sh.", {"files": {}}, goal, "check_script", "t1")
    >>> CheckScriptVerifier.Args().limits.seconds
    20.0

    The script is Python's standard library alone. It runs after the episode, in a fresh box with the final files, by
    `python3 -I`, which looks for nothing in them; it reads `given` from standard input and prints one line of JSON, what it
    found. It may run the agent's programs, which could then tamper with it: so it is never told what is expected, and what it
    prints is a claim that is compared here, type by type. The parts:

    - `as_expected`: whether it is what was expected.
    - `flagged`: whether the check was tampered with, or an episode's command did what an honest one does not. The total is as
      `as_expected`; it is 0 where something tried to leave its box.

    Raises:
        InfrastructureError: the box could not be made; the episode stays unscored.
        KeyError, ValueError: the state has no files, or the goal no check.
    """

    kind = "check_script"
    concurrency = BOXED_THREADS
    Args = CheckScriptArgs

    def __init__(self, args: CheckScriptArgs | None = None) -> None:
        self._args = args or CheckScriptArgs()
        self._sandbox: Sandbox | None = None

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        return self.judge(task, episode.final_state)

    def judge(self, task: Task, state: dict[str, Any]) -> Verdict:
        """The verdict on a final state."""
        check, files = task.goal["check"], box_files(state["files"])
        if self._sandbox is None:
            self._sandbox = make_sandbox(self._args.sandbox)
        command = ["python3", "-I", "-B", "-c", START + check["script"]]
        with untimed():
            run = self._sandbox.run(command, files, stored_json(check["given"]).encode(), self._args.limits)
        if not run.stderr.startswith(READY):
            raise InfrastructureError(f"the box of the check did not start ({run.exit_code}): {run.text[:200]}")
        signs = [f"{finding} in the check" for finding in run.findings]
        signs += [f"{finding} in a command" for finding in odd_findings(state)]
        lines = run.stdout.decode(errors="replace").splitlines()
        try:
            (line,) = lines
            right, why = same(check["expected"], parse_json(line)), "another result"
        except ValueError:
            right, why = False, "no single line of JSON"
            signs += ["forged results"] if len(lines) > 1 else []
        parts = {"as_expected": float(right), "flagged": float(bool(signs))}
        seen = f"flagged: {'; '.join(signs)}" if signs else ""
        explanation = ". ".join(part for part in ("as expected" if right else why, seen) if part)
        honest = not tried_to_escape(run.findings, odd_findings(state))
        return Verdict(float(right and honest), parts, explanation=explanation)

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """1 where it is as expected, else 0."""
        return self.judge(task, state).total
