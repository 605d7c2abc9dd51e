"""How well an agent used its tools, whatever came of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tracewheel.config.base import Share, Strict
from tracewheel.core.types import Task, canonical_json
from tracewheel.scoring.flaws import offered_tools
from tracewheel.scoring.verifiers.episode import Episode, EpisodeCall, Verdict

PARTS = ("valid", "offered", "fresh")


class ToolUseArgs(Strict):
    """`tools`: those offered, where the environment cannot be asked; `no_calls`: what an episode without a call is worth."""

    tools: tuple[str, ...] | None = None
    no_calls: Share = 0.0


class ToolUseVerifier:
    """The share of calls that are sound: readable, of an offered tool, not failed, not the call before once more.

    >>> from tracewheel.environments.base import turn_messages
    >>> from tracewheel.scoring.verifiers.episode import episode_from
    >>> task = Task("t1", "order_desk", "open", 1, "Cancel it.", {}, {}, "tool_use", "t1")
    >>> calls = [("orders", {"customer": "Mia Kent"}), ("fly", {}), ("cancel", {"order": "K7"}), ("cancel", {"order": "K7"})]
    >>> messages = [message for n, call in enumerate(calls) for message in turn_messages(n, *call, "ok")]
    >>> ToolUseVerifier().verify_episode(task, episode_from(messages, 0, {})).parts
    {'valid': 1.0, 'offered': 0.75, 'fresh': 0.75}

    The parts are shares of all calls: `valid` ones could be read and did not fail, `offered` ones name a tool that
    there is, and `fresh` ones differ from the call right before them in tool or arguments. The total is the share of
    calls that are all three.

    Raises:
        ValueError: the tools are not known: the environment cannot be made here, and the arguments do not name them.
    """

    kind = "tool_use"
    Args = ToolUseArgs

    def __init__(self, args: ToolUseArgs | None = None) -> None:
        self._args = args or ToolUseArgs()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        offered = offered_tools(task.environment) if self._args.tools is None else self._args.tools
        if offered is None:
            raise ValueError(f"the tools of {task.environment} are not known here: name them in args.tools")
        calls = episode.calls
        if not calls:
            return Verdict(self._args.no_calls, dict.fromkeys(PARTS, self._args.no_calls), explanation="no call")
        valid = [not call.malformed and not call.error for call in calls]
        known = [call.name in offered for call in calls]
        fresh = [True, *(_key(before) != _key(call) for before, call in pairwise(calls))]
        sound = [all(marks) for marks in zip(valid, known, fresh, strict=True)]
        parts = {name: sum(marks) / len(calls) for name, marks in zip(PARTS, (valid, known, fresh), strict=True)}
        return Verdict(sum(sound) / len(calls), parts)


def _key(call: EpisodeCall) -> Any:
    return call.name, call.malformed, canonical_json(call.arguments)
