"""The verifier of Harbor's task directories: the task's own tests, in a box of their own."""

from __future__ import annotations

from typing import Any

from tracewheel import Episode, Strict, Task, Verdict, untimed
from tracewheel_worlds.boxed import BOXED_THREADS
from tracewheel_worlds.findings import odd_findings, tried_to_escape
from tracewheel_worlds.harbor.grading import OVERWRITTEN, graded
from tracewheel_worlds.sandbox import SandboxConfig


class HarborVerifier:
    """Runs a task's tests on the files that the agent left, and takes the reward that they write.

    >>> from tracewheel_worlds.harbor.grading import read_reward
    >>> from tracewheel_worlds.sandbox import BoxFile
    >>> read_reward({"logs/verifier/reward.txt": BoxFile(b"1")})
    (1.0, '/logs/verifier/reward.txt')

    The tests come into a fresh box with the agent's files, without those in `/tests`, `/solution` and `/logs/verifier`. The
    reward is a number from 0 to 1 in `/logs/verifier/reward.txt` or `reward.json`; of the older layout, 1 for exit status 0.
    No number is 0, and the explanation says so. The breakdown:

    - `reward`: what the tests say.
    - `flagged`: whether a command of the agent's tried to leave its box, used it up, or left a link out of it, or a process
      that outlived the tests' script wrote the reward over.

    The total is the reward, and 0 where a command tried to leave its box. What the tests' own run does is no finding: scripts
    begin with calls to the network.

    Raises:
        InfrastructureError: the box could not be made, or did not come as far as the tests; the episode stays unscored.
        ConfigError: there is no sandbox on this machine.
    """

    class Args(Strict):
        """How code is run."""

        sandbox: SandboxConfig = SandboxConfig()

    kind = "harbor"
    concurrency = BOXED_THREADS

    def __init__(self, args: Args | None = None) -> None:
        self._config = (args or self.Args()).sandbox

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        """The tests' reward."""
        with untimed():
            reward, why = graded(episode.final_state["files"], task.initial_state, task.goal, self._config)
        odd = odd_findings(episode.final_state)
        escaped = tried_to_escape(odd)
        flagged = bool(odd) or why == OVERWRITTEN
        if odd:
            why = f"{', '.join(odd)} in the agent's commands; {why}"
        return Verdict(0.0 if escaped else reward, {"reward": reward, "flagged": float(flagged)}, "", why)

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The tests' reward of a state."""
        return graded(state["files"], task.initial_state, task.goal, self._config)[0]
