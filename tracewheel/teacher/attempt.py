"""One episode of a model behind an endpoint.

The model sees what a policy sees: the system prompt, the task's prompt, the tools and their results. The task's goal,
and with it the answer, is for the verifier alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.errors import InputError, TimeLimitError
from tracewheel.core.strict_json import parse_json
from tracewheel.core.time_limits import WatchedThreads
from tracewheel.core.types import Fault, first_turn
from tracewheel.engines.chat_reply import Message, Reply
from tracewheel.rollout.episode import (
    NO_LIMITS,
    UNFINISHED,
    Call,
    Ending,
    EpisodeLimits,
    EpisodeSpec,
    PolicyTurn,
    Stop,
    play,
    run_alone,
)

# Asks the model for its next reply to a conversation, given its tools.
Speak = Callable[[list[Message], list[dict[str, Any]]], Reply]
MALFORMED = "error: malformed call: the arguments are no JSON object"


@dataclass(frozen=True)
class EndpointEpisode(EpisodeSpec):
    """An episode for a model behind an endpoint; `key` identifies it, whatever command plays it."""

    key: str


@dataclass
class Attempt:
    """An episode that was played, however it ended.

    `turns` has for each of the model's turns its `calls`, how many of them were `malformed`, its reply's `usage`, `tokens`
    and `without_tokens` (see `Reply`), and where the environment gave any, its `reward` and `errors` (see `Turn`).
    `final_state` is None where the machinery failed.
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
    fault: Fault = ""
    traceback: str = ""
    final_state: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether the episode ended by itself."""
        return self.stop_reason not in UNFINISHED

    @property
    def malformed(self) -> int:
        return sum(turn["malformed"] for turn in self.turns)

    @property
    def opening(self) -> int:
        """How many of the messages are an earlier conversation, in which someone else was the assistant; 0 without one.

        The task's prompt follows them.
        """
        before = first_turn(self.messages, self.turns)
        spoken = any(message["role"] == "assistant" for message in self.messages[:before])
        return before - 1 if spoken else 0


class ChatTranscript:
    """The `Transcript` of a model behind an endpoint: its messages, and the usage of each reply.

    Args:
        speak: Gives the model's replies.
    """

    def __init__(self, speak: Speak) -> None:
        self.messages: list[Message] = []
        self.tools: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.asked = False
        self._speak = speak

    def open(self, messages: list[Message], tools: list[dict[str, Any]]) -> Stop | None:
        self.messages, self.tools = messages, tools
        return None

    def reply(self) -> Reply | Stop:
        """The model's next turn, or why there is none.

        Raises:
            InputError: the endpoint, the model or the key is wrong.
        """
        from tracewheel.engines.chat_reply import BudgetReached
        from tracewheel.engines.openai_chat import RefusedRequest, TooLong

        self.asked = True
        try:
            return self._speak(self.messages, self.tools)
        except InputError:
            raise
        except TooLong as error:
            return Stop("max_tokens", str(error))
        except RefusedRequest as error:
            return Stop("refused", str(error))
        except BudgetReached as error:
            return Stop("budget", str(error))
        except Exception as error:  # whatever the endpoint does, other episodes continue
            return Stop.failed(error, "machine")

    def add_turn(self, reply: Reply) -> PolicyTurn:
        calls = [_call(call) for call in reply.message.get("tool_calls", [])]
        record = reply.to_record()
        turn = {name: record[name] for name in ("usage", "tokens", "without_tokens")}
        self.turns.append({"calls": len(calls), "malformed": sum(bool(call.malformed) for call in calls), **turn})
        self.messages.append(reply.message)
        return PolicyTurn(calls, cut_off=reply.ended_by == "length", text=reply.message.get("content") or "")

    def add_results(self, results: list[Message], *, interrupted: bool) -> None:
        self.messages += results

    def observe(self, results: list[Message]) -> Stop | None:
        return None  # the endpoint alone knows when its context is full


def attempt_episode(speak: Speak, episode: EndpointEpisode, max_turns: int, limits: EpisodeLimits = NO_LIMITS) -> Attempt:
    """Play one episode; the record holds any failure.

    Args:
        speak: Gives the model's replies.
        episode: Which episode.
        max_turns: How many turns it may have.
        limits: How long its environment may take; the endpoint has time limits of its own.

    Raises:
        InputError: the endpoint, the model or the key is wrong, or the environment does not accept the task.
        TimeLimitError: too many environments hang.
    """
    transcript = ChatTranscript(speak)
    tools = WatchedThreads(1) if limits.step_seconds or limits.episode_seconds else None
    try:
        ending = run_alone(play(episode.task, transcript, max_turns, limits), transcript.reply, tools)
    except (InputError, TimeLimitError):
        raise
    except Exception as error:  # an environment that cannot be made, or has no tools
        ending = Ending(Stop.failed(error), None)
    finally:
        if tools:
            tools.close()
    if isinstance(ending.stop.error, InputError):
        raise ending.stop.error
    attempt = Attempt(episode.key, episode.task.id, episode.sample, episode.seed, episode.temperature)
    if transcript.asked:
        attempt.messages, attempt.tools = transcript.messages, transcript.tools
        attempt.turns = ending.with_marks(transcript.turns)
    attempt.stop_reason, attempt.detail, attempt.fault = ending.stop.reason, ending.stop.detail, ending.stop.fault
    attempt.traceback = ending.stop.traceback
    attempt.final_state = ending.final_state if attempt.finished else None
    return attempt


def _call(call: dict[str, Any]) -> Call:
    name, text = call["function"]["name"], call["function"]["arguments"]
    try:
        arguments = parse_json(text or "{}")
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return Call(call["id"], name, arguments)
    return Call(call["id"], name, {}, malformed=MALFORMED)


def usage_of(attempts: Iterable[Attempt]) -> dict[str, Any]:
    """The sums over all replies of some episodes.

    Returns:
        `replies`, `prompt_tokens`, `cached_tokens` (of these), `completion_tokens`, `replies_without_usage`, and `cost`,
        None when that of any reply is not known.
    """
    usages = [turn["usage"] for attempt in attempts for turn in attempt.turns]
    sums = {name: sum(usage[name] for usage in usages) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    costs = [usage["cost"] for usage in usages]
    return {
        "replies": len(usages),
        **sums,
        "replies_without_usage": sum(not usage["known"] for usage in usages),
        "cost": None if None in costs else sum(costs),
    }
