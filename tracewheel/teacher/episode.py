"""One episode of a model behind an endpoint, played in the environment.

The model sees what a policy sees: the system prompt, the task's prompt, the tools and their replies. A task's goal, and
with it the answer, is for the verifier alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.errors import InputError
from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Task, canonical_json, first_turn
from tracewheel.engines.chat_reply import Message, Reply
from tracewheel.environments import Environment, make_environment, opening_messages

Speak = Callable[[list[Message], list[dict[str, Any]]], Reply]
# Stop reasons of an episode that another try may bring to an end.
UNFINISHED = ("infrastructure_failed", "budget")


@dataclass(frozen=True)
class Wanted:
    """An episode to be played; `key` tells it from all others, whatever command plays it."""

    key: str
    task: Task
    sample: int
    seed: int
    temperature: float


@dataclass
class Attempt:
    """An episode that was played, however it went.

    `turns` has for each of the model's turns its `calls`, how many of them were `malformed`, and its reply's `usage`,
    `tokens` and `without_tokens` (see `Reply`). `final_state` is None where the machinery failed.
    """

    key: str
    task_id: str
    sample: int
    seed: int
    temperature: float
    messages: list[Message] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str = ""
    detail: str = ""
    final_state: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether it came to an end of its own."""
        return self.stop_reason not in UNFINISHED

    @property
    def malformed(self) -> int:
        return sum(turn["malformed"] for turn in self.turns)

    @property
    def opening(self) -> int:
        """How many of the messages are an earlier conversation, in which someone else was the assistant; 0 without one.

        What follows them begins with the task's prompt.
        """
        before = first_turn(self.messages, self.turns)
        spoken = any(message["role"] == "assistant" for message in self.messages[:before])
        return before - 1 if spoken else 0


def play(speak: Speak, wanted: Wanted, max_turns: int) -> Attempt:
    """Play one episode. What goes wrong in it is in the record.

    Args:
        speak: What the model says to a conversation and tools.
        wanted: Which episode.
        max_turns: After so many turns it ends.

    Raises:
        InputError: the endpoint, the model or the key is wrong.
    """
    from tracewheel.engines.openai_chat import RefusedRequest, TooLong
    from tracewheel.engines.spending import BudgetReached

    attempt = Attempt(wanted.key, wanted.task.id, wanted.sample, wanted.seed, wanted.temperature)
    try:
        environment = make_environment(wanted.task.environment)
        environment.reset(wanted.task)
        attempt.messages += opening_messages(environment, wanted.task)
        attempt.tools = environment.tools()
        try:
            while not attempt.stop_reason:
                _take_turn(speak, environment, attempt)
                if not attempt.stop_reason and len(attempt.turns) >= max_turns:
                    attempt.stop_reason = "max_turns"
        except TooLong as error:
            attempt.stop_reason, attempt.detail = "max_tokens", str(error)
        except RefusedRequest as error:
            attempt.stop_reason, attempt.detail = "refused", str(error)
        state = environment.snapshot()
        canonical_json(state)  # what cannot be stored cannot be judged later
        attempt.final_state = state
    except InputError:
        raise
    except BudgetReached as error:
        attempt.stop_reason, attempt.detail = "budget", str(error)
    except Exception as error:  # besides the endpoint, a user's environment may fail in any way
        attempt.stop_reason, attempt.detail = "infrastructure_failed", f"{type(error).__name__}: {error}"
    return attempt


def _take_turn(speak: Speak, environment: Environment, attempt: Attempt) -> None:
    reply = speak(attempt.messages, attempt.tools)
    calls = reply.message.get("tool_calls", [])
    arguments = [_arguments(call["function"]["arguments"]) for call in calls]
    record = reply.to_record()
    turn = {name: record[name] for name in ("usage", "tokens", "without_tokens")}
    attempt.turns.append({"calls": len(calls), "malformed": arguments.count(None), **turn})
    attempt.messages.append(reply.message)
    if reply.ended_by == "length":
        attempt.stop_reason = "max_tokens"
        return
    if not calls:
        attempt.stop_reason = "no_tool_call"
        return
    for call, given in zip(calls, arguments, strict=True):
        name = call["function"]["name"]
        if given is None:
            text = "error: malformed call: the arguments are no JSON object"
        else:
            observation = environment.step(name, given)
            if observation.done:
                attempt.stop_reason = "finished"
                return
            text = observation.text
        attempt.messages.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": text})


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        arguments = parse_json(text or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None
