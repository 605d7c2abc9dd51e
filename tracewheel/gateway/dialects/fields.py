"""Reads the fields of a request.

Reading is strict. What is wrong is refused in the vendors' words, with the field's name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

from tracewheel.gateway.exchange import AnswerForm, Refusal
from tracewheel.traces.readers.media import placeholder

TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
FORMS = ("text", "json_object", "json_schema")
OBJECT: dict[str, Any] = {"type": "object"}
# How the vendors and other servers draw tokens. The door draws as its profile says, whatever a program asks.
SAMPLING = {"top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "length_penalty", "logit_bias"}
SAMPLING |= {"min_tokens", "chat_template_kwargs"}
SERVED = {"web_search_options", "mcp_servers", "container"}  # tools that run at the vendor, and where; the policy has none


class Fields:
    """An object in a request body. A field that is null counts as not given, as the vendors have it.

    Args:
        value: The value, which must be an object.
        path: Where it stands, as in `messages[2]`; empty for the body itself.
        dropped: What of the whole body is left out; all its objects share it.

    Raises:
        Refusal: from all methods, where a field has another type or value than it may.
    """

    def __init__(self, value: Any, path: str = "", dropped: set[str] | None = None) -> None:
        if not isinstance(value, dict):
            raise Refusal.wrong_type(value, "an object", path or "body")
        self.value, self.path = value, path
        self.dropped = set() if dropped is None else dropped

    def at(self, name: str) -> str:
        """Where a field stands."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Any:
        """A field of any type; None where it is not given."""
        return self.value.get(name)

    def missing(self, name: str) -> Refusal:
        """The refusal of an object without this field."""
        return Refusal.invalid(f"Missing required parameter: '{self.at(name)}'.", self.at(name), "missing_required_parameter")

    def text(self, name: str) -> str:
        """A text that must be given."""
        found = self.optional_text(name)
        if found is None:
            raise self.missing(name)
        return found

    def optional_text(self, name: str) -> str | None:
        """A text, or None."""
        found = self.value.get(name)
        if found is not None and not isinstance(found, str):
            raise Refusal.wrong_type(found, "a string", self.at(name))
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether something is on."""
        found = self.value.get(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise Refusal.wrong_type(found, "a boolean", self.at(name))
        return found

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """A whole number within bounds, or None."""
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int):
            raise Refusal.wrong_type(found, "an integer", self.at(name))
        self._check_bounds(name, found, least, most)
        return found

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number within bounds, or None."""
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise Refusal.wrong_type(found, "a number", self.at(name))
        self._check_bounds(name, found, least, most)
        return float(found)

    def _check_bounds(self, name: str, found: float, least: float, most: float | None) -> None:
        kind = "integer" if isinstance(found, int) else "decimal"
        for is_wrong, side, sign, bound in (
            (found < least, "below minimum", ">=", least),
            (most is not None and found > most, "above maximum", "<=", most),
        ):
            if is_wrong:
                code = f"{kind}_{side.replace('minimum', 'min').replace('maximum', 'max').replace(' ', '_')}_value"
                text = f"Invalid '{self.at(name)}': {kind} {side} value. Expected a value {sign} {bound:g}, but got {found:g}."
                raise Refusal.invalid(text, self.at(name), code)

    def choice(self, name: str, known: Collection[str]) -> str | None:
        """One of some words, or None."""
        found = self.optional_text(name)
        if found is not None and found not in known:
            raise Refusal.wrong_value(found, known, self.at(name))
        return found

    def inner(self, name: str) -> Self | None:
        """An object, or None."""
        found = self.value.get(name)
        return None if found is None else type(self)(found, self.at(name), self.dropped)

    def needed(self, name: str) -> Self:
        """An object that must be given."""
        found = self.inner(name)
        if found is None:
            raise self.missing(name)
        return found

    def listed(self, name: str) -> list[Any]:
        """A list of anything; empty where it is not given."""
        found = self.value.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise Refusal.wrong_type(found, "an array of objects", self.at(name))
        return found

    def objects(self, name: str) -> Iterator[Self]:
        """The objects of a list."""
        for position, one in enumerate(self.listed(name)):
            yield type(self)(one, f"{self.at(name)}[{position}]", self.dropped)

    def texts(self, name: str, most: int | None = None) -> tuple[str, ...]:
        """A list of texts, or a bare text as a list of one."""
        found = self.value.get(name)
        if found is None:
            return ()
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise Refusal.wrong_type(self.value[name], "a string or an array of strings", self.at(name))
        if most is not None and len(found) > most:
            text = f"array too long. Expected an array with maximum length {most}, but got an array with length {len(found)}"
            raise Refusal.invalid(f"Invalid '{self.at(name)}': {text} instead.", self.at(name), "array_above_max_length")
        if "" in found:
            raise Refusal.invalid(f"Invalid '{self.at(name)}': a stop text cannot be empty.", self.at(name), "invalid_value")
        return tuple(found)

    def check_known(self, known: Collection[str], neutral: Mapping[str, tuple[Any, ...]]) -> None:
        """Check that there are no other fields than the known ones.

        Args:
            known: Fields that are read, and those that change nothing here.
            neutral: Fields that this door has not, with the values that ask for nothing.
        """
        for name, value in self.value.items():
            if name in SAMPLING | SERVED:
                self.dropped |= {name} if value else set()
            elif name in neutral:
                if value is not None and value not in neutral[name]:
                    allowed = "".join(f", {one!r} is accepted" for one in neutral[name][:1])
                    raise Refusal.unsupported(f"not supported by this endpoint{allowed}", self.at(name))
            elif name not in known:
                raise Refusal.invalid(f"Unknown parameter: '{self.at(name):.80}'.", self.at(name)[:80], "unknown_parameter")

    def content(self, name: str) -> str:
        """A content: a text, or parts of text, which are joined; "" where it is not given.

        Raises:
            Refusal: it holds a part that is not text.
        """
        content = self.get(name)
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list):
            raise Refusal.wrong_type(content, "one of a string or array of objects", self.at(name))
        return "".join(part.part_text() for part in self.objects(name))

    def part_text(self) -> str:
        """The text of this content part; what stands for an image, audio or a file.

        Raises:
            Refusal: the part is unknown.
        """
        kind = self.text("type")
        if kind in TEXT_PARTS:
            return self.text("refusal" if kind == "refusal" else "text")
        shown = self.stand_in(kind, self.value)
        if shown is None:
            raise Refusal.wrong_value(kind, ("text",), self.at("type"))
        return shown

    def stand_in(self, kind: str, part: dict[str, Any]) -> str | None:
        """What stands for an image, audio or a file, which counts as dropped; None for else. A file of text is text."""
        shown = placeholder(part)
        if shown is not None and shown.startswith("["):
            self.dropped.add(kind)
        return shown

    def schema_form(self) -> AnswerForm:
        """The form of an answer whose JSON schema stands in the field `schema`; any object without."""
        schema = self.inner("schema")
        return AnswerForm(json.dumps(OBJECT if schema is None else schema.value), self.at("schema"))

    def openai_form(self, name: str, *, nested: bool) -> AnswerForm | None:
        """The form of an answer in OpenAI's words; None for any text.

        Args:
            name: The field.
            nested: Whether the schema stands in an object of its own, as in Chat Completions, or beside the type.

        Raises:
            Refusal: it is none of the protocol's.
        """
        given = self.inner(name)
        if given is None or (kind := given.text("type")) == "text":
            return None
        if kind not in FORMS:
            raise Refusal.wrong_value(kind, FORMS, given.at("type"))
        if kind == "json_object":
            return AnswerForm(json.dumps(OBJECT), given.path)
        holder = given.needed("json_schema") if nested else given
        holder.text("name")
        holder.flag("strict")
        return holder.schema_form()
