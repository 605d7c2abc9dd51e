"""Episodes without a score: what most of them failed of, and when there are too many to go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tracewheel.core.errors import ConfigError, DataError, InfrastructureError
from tracewheel.core.files import read_batches, read_columns
from tracewheel.core.tracebacks import cause_of
from tracewheel.core.types import INFRASTRUCTURE_FAILED, POLICY_FAULTS, Score, Trajectory

# Of all episodes: the share without a score that is said, and that of failed ones after which nothing goes on.
SAID, TOO_MANY = 0.05, 0.5
ADVICE = (
    "mend that line, or raise ToolError there if it is the tool's answer to the agent (docs/your-environment.md says whose "
    "fault a failure is)"
)
HARNESS_ADVICE = "start the program by itself as docs/your-agent.md says, or see what it asks for: tracewheel check PROFILE"


def failed_words(trajectories: Sequence[Trajectory]) -> str:
    """What ended the episodes that failed through no fault of the policy, or in a program, where they are more than `SAID`.

    Raises:
        ConfigError: all failed in the program of `rollout.harness`.
        DataError: more than `TOO_MANY` of them failed, most through the fault of the environment.
        InfrastructureError: the same, through the fault of a tool, a simulated user or the machine.
    """
    broken = Counter(item.detail for item in trajectories if item.fault == "harness")
    if broken and broken.total() == len(trajectories):
        raise ConfigError(f"{_broken(broken, len(trajectories))}\n{HARNESS_ADVICE}")
    failed = [item for item in trajectories if item.stop_reason == INFRASTRUCTURE_FAILED or item.fault not in POLICY_FAULTS]
    words = _words((cause_of(item.detail, item.traceback) for item in failed), len(trajectories))
    if len(failed) <= TOO_MANY * len(trajectories):
        return "; ".join(filter(None, (words, _broken(broken, len(trajectories)))))
    (fault, _), *_ = Counter(item.fault for item in failed).most_common(1)
    if fault == "environment":
        raise DataError(f"{words}. What is left says too little: {ADVICE}")
    raise InfrastructureError(f"{words}, the fault of the {fault}. What is left says too little")


def _broken(details: Counter[str], episodes: int) -> str:
    """What most of the episodes ended by that failed in their program."""
    if details.total() <= SAID * episodes:
        return ""
    (detail, most), *_ = details.most_common(1)
    return f"{details.total()} of {episodes} episodes failed in the program of rollout.harness, {most} of them by {detail}"


def missing_words(scores: Sequence[Score], trajectories: Path) -> str:
    """What left episodes of a file without a score, a verifier that raises too, where they are more than `SAID`; else ""."""
    missing = {item.trajectory_id: item.detail for item in scores if item.status != "scored"}
    told = len(missing) > SAID * len(scores)
    if told and trajectories.is_file() and "traceback" in read_columns(trajectories):
        for batch in read_batches(trajectories, 64, ["id", "detail", "traceback"]):
            rows = [row for row in batch.to_pylist() if row["id"] in missing and row["traceback"]]
            missing |= {row["id"]: cause_of(row["detail"], row["traceback"]) for row in rows}
    return _words(missing.values(), len(scores))


def _words(causes: Iterable[str], episodes: int) -> str:
    counts = Counter(causes)
    if counts.total() <= SAID * episodes:
        return ""
    (cause, most), *_ = counts.most_common(1)
    return f"{counts.total()} of {episodes} episodes have no score, {most} of them by {cause}"
