"""The environment `bfcl`: multi-turn entries of the Berkeley Function Calling Leaderboard, with its own checker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracewheel import TEXT_TURN, DataError, Observation, Task, parse_json, read_text
from tracewheel_bridges.environment import BridgeArgs, BridgedEnvironment


class BfclEnvironment(BridgedEnvironment):
    """A multi-turn entry: simulated APIs, and a user whose requests are written down.

    ```yaml
    environment: {kind: bfcl, args: {python: .venv-standards/bfcl/bin/python}}
    ```

    A task's `initial_state` is `{"id": "multi_turn_base_0"}`; the known calls stay in the other process. The agent's turn
    without a call ends the user's turn, and brings the next request. The verdict is that of the leaderboard's checker: after
    each turn the APIs' states are as they should be, and their replies hold those of the known calls. Categories:
    `multi_turn_base`, `multi_turn_miss_param` and `multi_turn_long_context`; not `multi_turn_miss_func`, whose tools change on
    the way.
    """

    class Args(BridgeArgs):
        """Where `bfcl-eval` is installed."""

    kind = "bfcl"
    verifiers = ("verdict",)
    BRIDGE = "bfcl"

    def tasks_from(self, path: Path) -> list[Task]:
        """The tasks of a data file of the leaderboard, as `BFCL_v4_multi_turn_base.json`.

        Raises:
            DataError: a line is no multi-turn entry.
        """
        tasks = []
        for number, line in enumerate(read_text(path).splitlines(), 1):
            try:
                entry = parse_json(line)
                name, prompt = entry["id"], "\n\n".join(message["content"] for message in entry["question"][0])
                tasks.append(self._task(prompt, {"id": name}, name.rpartition("_")[0]))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise DataError(f"{path}:{number}: no multi-turn entry of BFCL: {type(error).__name__}: {error}") from error
        return tasks

    def reply(self, text: str) -> Observation:
        """The user's next request; after the last one the episode ends."""
        return self._observe("reply", text=text)

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The leaderboard's known calls, and a turn without a call after those of each request.

        Raises:
            BridgeFailure: the project cannot be started, or raised.
        """
        process = self._start()
        try:
            turns = process.ask("solution", self._args.start_seconds, args=self._own_args(), start=task.initial_state)
        finally:
            process.close()
        if turns is None:
            return None
        end: tuple[str, dict[str, Any]] = (TEXT_TURN, {"text": "Done."})
        return [call for turn in turns for call in [*((name, args) for name, args in turn), end]]
