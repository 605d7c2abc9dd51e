"""Equality of a JSON answer with the goal's."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tracewheel import AnswerArgs, Episode, Task, Verdict, parse_json, same_json

FENCE = "```"
_NOTHING = object()  # no answer, or none that is JSON


class JsonEqualArgs(AnswerArgs):
    """What of two JSON values does not count: `ignore` names keys at any depth, `unordered` the order of lists.

    `tolerance`: numbers may differ by so much, whether whole or not; without it 1 is not 1.0. `fenced`: the JSON may stand in a
    Markdown fence that is all of the text.
    """

    ignore: tuple[str, ...] = ()
    unordered: bool = False
    tolerance: Annotated[float, Field(ge=0.0)] | None = None
    fenced: bool = False


class JsonEqualVerifier:
    """1 where the answer is JSON that equals the goal's, types included.

    >>> from tracewheel import episode_from
    >>> task = Task("t1", "chat", "rows", 1, "List them.", {}, {"answer": {"rows": [1, 2]}}, "json_equal", "t1")
    >>> episode = episode_from([{"role": "assistant", "content": '{"rows": [2, 1]}'}], 0, {})
    >>> verdict = JsonEqualVerifier(JsonEqualArgs(unordered=True)).verify_episode(task, episode)
    >>> verdict.total, verdict.parts
    (1.0, {'json': 1.0, 'equal': 1.0})

    A text must be one JSON value and nothing else. The parts: whether it is JSON, and whether it is equal.

    Raises:
        KeyError: the goal has no such key.
    """

    kind = "json_equal"
    Args = JsonEqualArgs

    def __init__(self, args: JsonEqualArgs | None = None) -> None:
        self._args = args or JsonEqualArgs()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        args = self._args
        wanted, answer = args.wanted(task), args.answer(episode, _NOTHING)
        value, why = self._value(answer)
        equal = value is not _NOTHING and same_json(value, wanted, args.tolerance, args.unordered, args.ignore)
        parts = {"json": float(value is not _NOTHING), "equal": float(equal)}
        return Verdict(float(equal), parts, "" if answer is _NOTHING else str(answer), why)

    def _value(self, answer: Any) -> tuple[Any, str]:
        if not isinstance(answer, str) or self._args.place != "text":
            return answer, ""
        text = answer
        if self._args.fenced and text.startswith(FENCE) and text.endswith(FENCE) and "\n" in text:
            text = text.partition("\n")[2].removesuffix(FENCE)
        try:
            return parse_json(text), ""
        except ValueError as error:
            return _NOTHING, f"not JSON: {error}"
