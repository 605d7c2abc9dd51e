"""What a judge sees of an episode in which a text may be written for it: the episode without that text.

The screen (the wheel `screening`) finds what is blunt. It is not the defence against persuasion: that is the prompt, the
ensemble and the calibration. A suspicion costs no reward: the rest is judged, and where nothing is left a person decides.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tracewheel import Episode, fresh_copy, parse_json
from tracewheel_graders.judges.asking import JudgeFailure, plain
from tracewheel_screening import MARK, suspicions, without

NOTHING = "[no answer]"  # what a judge sees of an agent that says nothing, be it a blank or a master key
MASTER_KEYS = {
    "thought process",
    "lets solve this problem step by step",
    "lets solve this step by step",
    "lets think step by step",
    "lets think about this step by step",
    "solution",
    "the solution",
    "answer",
    "the answer is",
    "final answer",
    "the final answer is",
    "explanation",
    "reasoning",
    "step by step solution",
    "解",
    "解答",
    "かいせつ",
    "respuesta",
    "solución",
    "réponse",
    "lösung",
}


class Suspected(JudgeFailure):
    """What an agent wrote may be meant for its judge, and cannot be judged without it: unscored, and a person decides."""


@dataclass(frozen=True)
class Screened:
    """An episode as a judge may see it.

    Attributes:
        episode: Without what is suspected.
        why: What is suspected of what the agent wrote, with an excerpt; "" for nothing.
    """

    episode: Episode
    why: str


def is_master_key(text: str) -> bool:
    """Whether a text holds nothing but punctuation, blanks and openers such as "Thought process:"."""
    lines = re.split(r"[\n:.!]+", plain(text))
    return all(not (words := _words(line)) or words in MASTER_KEYS for line in lines)


def screened(episode: Episode) -> Screened:
    """An episode without the passages that may be written for its judge, and with a master key as no answer.

    Results of tools are screened too, but an agent is not to blame for what it reads: they are no reason.

    Raises:
        Suspected: of what the agent did nothing is left.
    """
    messages = fresh_copy(list(episode.messages))
    after = messages[episode.start :]
    own = [message for message in after if message["role"] == "assistant"]
    words = [(message, "content") for message in own if message.get("content")]
    others = [(message, "content") for message in after if message["role"] != "assistant" and message.get("content")]
    seen = _cleared(words, prose=True)
    functions = [call["function"] for message in own for call in message.get("tool_calls") or ()]
    seen += _cleared_calls(functions)
    _cleared(others, prose=False)
    why = f"{seen[0].rule}: '{seen[0].excerpt.strip()[:60]}'" if seen else ""
    last = own[-1] if own else {}
    said = episode.final_text
    if is_master_key(said) and (said.strip() or not functions):
        last["content"] = NOTHING
        why = why or (f"'{said.strip()[:40]}' is a master key" if said.strip() else "says nothing: it is empty")
    elif seen and not functions and all(is_master_key(message["content"].replace(MARK, "")) for message, _ in words):
        raise Suspected(f"all that it says may be meant for the judge ({why}): a person decides")
    return Screened(replace(episode, messages=tuple(messages), final_text=last.get("content") or ""), why)


def attack_in(text: str) -> str:
    """What is suspected of a text as an agent's only words, with an excerpt; "" for nothing."""
    if is_master_key(text):
        return f"'{text.strip()[:40]}' is a master key"
    found = suspicions(text)
    return f"{found[0].rule}: '{found[0].excerpt.strip()[:60]}'" if found else ""


def _cleared(places: list[tuple[Any, Any]], *, prose: bool) -> list[Any]:
    """Take what is suspected out of texts, each given by what holds it and where; what was suspected."""
    left, found = without([holder[key] for holder, key in places], prose=prose)
    for (holder, key), text in zip(places, left, strict=True):
        holder[key] = text
    return found


def _cleared_calls(functions: list[dict[str, Any]]) -> list[Any]:
    """Take what is suspected out of names and arguments of calls; what was suspected. Arguments that are no JSON are text."""
    places: list[tuple[Any, Any]] = [(function, "name") for function in functions]
    parsed = [(function, [_parsed(function["arguments"])]) for function in functions]
    for function, held in parsed:
        places += list(_texts(held, 0)) if isinstance(held[0], dict | list) else [(function, "arguments")]
    found = _cleared(places, prose=False)
    for function, held in parsed:
        names = "\n".join(_names(held[0]))
        if named := suspicions(names, prose=False):
            function["arguments"] = MARK
            found += named
        elif found and isinstance(held[0], dict | list):
            function["arguments"] = json.dumps(held[0], ensure_ascii=False)
    return found


def _parsed(arguments: str) -> Any:
    try:
        return parse_json(arguments or "{}")
    except ValueError:
        return arguments


def _texts(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Where in a value there are texts."""
    value = holder[key]
    if isinstance(value, str):
        yield holder, key
    elif isinstance(value, dict | list):
        for inner in value if isinstance(value, dict) else range(len(value)):
            yield from _texts(value, inner)


def _names(value: Any) -> Iterator[str]:
    """The names of the fields in a value."""
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(inner)


def _words(line: str) -> str:
    kept = "".join(
        c for c in line.casefold() if unicodedata.category(c) not in ("Sk", "So") and unicodedata.category(c)[0] not in "PC"
    )
    return " ".join(kept.split())
