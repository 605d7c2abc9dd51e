"""One episode of a teacher behind an endpoint: played in the environment, verified, and judged fit to imitate.

The teacher sees what a policy sees: the system prompt, the task's prompt, the tools and their replies. A
task's goal, and with it the answer, is for the verifier alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.config import RetrainConfig, RolloutConfig
from tracewheel.environments import Environment, make_environment
from tracewheel.errors import InputError
from tracewheel.strict_json import parse_json
from tracewheel.types import Task, content_hash
from tracewheel.verifiers import make_verifier

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.engines.openai_chat import OpenAiChat


@dataclass
class Attempt:
    """One episode of the teacher. `success` is None when it cannot be known; `fault` says why it is not imitated."""

    key: str
    task_id: str
    sample: int
    messages: list[dict[str, Any]]
    stop_reason: str = ""
    detail: str = ""
    success: float | None = None
    fault: str = ""
    turns: int = 0
    malformed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tools: list[dict[str, Any]] = field(default_factory=list)


def play(chat: OpenAiChat, config: RetrainConfig, key: str, task: Task, sample: int) -> Attempt:
    """One episode of the teacher, verified. What goes wrong in it is in the record.

    Raises:
        InputError: the endpoint, the model or the key is wrong.
    """
    from tracewheel.engines.openai_chat import RefusedRequest

    environment = make_environment(task.environment)
    attempt = Attempt(key, task.id, sample, [])
    seed = int(content_hash([config.seed, task.id, sample], 8), 16)
    try:
        environment.reset(task)
        attempt.messages += [
            {"role": "system", "content": environment.system_prompt},
            {"role": "user", "content": task.prompt},
        ]
        attempt.tools = environment.tools()
        while not attempt.stop_reason:
            _take_turn(chat, environment, attempt, seed)
            if not attempt.stop_reason and attempt.turns >= config.rollout.max_turns:
                attempt.stop_reason = "max_turns"
    except InputError:
        raise
    except RefusedRequest as error:
        attempt.stop_reason, attempt.detail = "refused", str(error)
    except Exception as error:  # besides the endpoint, a user's environment may fail in any way
        attempt.stop_reason, attempt.detail = "infrastructure_failed", f"{type(error).__name__}: {error}"
        return attempt
    try:
        attempt.success = float(make_verifier(task.verifier).verify(task, environment.snapshot())[0])
    except Exception as error:  # a verifier may be anyone's code: whatever it raises, this episode is unscored
        attempt.detail = f"the verifier cannot judge: {type(error).__name__}: {error}"
    return attempt


def _take_turn(chat: OpenAiChat, environment: Environment, attempt: Attempt, seed: int) -> None:
    reply = chat.complete(attempt.messages, attempt.tools, seed)
    attempt.turns += 1
    attempt.prompt_tokens += reply.prompt_tokens
    attempt.completion_tokens += reply.completion_tokens
    attempt.messages.append(reply.message)
    if reply.ended_by == "length":
        attempt.stop_reason = "max_tokens"
        return
    calls = reply.message.get("tool_calls", [])
    if not calls:
        attempt.stop_reason = "no_tool_call"
        return
    for call in calls:
        arguments = _arguments(call["function"]["arguments"])
        if arguments is None:
            attempt.malformed += 1
            text = "error: malformed call: the arguments are no JSON object"
        else:
            observation = environment.step(call["function"]["name"], arguments)
            if observation.done:
                attempt.stop_reason = "finished"
                return
            text = observation.text
        name = call["function"]["name"]
        attempt.messages.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": text})


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        arguments = parse_json(text or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def find_faults(attempts: list[Attempt], renderer: ChatRenderer, config: RolloutConfig) -> None:
    """Say of each attempt why it is no demonstration, if it is none."""
    known: set[str] = set()
    for attempt in attempts:
        attempt.fault = _fault(attempt, renderer, config)
        if attempt.fault:
            continue
        same = content_hash([attempt.task_id, [_spoken(message) for message in attempt.messages]])
        attempt.fault = "same as another" if same in known else ""
        known.add(same)


def _spoken(message: dict[str, Any]) -> list[Any]:
    """A message without the ids that an endpoint gives its calls."""
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]
    return [message["role"], message.get("content"), calls]


def _fault(attempt: Attempt, renderer: ChatRenderer, config: RolloutConfig) -> str:
    if attempt.stop_reason in ("infrastructure_failed", "refused"):
        return attempt.stop_reason
    if attempt.success is None:
        return "unscored"
    if attempt.success < 1.0:
        return "failed"
    if attempt.malformed:
        return "malformed call"
    if attempt.stop_reason not in ("finished", "no_tool_call"):
        return "not ended"
    ids, mask = renderer.conversation_ids(attempt.messages, attempt.tools)
    if len(ids) > config.max_tokens:
        return "longer than rollout.max_tokens"
    stretches = "".join(map(str, mask)).split("0")
    if max(map(len, stretches)) > config.max_turn_tokens:
        return "a turn longer than rollout.max_turn_tokens"
    return ""
