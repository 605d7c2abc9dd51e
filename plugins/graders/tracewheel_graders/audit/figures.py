"""False-accept and false-reject rates of a verifier by kind of probe, with intervals, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tracewheel import Task, rate_interval
from tracewheel_graders.audit.judging import Judged, Repeats
from tracewheel_graders.audit.play import Played
from tracewheel_graders.audit.probes import Probe

SHOWN_CHARACTERS = 400


# A verifier fails where it accepts more of the wrong episodes of a kind, or refuses more of the right ones.
MAX_FALSE_ACCEPT = MAX_FALSE_REJECT = 0.01
MAX_FLIPS = 0.1  # the share of a judge's verdicts that one change may flip
CONFIDENCE = 0.95  # of the intervals
EXAMPLES = 3  # kept of each kind
CHANGES = 4  # changed solutions of a kind that are tried for each known one
SEED = 0
LIMITS = {"max_false_accept": MAX_FALSE_ACCEPT, "max_false_reject": MAX_FALSE_REJECT, "max_flips": MAX_FLIPS}


@dataclass(frozen=True)
class Rate:
    """How often a verifier is wrong about one kind of probe.

    Attributes:
        kind: The kind of probe.
        wants: `accept` or `refuse`: what would be right.
        probes: How many were judged, of which `wrong` wrongly; `rate`, with its interval `low` to `high`.
        unscored: Probes that the verifier raised on; they count neither way.
        doubtful: Accepted ones that may still solve their task, since the environment does not tell; they count neither way.
    """

    kind: str
    wants: str
    probes: int
    wrong: int
    rate: float
    low: float
    high: float
    unscored: int
    doubtful: int


def figures_of(probes: Sequence[Probe], judged: Sequence[Judged], repeats: Repeats) -> dict[str, Any]:
    """The result of a verifier's audit, as JSON types.

    `exploitable` is the share of tasks on which the verifier accepts some wrong episode: a policy that learns to cheat does so
    wherever it can, and tasks are independent where the probes of one task are not. `upper` is the upper end of its one-sided
    interval, which the gate takes for the share of failures that might have been accepted.

    Args:
        probes: The probes.
        judged: What the verifier said, in their order.
        repeats: What it said the second time.
    """
    pairs = list(zip(probes, judged, strict=True))
    rates = [_rate(kind, [pair for pair in pairs if pair[0].kind == kind]) for kind in sorted({one.kind for one in probes})]
    totals = {wants: _pooled([pair for pair in pairs if pair[0].wants == wants]) for wants in ("refuse", "accept")}
    fooled = {probe.task.id for probe, said in pairs if _is_wrong(probe, said) and probe.wants == "refuse"}
    tasks = {probe.task.id for probe in probes}
    one_sided = 2 * CONFIDENCE - 1  # of the interval of both sides with the same upper end
    wrong_totals = [said.total for probe, said in pairs if probe.wants == "refuse" and probe.sure and said.total is not None]
    reasons = _reasons(rates, repeats)
    return {
        "verdict": "failed" if reasons else "passed",
        "reasons": reasons,
        "tasks": len(tasks),
        "probes": len(probes),
        "false_accept": totals["refuse"],
        "false_reject": totals["accept"],
        "exploitable": {"tasks": len(fooled), "of": len(tasks), "upper": upper_end(len(fooled), len(tasks), one_sided)},
        "unscored": sum(rate.unscored for rate in rates),
        "doubtful": sum(rate.doubtful for rate in rates),
        "reward_of_wrong": sum(wrong_totals) / len(wrong_totals) if wrong_totals else None,
        "repeats": asdict(repeats),
        "rates": [asdict(rate) for rate in rates],
        "examples": _examples(pairs),
    }


def upper_end(wrong: int, n: int, confidence: float) -> float:
    """The exact upper end (Clopper and Pearson 1934) of a rate's two-sided interval; 1 when n is 0."""
    if n == 0 or wrong >= n:
        return 1.0
    if wrong == 0:
        return float(1.0 - ((1.0 - confidence) / 2) ** (1.0 / n))
    from scipy.special import betaincinv  # exact; heavy, and most audits find nothing

    return float(betaincinv(wrong + 1, n - wrong, 0.5 + confidence / 2))


