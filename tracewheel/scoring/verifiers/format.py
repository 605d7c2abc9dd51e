"""The form of what an agent said: tags, JSON Schema, thinking."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import field_validator, model_validator

from tracewheel.config.base import Strict
from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Task
from tracewheel.scoring.verifiers.answers import has_thinking, spoken
from tracewheel.scoring.verifiers.episode import Episode, Verdict


class FormatArgs(Strict):
    """What is asked for; at least one of the three.

    `tags`: the last turn's text is made of these tags, `<tag>...</tag>`, each once and in this order, with nothing
    but white space between. `json_schema`: that text is JSON which the schema accepts. `thinking`: it is `present` in
    every turn, or `absent` from all.
    """

    tags: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    thinking: Literal["present", "absent"] | None = None

    @field_validator("json_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            import jsonschema

            if "$ref" in json.dumps(schema):
                raise ValueError("a schema with $ref is not read: write the parts out")
            try:
                jsonschema.Draft202012Validator.check_schema(schema)
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
    import jsonschema

    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(parse_json(text)))
    except ValueError:
        return False
