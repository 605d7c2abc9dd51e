"""The form of what an agent said: tags, JSON Schema, thinking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

from pydantic import field_validator, model_validator

from tracewheel.config.base import Strict
from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Task, canonical_json
from tracewheel.scoring.json_equality import GONE
from tracewheel.scoring.verifiers.base import AnswerArgs, has_thinking, shown, spoken
from tracewheel.scoring.verifiers.episode import Episode, Verdict


class RegexArgs(AnswerArgs):
    """`pattern`, in RE2's syntax; without one the goal holds it, at the key `gold`."""

    pattern: str | None = None

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            compiled(pattern)
        return pattern


class RegexVerifier:
    r"""1 where the whole answer matches, from its first character to its last.

    >>> from tracewheel.scoring.verifiers.episode import episode_from
    >>> task = Task("t1", "chat", "dates", 1, "When?", {}, {}, "regex", "t1")
    >>> verifier = RegexVerifier(RegexArgs(pattern=r"(?i)\d{4}-\d\d-\d\d|unknown"))
    >>> said = ("2024-05-01", "It was 2024-05-01.")
    >>> [verifier.verify_episode(task, episode_from([{"role": "assistant", "content": text}], 0, {})).total for text in said]
    [1.0, 0.0]

    A pattern that matched anywhere would pay for an answer that lists every candidate. RE2 takes time linear in the text, so no
    answer can hang it. Only text matches: a number of a state does not.

    Raises:
        KeyError: there is no pattern.
        ValueError: the goal's is none of RE2.
    """

    kind = "regex"
    Args = RegexArgs

    def __init__(self, args: RegexArgs | None = None) -> None:
        self._args = args or RegexArgs()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        pattern = self._args.pattern if self._args.pattern is not None else self._args.wanted(task)
        answer = self._args.answer(episode)
        try:
            wanted = compiled(pattern)
        except ValueError as error:
            raise ValueError(f"the goal's pattern {pattern!r}: {error}") from error
        try:
            matches = isinstance(answer, str) and wanted.fullmatch(answer) is not None
        except UnicodeError:  # half of a surrogate pair is no text
            matches = False
        return Verdict(float(matches), {"answered": float(answer is not GONE)}, shown(answer))


def compiled(pattern: str) -> Any:
    """A pattern of RE2, which takes linear time on any text.

    Raises:
        ValueError: it is none.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, TypeError, UnicodeError) as error:
        raise ValueError(f"not a pattern of RE2, which has no look-around and no backreferences: {error}") from error


UNREAD = ("$ref", "$dynamicRef", "patternProperties")


class FormatArgs(Strict):
    """What is asked for; at least one of the three.

    `tags`: the last turn's text is made of these tags, `<tag>...</tag>`, each once and in this order, with nothing
    but white space between. `json_schema`: that text is JSON which the schema accepts. `thinking`: it is `present` in
    every turn, or `absent` from all. A schema's patterns are RE2's, which take linear time.
    """

    tags: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    thinking: Literal["present", "absent"] | None = None

    @field_validator("json_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            import jsonschema

            for word in UNREAD:
                if word in json.dumps(schema):
                    raise ValueError(f"a schema with {word} is not read: write the parts out")
            try:
                jsonschema.Draft202012Validator.check_schema(schema)
                _validator(schema).is_valid("")  # reads patterns
            except jsonschema.SchemaError as error:
                raise ValueError(f"not a JSON Schema: {error.message}") from error
        return schema

    @model_validator(mode="after")
    def _check_any(self) -> FormatArgs:
        if not self.tags and self.json_schema is None and self.thinking is None:
            raise ValueError("ask for something: tags, json_schema or thinking")
        return self


class FormatVerifier:
    """1 where an episode has the form that is asked for.

    >>> from tracewheel.scoring.verifiers.episode import episode_from
    >>> task = Task("t1", "chat", "qa", 1, "Where?", {}, {}, "format", "t1")
    >>> episode = episode_from([{"role": "assistant", "content": "<why>Maps.</why> <answer>Oslo</answer>"}], 0, {})
    >>> FormatVerifier(FormatArgs(tags=["why", "answer"])).verify_episode(task, episode).total
    1.0

    Each thing asked for is a part, 0 or 1; the total is 1 when all are. A form says nothing of what fills it: use it
    as shaping.
    """

    kind = "format"
    Args = FormatArgs

    def __init__(self, args: FormatArgs) -> None:
        self._args = args

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        args, text = self._args, spoken(episode)
        parts = {}
        if args.tags:
            parts["tags"] = float(_is_tagged(text, args.tags))
        if args.json_schema is not None:
            parts["json_schema"] = float(_fits(text, args.json_schema))
        if args.thinking:
            own = [message for message in episode.messages[episode.start :] if message["role"] == "assistant"]
            thought = [has_thinking(message) for message in own]
            parts["thinking"] = float(bool(own) and (all(thought) if args.thinking == "present" else not any(thought)))
        return Verdict(float(all(parts.values())), parts)


def _is_tagged(text: str, tags: tuple[str, ...]) -> bool:
    rest = text
    for tag in tags:
        rest = rest.lstrip()
        inner, closed, after = rest.removeprefix(f"<{tag}>").partition(f"</{tag}>")
        if not rest.startswith(f"<{tag}>") or not closed or not inner.strip():
            return False
        if any(mark in inner for other in tags for mark in (f"<{other}>", f"</{other}>")):
            return False
        rest = after
    return not rest.strip()


def _fits(text: str, schema: dict[str, Any]) -> bool:
    try:
        return bool(_validator(schema).is_valid(parse_json(text)))
    except ValueError:
        return False


def _validator(schema: dict[str, Any]) -> Any:
    """A validator that no text makes slow: jsonschema's own patterns backtrack, and it compares all pairs of unlike items."""
    import jsonschema

    def pattern(validator: Any, wanted: str, instance: Any, _schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not compiled(wanted).search(instance):
            yield jsonschema.ValidationError("no match")

    def unique_items(validator: Any, wanted: bool, instance: Any, _schema: Any) -> Iterator[Any]:
        if wanted and validator.is_type(instance, "array"):
            texts = sorted(canonical_json(_numbers_by_value(item)) for item in instance)
            if any(one == other for one, other in pairwise(texts)):
                yield jsonschema.ValidationError("an item twice")

    own = {"pattern": pattern, "uniqueItems": unique_items}
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, own)(schema)


def _numbers_by_value(value: Any) -> Any:
    """JSON with each whole number as an integer: for a schema 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _numbers_by_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers_by_value(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
