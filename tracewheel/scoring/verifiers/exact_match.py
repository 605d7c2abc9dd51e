"""Exact match of an answer, after the normalisation that is asked for."""

from __future__ import annotations

import string
from typing import Any, Literal

from tracewheel.core.types import Task
from tracewheel.scoring.json_equality import GONE, same_json
from tracewheel.scoring.verifiers.answer_match import normalised, same_once
from tracewheel.scoring.verifiers.answers import AnswerArgs, answer_of, gold_of, shown
from tracewheel.scoring.verifiers.episode import Episode, Verdict


class ExactMatchArgs(AnswerArgs):
    """How texts are normalised before they are compared; `squad` is all of the others and leaves out English articles."""

    normalise: tuple[Literal["whitespace", "case", "punctuation", "squad"], ...] = ("whitespace",)


class ExactMatchVerifier:
    """1 where the answer is the goal's, or one of the goal's where that is a list.

    >>> from tracewheel.scoring.verifiers.episode import episode_from
    >>> task = Task("t1", "chat", "places", 1, "Which city?", {}, {"answer": ["The Hague", "Den Haag"]}, "exact_match", "t1")
    >>> episode = episode_from([{"role": "assistant", "content": "den haag "}], 0, {})
    >>> ExactMatchVerifier(ExactMatchArgs(normalise=["whitespace", "case"])).verify_episode(task, episode).total
    1.0

    Types are strict: a goal that is a number is not met by its text, nor true by 1. `whitespace` takes it off the
    ends and makes it single within, `case` ignores it, `punctuation` leaves out ASCII punctuation. An answer of which
    nothing is left is right only where it is the goal's letter by letter: "a" for "A" with `squad`, but no empty answer.

    Raises:
        KeyError: the goal has no such key.
    """

    kind = "exact_match"
    Args = ExactMatchArgs

    def __init__(self, args: ExactMatchArgs | None = None) -> None:
        self._args = args or ExactMatchArgs()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        wanted, answer = gold_of(self._args, task), answer_of(self._args, episode)
        accepted = wanted if isinstance(wanted, list) else [wanted]
        right = answer is not GONE and any(self._same(answer, one) for one in accepted)
        return Verdict(float(right), {"answered": float(answer is not GONE)}, shown(answer))

    def _same(self, answer: Any, wanted: Any) -> bool:
        if isinstance(answer, str) and isinstance(wanted, str):
            return same_once(self._normal, answer, wanted)
        return same_json(answer, wanted)

    def _normal(self, text: str) -> str:
        chosen = self._args.normalise
        if "squad" in chosen:
            return normalised(text)
        if "case" in chosen:
            text = text.casefold()
        if "punctuation" in chosen:
            text = text.translate(str.maketrans("", "", string.punctuation))
        return " ".join(text.split()) if "whitespace" in chosen else text
