"""Plays given calls for the audit, and tells whether two ends of an episode are the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracewheel import TEXT_TURN, Environment, OutcomeTeller, Task, Verdict, episode_from, fresh_copy, play_calls, verdict_of

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Played:
    """An episode of the audit.

    Attributes:
        calls: What was tried, the calls after the episode's end included.
        messages: The conversation; `start` is the position of the agent's first own message.
        state: The final state.
        end: Text that is equal for episodes that end alike: what counts of the state, and the agent's answer where it
            answers in words.
    """

    calls: tuple[Call, ...]
    messages: tuple[dict[str, Any], ...]
    start: int
    state: dict[str, Any]
    end: str

    def saying(self, text: str) -> Played:
        """The same episode, in whose last message the agent also says something; it said nothing there before."""
        messages = fresh_copy(list(self.messages))
        own = [message for message in messages[self.start :] if message["role"] == "assistant"]
        if own:
            own[-1]["content"] = text
        else:
            messages.append({"role": "assistant", "content": text})
        return replace(self, messages=tuple(messages))

    def record(self) -> dict[str, Any]:
        """What a verifier needs of it, as JSON types."""
        return {"messages": list(self.messages), "start": self.start, "state": self.state}


class Stage:
    """An environment on which episodes of one task are played.

    Args:
        environment: The environment.
        task: The task.
        in_words: Whether the task is solved by what is said at the end, and not by a call.
    """

    def __init__(self, environment: Environment, task: Task, *, in_words: bool = False) -> None:
        self._environment, self._task, self._in_words = environment, task, in_words
        self.tells = isinstance(environment, OutcomeTeller)
        self._start: int | None = None  # known once an episode was opened

    def play(self, calls: Sequence[Call]) -> Played:
        """The episode of these calls; none are carried out after its end.

        Raises:
            Exception: whatever the environment raises.
        """
        environment, task = self._environment, self._task
        if self._start is None:
            self._start = len(play_calls(environment, task, ()))
        start, messages = self._start, play_calls(environment, task, calls)
        turns = sum(message["role"] == "assistant" for message in messages[start:])
        tool, args = calls[turns - 1] if turns else ("", {})
        answer = str(args.get("text", "")) if self._in_words and tool == TEXT_TURN else ""
        state = environment.snapshot()
        return Played(tuple(calls), tuple(messages), start, state, self.end(state, answer))

    def end(self, state: dict[str, Any], answer: str = "") -> str:
        """Text that is equal for ends that are alike."""
        environment = self._environment
        told = environment.outcome(self._task, state) if isinstance(environment, OutcomeTeller) else state
        return json.dumps([told, answer], sort_keys=True, ensure_ascii=False, default=repr)


def judged(verifier: Any, task: Task, episode: dict[str, Any]) -> Verdict:
    """A verifier's result for the record of an episode.

    Raises:
        Exception: whatever the verifier raises.
    """
    messages, start, state = episode["messages"], episode["start"], fresh_copy(episode["state"])
    return verdict_of(verifier, task, state, lambda: episode_from(messages, start, state))