def _rate(kind: str, pairs: Sequence[tuple[Probe, Judged]]) -> Rate:
    unscored = sum(said.total is None for _, said in pairs)
    doubtful = sum(not probe.sure and said.accepted for probe, said in pairs)
    found = _pooled(pairs)
    figures = (found["probes"], found["wrong"], found["rate"], found["low"], found["high"])
    return Rate(kind, pairs[0][0].wants, *figures, unscored, doubtful)


def _is_wrong(probe: Probe, said: Judged) -> bool:
    if said.total is None:
        return False
    return not said.accepted if probe.wants == "accept" else said.accepted and probe.sure


def _pooled(pairs: Sequence[tuple[Probe, Judged]]) -> dict[str, Any]:
    """How often probes are judged wrongly, with an interval that knows that the probes of a task hang together."""
    counted = [(probe, said) for probe, said in pairs if said.total is not None and (probe.sure or not said.accepted)]
    wrong = [float(_is_wrong(probe, said)) for probe, said in counted]
    low, high = rate_interval(wrong, [probe.task.id for probe, _ in counted], CONFIDENCE) if wrong else (0.0, 1.0)
    rate = sum(wrong) / len(wrong) if wrong else 0.0
    return {"wrong": int(sum(wrong)), "probes": len(wrong), "rate": rate, "low": low, "high": high}


def _reasons(rates: Sequence[Rate], repeats: Repeats) -> list[str]:
    limits = {"refuse": ("accepts", MAX_FALSE_ACCEPT), "accept": ("refuses", MAX_FALSE_REJECT)}
    reasons = []
    for rate in sorted(rates, key=lambda rate: -rate.rate):
        word, most = limits[rate.wants]
        if rate.wrong and rate.rate > most:
            reasons.append(f"{word} {rate.wrong} of {rate.probes} episodes of {rate.kind}")
    known = next((rate for rate in rates if rate.kind == "solution.known"), None)
    if known is not None and known.unscored and not known.probes:
        reasons.append("scores none of the known solutions: it raises on each")
    for what, count in repeats.differ.items():
        if count:
            reasons.append(f"gives {count} of {repeats.episodes} episodes another total in another {what}")
    return reasons


def _examples(pairs: Sequence[tuple[Probe, Judged]]) -> list[dict[str, Any]]:
    """Wrong results, the most certain first, some of each kind; then doubtful ones and errors, one of each kind."""
    found: list[dict[str, Any]] = []
    for what, most, chosen in (
        ("wrong", EXAMPLES, [pair for pair in pairs if _is_wrong(*pair)]),
        ("doubtful", 1, [pair for pair in pairs if not pair[0].sure and pair[1].accepted]),
        ("unscored", 1, [pair for pair in pairs if pair[1].total is None]),
    ):
        kept: dict[str, int] = {}
        for probe, said in chosen:
            kept[probe.kind] = kept.get(probe.kind, 0) + 1
            if kept[probe.kind] <= most:
                text = {"error": said.error, "explanation": said.explanation}
                found.append(example_of(what, probe.kind, probe.wants, probe.task, probe.episode, said.total, **text))
    return found


def example_of(
    what: str, kind: str, wants: str, task: Task, episode: Played, total: float | None, error: str = "", explanation: str = ""
) -> dict[str, Any]:
    """An episode as people see it, as JSON types; long texts are cut."""
    own = [message.get("content") for message in episode.messages[episode.start :] if message["role"] == "assistant"]
    return {
        "what": what,
        "kind": kind,
        "wants": wants,
        "total": total,
        "task_id": task.id,
        "prompt": _short(task.prompt),
        "calls": [f"{tool} {_short(args)}" for tool, args in episode.calls],
        "said": _short(own[-1] or "") if own else "",
        "error": _short(error),
        "explanation": _short(explanation),
    }


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
