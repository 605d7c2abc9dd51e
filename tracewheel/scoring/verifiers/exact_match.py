"""Exact match of an answer, after the normalisation that is asked for."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from tracewheel.config.base import Strict
from tracewheel.core.types import Task
from tracewheel.scoring.json_equality import GONE, same_json
from tracewheel.scoring.verifiers.base import AnswerArgs, shown
from tracewheel.scoring.verifiers.episode import Episode, Verdict

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
CLOSED_ANSWERS = ("yes", "no", "noanswer")
Script = Literal["hotpotqa", "squad_v1", "squad_v2"]
NOTHING = (0.0, 0.0, 0.0)


def normalised(answer: str) -> str:
    """An answer in lower case, without ASCII punctuation and articles, with single spaces.

    In this order, as in the official scripts of SQuAD v1.1 and v2.0 (Rajpurkar et al. 2016, 2018) and HotpotQA (Yang et
    al. 2018).
    """
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, accepted: str) -> bool:
    """Whether two answers are the same once normalised: "" is not "A", of which the normalisation leaves as little."""
    return same_once(normalised, answer, accepted)


def same_once(normal: Callable[[str], str], answer: str, accepted: str) -> bool:
    """Whether two answers are the same once made normal; where that leaves nothing, letter by letter, and never empty."""
    if given := normal(answer):
        return given == normal(accepted)
    return bool(answer.strip()) and answer.strip().casefold() == accepted.strip().casefold()


def overlap(answer: str, accepted: str, script: Script = "hotpotqa") -> tuple[float, float, float]:
    """F1, precision and recall of an answer's words, as bags.

    The scripts differ in two cases: for HotpotQA a `yes`, `no` or `noanswer` shares nothing with anything else, and for
    SQuAD v2.0 two empty answers agree.
    """
    one, other = normalised(answer), normalised(accepted)
    if script == "hotpotqa" and one != other and (one in CLOSED_ANSWERS or other in CLOSED_ANSWERS):
        return NOTHING
    given, wanted = one.split(), other.split()
    if script == "squad_v2" and not (given and wanted):
        return (1.0, 1.0, 1.0) if given == wanted else NOTHING
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not shared:
        return NOTHING
    precision, recall = shared / len(given), shared / len(wanted)
    return 2 * precision * recall / (precision + recall), precision, recall


class AnswerMatchArgs(Strict):
    """Whose script the part `f1` follows."""

    script: Script = "hotpotqa"


class AnswerMatchVerifier:
    """1 where the final state's `answer` is one of the goal's `answers` by exact match after normalisation.

    >>> task = Task("t1", "retrieval", "bridge", 1, "Where is Lortex?", {}, {"answers": ["The Hague"]}, "answer_match", "t1")
    >>> AnswerMatchVerifier().verify(task, {"answer": "in Hague"})
    (0.0, {'exact_match': 0.0, 'f1': 0.6666666666666666, 'precision': 0.5, 'recall': 1.0, 'answered': 1.0})

    The total is the part `exact_match`. `f1`, `precision` and `recall` are those of the accepted answer with the highest F1,
    for people to read and never a reward: an answer that names many candidates would earn by it.

    An answer of which the normalisation leaves nothing is right only where it is an accepted answer letter by letter: "a" for
    the goal "A", but no empty answer.

    Raises:
        ValueError: the goal accepts no answer.
        KeyError: the goal has no `answers`, or the state no `answer`.
    """

    kind = "answer_match"
    Args = AnswerMatchArgs

    def __init__(self, args: AnswerMatchArgs | None = None) -> None:
        self._script = (args or AnswerMatchArgs()).script

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        accepted, answer = task.goal["answers"], final_state["answer"]
        if not accepted or not all(isinstance(one, str) and one.strip() for one in accepted):
            raise ValueError("'goal.answers' needs accepted answers, none of them empty")
        right = isinstance(answer, str) and any(exact_match(answer, one) for one in accepted)
        best = (
            max((overlap(answer, one, self._script) for one in accepted), default=NOTHING)
            if isinstance(answer, str)
            else NOTHING
        )
        parts = {"exact_match": float(right)} | dict(zip(("f1", "precision", "recall"), best, strict=True))
        return float(right), parts | {"answered": float(isinstance(answer, str))}

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """1 once the right answer is given: its parts are no progress."""
        return self.verify(task, state)[0]


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
        wanted, answer = self._args.wanted(task), self._args.answer(episode)
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
