"""How a judge asks a model. The client of endpoints is on a floor above, and is found by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tracewheel.core.errors import InfrastructureError
from tracewheel.core.plugins import import_class
from tracewheel.core.types import Fault
from tracewheel.scoring.verifiers.judges.criteria import JudgeModel, JudgeSettings, Limits

ENDPOINT_CLASS = "tracewheel.engines.judge_endpoint:JudgeEndpoint"
Verdict = TypeVar("Verdict")


class JudgeFailure(InfrastructureError):
    """A judge gave no usable verdict: the episode stays unscored, and nobody but the judge is to blame."""

    fault: Fault = "judge"


@dataclass(frozen=True)
class JudgeReply:
    """A model's reply: its text, and why it ended, as in `stop` or `length`."""

    text: str
    ended_by: str


class Asker(Protocol):
    """Asks the models of one judge, within its limits; a reply to the same messages is asked for once."""

    def ask(self, model: JudgeModel, messages: Sequence[dict[str, Any]], schema: dict[str, Any], seed: int) -> JudgeReply:
        """The reply.

        Args:
            model: Who is asked.
            messages: The conversation.
            schema: JSON Schema of the reply.
            seed: The draw; another seed is another reply.

        Raises:
            InputError: the endpoint, the model or the key is wrong.
            JudgeFailure: there is no reply, or the budget is reached.
        """
        ...


def asker_of(settings: JudgeSettings) -> Asker:
    """The asker of a judge; judges with the same journal and limits share one."""
    return _shared(settings.journal, settings.limits.model_dump_json())


@functools.lru_cache(maxsize=16)
def _shared(journal: str, limits: str) -> Asker:
    made: Asker = import_class(ENDPOINT_CLASS, "asker")(journal, Limits.model_validate_json(limits))
    return made


def ask_until(
    asker: Asker,
    model: JudgeModel,
    messages: Sequence[dict[str, Any]],
    schema: dict[str, Any],
    seed: int,
    again: int,
    read: Callable[[str], Verdict],
) -> Verdict:
    """A model's verdict. A reply that is none is asked for again, with another seed.

    Args:
        again: How often.
        read: Reads a reply; raises ValueError.

    Raises:
        JudgeFailure: no reply was a verdict.
    """
    problem = ""
    for attempt in range(again + 1):
        reply = asker.ask(model, messages, schema, seed + attempt)
        if reply.ended_by == "length":
            problem = f"the reply is cut off: raise max_turn_tokens, now {model.max_turn_tokens}"
            continue
        try:
            return read(reply.text)
        except ValueError as error:
            problem = str(error)
    raise JudgeFailure(f"judge {model.model}: no verdict in {again + 1} replies; the last: {problem}")
