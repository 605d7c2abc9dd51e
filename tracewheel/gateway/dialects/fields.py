"""Reads the fields of a request body strictly. What is wrong is refused in the vendors' words, with the field's name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tracewheel.gateway.exchange import Refusal

NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}


def refuse(message: str, param: str | None, code: str | None = None) -> Refusal:
    """The refusal of a request that is wrong in the field `param`."""
    return Refusal("invalid_request", message, param, code=code)


def wrong_type(value: Any, wanted: str, param: str) -> Refusal:
    """The refusal of a value of another type than the vendor documents."""
    got = "null" if value is None else NAMES.get(type(value), type(value).__name__)
    return refuse(f"Invalid type for '{param}': expected {wanted}, but got {got} instead.", param, "invalid_type")


def wrong_value(value: Any, known: Collection[str], param: str) -> Refusal:
    """The refusal of a value that is none of the known ones."""
    supported = ", ".join(f"'{one}'" for one in known)
    return refuse(f"Invalid value: {value!r:.80}. Supported values are: {supported}.", param, "invalid_value")


def unsupported(what: str, param: str) -> Refusal:
    """The refusal of something that the vendor has and this door has not."""
    return refuse(f"Unsupported parameter: '{param}': {what}.", param, "unsupported_parameter")


class Fields:
    """An object in a request body. A field that is null counts as not given, as the vendors have it.

    Args:
        value: The value, which must be an object.
        path: Where it stands, as in `messages[2]`; empty for the body itself.

    Raises:
        Refusal: from all methods, where a field has another type or value than it may.
    """

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, dict):
            raise wrong_type(value, "an object", path or "body")
        self.value, self.path = value, path

    def at(self, name: str) -> str:
        """Where a field stands."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Any:
        """A field of any type; None where it is not given."""
        return self.value.get(name)

    def missing(self, name: str) -> Refusal:
        """The refusal of an object without this field."""
        return refuse(f"Missing required parameter: '{self.at(name)}'.", self.at(name), "missing_required_parameter")

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
            raise wrong_type(found, "a string", self.at(name))
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether something is on."""
        found = self.value.get(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise wrong_type(found, "a boolean", self.at(name))
        return found

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """A whole number within bounds, or None."""
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int):
            raise wrong_type(found, "an integer", self.at(name))
        self._check_bounds(name, found, least, most)
        return found

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number within bounds, or None."""
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise wrong_type(found, "a number", self.at(name))
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
                raise refuse(text, self.at(name), code)

    def choice(self, name: str, known: Collection[str]) -> str | None:
        """One of some words, or None."""
        found = self.optional_text(name)
        if found is not None and found not in known:
            raise wrong_value(found, known, self.at(name))
        return found

    def inner(self, name: str) -> Fields | None:
        """An object, or None."""
        found = self.value.get(name)
        return None if found is None else Fields(found, self.at(name))

    def needed(self, name: str) -> Fields:
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
            raise wrong_type(found, "an array of objects", self.at(name))
        return found

    def objects(self, name: str) -> Iterator[Fields]:
        """The objects of a list."""
        for position, one in enumerate(self.listed(name)):
            yield Fields(one, f"{self.at(name)}[{position}]")

    def texts(self, name: str, most: int | None = None) -> tuple[str, ...]:
        """A list of texts, or a bare text as a list of one."""
        found = self.value.get(name)
        if found is None:
            return ()
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise wrong_type(self.value[name], "a string or an array of strings", self.at(name))
        if most is not None and len(found) > most:
            text = f"array too long. Expected an array with maximum length {most}, but got an array with length {len(found)}"
            raise refuse(f"Invalid '{self.at(name)}': {text} instead.", self.at(name), "array_above_max_length")
        if "" in found:
            raise refuse(f"Invalid '{self.at(name)}': a stop text cannot be empty.", self.at(name), "invalid_value")
        return tuple(found)

    def check_known(self, known: Collection[str], neutral: Mapping[str, tuple[Any, ...]]) -> None:
        """Check that there are no other fields than the known ones.

        Args:
            known: Fields that are read, and those that change nothing here.
            neutral: Fields that this door has not, with the values that ask for nothing.
        """
        for name, value in self.value.items():
            if name in neutral:
                if value is not None and value not in neutral[name]:
                    allowed = "".join(f", {one!r} is accepted" for one in neutral[name][:1])
                    raise unsupported(f"not supported by this endpoint{allowed}", self.at(name))
            elif name not in known:
                raise refuse(f"Unknown parameter: '{self.at(name):.80}'.", self.at(name)[:80], "unknown_parameter")
