"""An answer that is all of a pattern."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from tracewheel.core.types import Task
from tracewheel.scoring.json_equality import GONE
from tracewheel.scoring.verifiers.answers import AnswerArgs, answer_of, gold_of, shown
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
        pattern = self._args.pattern if self._args.pattern is not None else gold_of(self._args, task)
        answer = answer_of(self._args, episode)
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
