"""Where a verifier finds an agent's answer, and what it expects there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from tracewheel.chat.formats.base import split_thinking
from tracewheel.config.base import Strict
from tracewheel.core.types import Task
from tracewheel.scoring.json_equality import GONE, at_pointer
from tracewheel.scoring.verifiers.episode import Episode

THINKING = ("reasoning_content", "thinking", "reasoning")


class AnswerArgs(Strict):
    """Where the answer is, and where the goal holds what it should be.

    `place`: the `text` of the agent's last turn, without thinking; the final `state`, at the JSON Pointer `key`; or an argument
    of the last readable `call` of a tool, with `key` as in `answer.value`. `gold` is a key of the task's goal.
    """

    place: Literal["text", "state", "call"] = "text"
    key: str = ""
    gold: str = "answer"

    @model_validator(mode="after")
    def _check_key(self) -> AnswerArgs:
        if self.place == "call" and not all(self.key.partition(".")):
            raise ValueError("key: with place 'call' it names a tool and its argument, as in answer.value")
        if self.place == "state" and not self.key.startswith("/"):
            raise ValueError("key: with place 'state' it is a JSON Pointer, as in /answer")
        return self


def spoken(episode: Episode) -> str:
    """What the agent said in its last turn, without thinking that was left in the text."""
    return split_thinking(episode.final_text)[1].strip()


def has_thinking(message: dict[str, Any]) -> bool:
    """Whether an assistant message has thinking, apart or in its text."""
    return any(message.get(key) for key in THINKING) or bool(split_thinking(message.get("content") or "")[0])


def answer_of(args: AnswerArgs, episode: Episode) -> Any:
    """The agent's answer; `GONE` where it gave none."""
    if args.place == "state":
        return at_pointer(episode.final_state, args.key)
    if args.place == "call":
        tool, _, name = args.key.partition(".")
        made = [call for call in episode.calls if call.name == tool and not call.malformed]
        return made[-1].arguments.get(name, GONE) if made else GONE
    return spoken(episode) or GONE


def gold_of(args: AnswerArgs, task: Task) -> Any:
    """What the goal holds.

    Raises:
        KeyError: it has no such key; the episode stays unscored.
    """
    if args.gold not in task.goal:
        raise KeyError(f"the task's goal has no '{args.gold}', which args.gold names")
    return task.goal[args.gold]


def shown(answer: Any) -> str:
    """An answer for people who read the score."""
    return "" if answer is GONE else str(answer)
