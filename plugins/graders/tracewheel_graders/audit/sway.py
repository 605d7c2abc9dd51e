"""What sways a judge: another order, length or wording, and texts that are written for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tracewheel import Task, Verdict, episode_from, make_verifier, parse_kind, wilson_interval
from tracewheel_graders.audit.attempts import Attempts, at_length, in_other_words, injected
from tracewheel_graders.audit.figures import CONFIDENCE, EXAMPLES, MAX_FALSE_ACCEPT, MAX_FLIPS, example_of
from tracewheel_graders.audit.play import Played
from tracewheel_graders.judges.asking import JudgeFailure
from tracewheel_graders.judges.criteria import JudgeArgs
from tracewheel_graders.judges.judge import FLAGGED, JudgeVerifier
from tracewheel_graders.judges.relative import RelativeJudgeVerifier

JUDGES = ("judge", "relative_judge")
INJECTED = "injected"


@dataclass(frozen=True)
class Said:
    """What a judge said of one attempt: its total, None without a verdict, and whether some text was taken out before."""

    total: float | None
    flagged: bool = False
    explanation: str = ""


@dataclass(frozen=True)
class Case:
    """One task under one change: whether the verdict was another one; None where the change could show nothing.

    Attributes:
        kind: The change and the attempt that it was made to, as in `length.wrong`.
        swayed: Whether the verdict flipped, or the injected text won; None without a verdict, or where the wrong attempt wins
            without the text too.
        moved: Total with the change minus total without it; None without a verdict.
        after: What was said of the changed attempt.
        shown: The changed attempt.
    """

    kind: str
    task: Task
    swayed: bool | None
    moved: float | None
    after: Said
    shown: Played


Ask = Callable[[Attempts], list[Case]]


def sway_of(spec: str, attempts: Sequence[Attempts]) -> dict[str, Any]:
    """How far a judge is swayed, as JSON types. Each rate is over tasks, with its interval.

    `tells` is the share of tasks on which the right attempt is ahead of the wrong one; `flips`, by change, that on which the
    change flips the verdict of one of the two; `injected` that on which some text for the judge wins. `changes` and
    `injections` have the rates of each attempt and each text.

    Args:
        spec: A judge of a kind in `JUDGES`.
        attempts: A right and a wrong attempt of each task.

    Raises:
        ConfigError: the verifier's arguments are wrong.
        InputError: its endpoint, model or key is wrong.
    """
    ask, concurrency = _asker(spec)
    with ThreadPoolExecutor(concurrency) as pool:
        cases = [case for found in pool.map(ask, attempts) for case in found]
    cases.sort(key=lambda case: case.kind)
    by_kind = {kind: list(own) for kind, own in groupby(cases, key=lambda case: case.kind)}
    rates = [_rate(kind, own) for kind, own in by_kind.items() if kind != "tells"]
    tells = _rate("tells", by_kind["tells"])
    changes = sorted({rate["kind"].partition(".")[0] for rate in rates} - {INJECTED})
    reasons = _reasons(rates, tells, changes)
    return {
        "kind": parse_kind(spec).kind,
        "verdict": "failed" if reasons else "passed",
        "reasons": reasons,
        "tasks": len(attempts),
        "tells": tells,
        "flips": {change: _pooled(change, cases) for change in changes},
        "injected": _pooled(INJECTED, cases),
        "changes": [rate for rate in rates if not rate["kind"].startswith(INJECTED)],
        "injections": [rate for rate in rates if rate["kind"].startswith(INJECTED)],
        "examples": _examples(by_kind),
    }


def _asker(spec: str) -> tuple[Ask, int]:
    verifier = make_verifier(spec)
    if isinstance(verifier, RelativeJudgeVerifier):
        return lambda attempts: _compared(verifier, attempts), verifier.concurrency
    assert isinstance(verifier, JudgeVerifier)
    args = parse_kind(spec).args
    criteria = args["criteria"]
    turned = JudgeVerifier(JudgeArgs.model_validate({**args, "criteria": criteria[::-1]})) if len(criteria) > 1 else None
    return lambda attempts: _marked(verifier, turned, attempts), verifier.concurrency


def _marked(judge: JudgeVerifier, turned: JudgeVerifier | None, attempts: Attempts) -> list[Case]:
    """The cases of a judge that marks one attempt at a time: its verdict is pass or fail, and which attempt is ahead."""
    task = attempts.task

    def mark(attempt: Played, by: JudgeVerifier = judge) -> Said:
        try:
            return _said(by.verify_episode(task, _episode(attempt)))
        except JudgeFailure as failure:
            return Said(None, explanation=str(failure))

    plain = {"right": mark(attempts.right), "wrong": mark(attempts.wrong)}
    cases = [_tells(attempts, plain["right"], plain["wrong"])]
    for name, attempt in (("right", attempts.right), ("wrong", attempts.wrong)):
        other = plain["wrong" if name == "right" else "right"]
        changed = [("length", at_length(attempt), judge), ("paraphrase", in_other_words(attempt), judge)]
        if turned is not None:
            changed.append(("order", attempt, turned))
        for change, shown, by in changed:
            before, after = plain[name], mark(shown, by)
            flipped = None
            if None not in (before.total, after.total):
                flipped = _passes(before) != _passes(after) or _ahead(before, other) != _ahead(after, other)
            cases.append(Case(f"{change}.{name}", task, flipped, _moved(before, after), after, shown))
    for name, shown in injected(attempts).items():
        cases.append(_injection(task, name, plain["right"], plain["wrong"], mark(shown), shown))
    return cases


def _compared(judge: RelativeJudgeVerifier, attempts: Attempts) -> list[Case]:
    """The cases of a judge that sees attempts side by side: its verdict is which one is ahead."""
    task = attempts.task

    def compare(right: Played, wrong: Played) -> tuple[Said, Said]:
        try:
            first, second = judge.verify_group(task, [_episode(right), _episode(wrong)])
        except JudgeFailure as failure:
            none = Said(None, explanation=str(failure))
            return none, none
        return _said(first), _said(second)

    right, wrong = compare(attempts.right, attempts.wrong)
    cases = [_tells(attempts, right, wrong), _reversed(judge, attempts, right)]
    for change, changed in (("length", at_length), ("paraphrase", in_other_words)):
        for name in ("right", "wrong"):
            pair = [changed(own) if name == which else own for which, own in _both(attempts)]
            after = compare(*pair)
            flipped = None
            if None not in (right.total, after[0].total):
                flipped = _ahead(right, wrong) != _ahead(*after)
            place = int(name == "wrong")
            moved = _moved((right, wrong)[place], after[place])
            cases.append(Case(f"{change}.{name}", task, flipped, moved, after[place], pair[place]))
    for name, shown in injected(attempts).items():
        beside, said = compare(attempts.right, shown)
        cases.append(_injection(task, name, right, wrong, said, shown, beside))
    return cases


def _reversed(judge: RelativeJudgeVerifier, attempts: Attempts, right: Said) -> Case:
    """Whether the two orders of the same two attempts put another one ahead. `right` was asked for: this asks nobody again."""
    swayed = moved = None
    if right.total is not None:
        one, other = judge.scores_by_order(attempts.task, [_episode(own) for _, own in _both(attempts)])
        if len(one) == len(other) == 2:  # both are shown, and differ
            first, second = one[0] - other[0], one[1] - other[1]
            swayed, moved = (first > 0) != (second > 0) or (first < 0) != (second < 0), second - first
    return Case("order.both", attempts.task, swayed, moved, right, attempts.right)


def _both(attempts: Attempts) -> tuple[tuple[str, Played], tuple[str, Played]]:
    return ("right", attempts.right), ("wrong", attempts.wrong)


def _tells(attempts: Attempts, right: Said, wrong: Said) -> Case:
    told = None if right.total is None or wrong.total is None else right.total > wrong.total
    return Case("tells", attempts.task, told, _moved(wrong, right), right, attempts.right)


def _injection(task: Task, name: str, right: Said, wrong: Said, said: Said, shown: Played, beside: Said | None = None) -> Case:
    """Whether a wrong attempt wins by its text: it passes, or gets as much as the right one, which it did not without it."""
    swayed = None
    if None not in (right.total, wrong.total, said.total) and not _wins(wrong, right):
        swayed = _wins(said, beside or right)
    return Case(f"{INJECTED}.{name}", task, swayed, _moved(wrong, said), said, shown)


def _wins(one: Said, right: Said) -> bool:
    return _passes(one) or (one.total or 0.0) >= (right.total or 0.0)


def _passes(said: Said) -> bool:
    return said.total is not None and said.total >= 1.0


def _ahead(one: Said, other: Said) -> int:
    """1 where one is ahead, -1 where the other is, 0 for equals and where there is no verdict."""
    if one.total is None or other.total is None:
        return 0
    return (one.total > other.total) - (one.total < other.total)


def _moved(before: Said, after: Said) -> float | None:
    return None if before.total is None or after.total is None else after.total - before.total


def _said(verdict: Verdict | Exception) -> Said:
    if isinstance(verdict, Exception):
        return Said(None, explanation=str(verdict))
    return Said(verdict.total, bool(verdict.parts[FLAGGED]), verdict.explanation)


def _episode(attempt: Played) -> Any:
    return episode_from(attempt.messages, attempt.start, attempt.state)


def _rate(kind: str, cases: Sequence[Case]) -> dict[str, Any]:
    """`tasks` count, `swayed` of them; on `unscored` there was no verdict, and on `flagged` the text was taken out before."""
    counted = [case for case in cases if case.swayed is not None]
    swayed, moved = sum(case.swayed is True for case in counted), [case.moved for case in cases if case.moved is not None]
    low, high = wilson_interval(swayed, len(counted), CONFIDENCE)
    return {
        "kind": kind,
        "tasks": len(counted),
        "swayed": swayed,
        "rate": swayed / len(counted) if counted else None,
        "low": low,
        "high": high,
        "moved": sum(moved) / len(moved) if moved else None,
        "flagged": sum(case.after.flagged for case in cases),
        "unscored": sum(case.after.total is None for case in cases),
    }


def _pooled(change: str, cases: Sequence[Case]) -> dict[str, Any]:
    """The share of tasks on which any case of a change sways: tasks are independent, what is tried on one is not."""
    by_task: dict[str, bool] = {}
    for case in cases:
        if case.swayed is not None and case.kind.partition(".")[0] == change:
            by_task[case.task.id] = by_task.get(case.task.id, False) or case.swayed
    swayed, count = sum(by_task.values()), len(by_task)
    low, high = wilson_interval(swayed, count, CONFIDENCE)
    return {"tasks": count, "swayed": swayed, "rate": swayed / count if count else None, "low": low, "high": high}


def _reasons(rates: Sequence[dict[str, Any]], tells: dict[str, Any], changes: Sequence[str]) -> list[str]:
    if not tells["tasks"]:
        return ["gives no verdict on any task"]
    reasons = []
    for rate in rates:
        change, _, attempt = rate["kind"].partition(".")
        if not rate["swayed"]:
            continue
        if change == INJECTED and rate["rate"] > MAX_FALSE_ACCEPT:
            reasons.append(f"is talked into {rate['swayed']} of {rate['tasks']} wrong attempts by {rate['kind']}")
        if change in changes and rate["rate"] > MAX_FLIPS:
            who = "attempts" if attempt == "both" else f"{attempt} attempts"
            reasons.append(f"flips on {rate['swayed']} of {rate['tasks']} {who} with another {change}")
    return reasons


def _examples(by_kind: dict[str, list[Case]]) -> list[dict[str, Any]]:
    found = []
    for kind, cases in by_kind.items():
        swayed = [case for case in cases if case.swayed and kind != "tells"]
        for case in swayed[:EXAMPLES]:
            found.append(
                example_of("swayed", kind, "", case.task, case.shown, case.after.total, explanation=case.after.explanation)
            )
    return found
