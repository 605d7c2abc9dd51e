"""The text of a trace's task as sets of words, to compare tasks that differ in wording, numbers or layout."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SHINGLE = 3
SLOT_WEIGHT, CALL_WEIGHT = 3, 2  # weights of a name or number, and of an argument, relative to a word
STEM = 5
LONGEST_VALUE = 200
_WORD = re.compile(r"[^\W_]+(?:[-'’./_@#:&]+[^\W_]+)*")
_WORD_AND_END = re.compile(rf"({_WORD.pattern})(?:[^\w\s]*?([.!?:\n]))?")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"[\"'“‘«`]([^\"'”’»`\n]{2,60})[\"'”’»`]")
_COMMON_WORDS = """
    a about after all also am an and any are as at back be because been before but by can could did do does for from get gets go
    had has have he hello help her here hey hi him his how i if in into is it its just kindly let like made make may me must my
    need needs no not now of on once one or our over please put she should since so some sure take than thank thanks that the
    their them then there these they this those till to until up us very want wants was we were what when where which while who
    will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())


@dataclass(frozen=True)
class TaskText:
    """The user's text in a trace, and the calls with the texts and numbers of their arguments."""

    user: str
    calls: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, messages: list[dict[str, Any]], longest: int) -> TaskText:
        """The text of a trace's messages, with about `longest` characters each of user text and of calls."""
        user = unicodedata.normalize("NFKC", user_text(messages)[:longest])
        return cls(user, tuple(_calls(messages, longest)))

    def words(self) -> list[str]:
        """The user's words in lower case with numbers masked: equal for copies with other numbers or spaces."""
        return [_NUMBER.sub("#", word) for word in _WORD.findall(self.user.lower())]

    def shingles(self) -> list[str]:
        """Runs of `SHINGLE` words, and the calls by name with their arguments; numbers are masked."""
        words, names = self.words(), [name for name, _ in self.calls]
        runs = (
            {" ".join(words[start : start + SHINGLE]) for start in range(max(1, len(words) - SHINGLE + 1))} if words else set()
        )
        runs |= {f"{name}({_NUMBER.sub('#', value)})" for name, values in self.calls for value in values}
        runs |= {f"{first}>{second}" for first, second in zip(["", *names], [*names, ""], strict=True) if names}
        return sorted(runs)

    def content(self) -> list[str]:
        """Names, numbers, paths, quotations, arguments, and stems of other words: what a paraphrase keeps.

        Weights are numbers of members: a name has `SLOT_WEIGHT`, an argument `CALL_WEIGHT`.
        """
        slots = {quoted.lower() for quoted in _QUOTED.findall(self.user)}
        words = _WORD_AND_END.findall(self.user)
        stems, sentence_begins = set(), True
        for (word, end), (following, _) in zip(words, [*words[1:], ("", "")], strict=True):
            lower = word.lower()
            # A capital marks a name, except at the beginning of a sentence, unless a second capital follows.
            named = word[0].isupper() and (not sentence_begins or (following[:1].isupper() and not end))
            if not word.isalpha() or (named and lower not in _COMMON):
                slots.add(lower)
            elif lower not in _COMMON:
                stems.add(_ENDING.sub("", lower)[:STEM])
            sentence_begins = bool(end)
        arguments = {f"{name}({value})" for name, values in self.calls for value in values or ("",)}
        members = {f"{slot}*{copy}" for slot in slots for copy in range(SLOT_WEIGHT)}
        members |= {f"{argument}*{copy}" for argument in arguments for copy in range(CALL_WEIGHT)}
        return sorted(members | stems)


def user_text(messages: list[dict[str, Any]]) -> str:
    """The text of all user messages; without any, of the system messages; else of the first message with text."""
    for role in ("user", "system", "developer"):
        texts = [message["content"] for message in messages if message["role"] == role and message.get("content")]
        if texts:
            return "\n".join(texts)
    return next((message["content"] for message in messages if message.get("content")), "")


def arguments_of(call: dict[str, Any]) -> list[str]:
    """The texts and numbers of a call's arguments, as texts; the whole arguments where they are not JSON."""
    import orjson

    try:
        values = orjson.loads(call["function"]["arguments"])
    except ValueError:
        values = call["function"]["arguments"]
    return list(_leaves(values))


def _calls(messages: list[dict[str, Any]], longest: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    left = longest
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"], tuple(leaf[:LONGEST_VALUE].lower() for leaf in arguments_of(call))
            left -= len(call["function"]["arguments"])
            if left <= 0:
                return


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    elif value is not None and value != "":
        yield " ".join(str(value).split())
