"""What a run's page shows as evidence: the gate's comparison, the doctor's findings, the audit of graders."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from markupsafe import Markup

from tracewheel.core.differences import flat, setting_differences
from tracewheel.core.errors import DataError, TracewheelError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import CONFIG_FILE, RunRecord
from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.measured import HARDER, Evaluation, held_out, read_small
from tracewheel.dashboard.run_rows import FINDINGS_FILE
from tracewheel.dashboard.sources import Source
from tracewheel.dashboard.text import percent
from tracewheel.dashboard.view import render
from tracewheel.evaluation.changes import CHANGES_FILE
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.family_differences import paired_differences
from tracewheel.evaluation.gate import EXPLAINED
from tracewheel.evaluation.graders import AUDIT_FILE
from tracewheel.report.doctor.finding import Finding, worst_first
from tracewheel.report.finished_run import RL, FinishedRun
from tracewheel.report.results import AFTER, DEPLOYED, Estimate, PolicyResult, Results, results_of


def results_for(run: FinishedRun, evaluations: list[Evaluation]) -> Results:
    """What the policies of a run reached; without its store, the figures of its summary."""
    folders: dict[str, tuple[Path, ...]] = {}
    for split in ("held_out", HARDER):
        for policy, one in held_out(evaluations, split).items():
            folders[policy] = (*folders.get(policy, ()), run.store / one.entry)
    evaluation = run.settings.get("evaluation") or {}
    pass_at = tuple(k for k in evaluation.get("pass_at") or () if isinstance(k, int))
    try:
        return _results(run.curated, tuple(folders.items()), pass_at)
    except (DataError, OSError, KeyError):
        return _of_summary(run.summary)


@functools.lru_cache(maxsize=64)
def _results(curated: Path, folders: tuple[tuple[str, tuple[Path, ...]], ...], pass_at: tuple[int, ...]) -> Results:
    """Stored results do not change, so what was computed once stays."""
    return results_of(curated, dict(folders), pass_at=pass_at)


def _of_summary(summary: dict[str, Any]) -> Results:
    def rate(name: str, policy: str) -> Estimate | None:
        value = (summary.get(name) or {}).get(policy)
        ends = ((summary.get("intervals") or {}).get(name) or {}).get(policy)
        return Estimate(value, ends[0], ends[1], 0) if value is not None and ends else None

    rows = [
        PolicyResult(key, greedy=rate("success", key), sampled=rate("sampled", key), harder=rate("harder", key))
        for key in summary.get("success") or {}
    ]
    return Results(rows, {}, int(summary.get("n_held_out") or 0), int(summary.get("n_harder") or 0))


def family_differences(run: FinishedRun) -> dict[str, Any]:
    """The paired differences by family between the policy after RL and the baseline; empty where one is not known."""
    ours = run.evaluation(RL) if run.gate else None
    theirs = run.evaluation(run.baseline) if run.gate else None
    if ours is None or theirs is None:
        return {}
    weight = float((run.settings.get("gate") or {}).get("greedy_weight", 0.5))
    try:
        return _differences(ours.path / RESULTS_FILE, theirs.path / RESULTS_FILE, weight)
    except TracewheelError:
        return {}


@functools.lru_cache(maxsize=256)
def _differences(ours: Path, theirs: Path, weight: float) -> dict[str, Any]:
    """Stored results do not change, so what was computed once stays."""
    return paired_differences(read_table(ours), read_table(theirs), greedy_weight=weight)


def changes_of(run: FinishedRun) -> list[dict[str, Any]]:
    """The tasks that the gate's comparison gained and lost, the lost ones first; `entry` and `part` are added to each side."""
    path = run.record.path / CHANGES_FILE
    try:
        rows = read_json(path) if path.is_file() else []
    except DataError:
        return []
    for row in rows:
        for side in ("challenger", "baseline"):
            row[side]["entry"], row[side]["part"] = str(row[side].get("file", "")).split("/")[:2]
    return list(rows)


def earlier_run(run: FinishedRun, before: str = "") -> tuple[str, FinishedRun] | None:
    """What a run is compared with, and why: the run of the champion that it started from, else the one before it.

    Args:
        run: The run.
        before: Id of the run before it in its folder; "" where it is the first.
    """
    parent = str((run.lineage.get("parent") or {}).get("run_id") or "")
    for other, why in ((parent, "the run whose champion it started from"), (before, "the run before it in this folder")):
        if other and other != run.run_id and (run.work_dir / other / CONFIG_FILE).is_file():
            return why, FinishedRun(RunRecord(run.work_dir, other))
    return None


def settings_changed(run: FinishedRun, other: FinishedRun) -> list[dict[str, Any]]:
    """The settings that differ: `name` and `values`, of the other run and of this one."""
    try:
        return setting_differences([other.settings, run.settings])
    except (DataError, OSError):
        return []


def settings_of(run: FinishedRun) -> dict[str, Any]:
    """The resolved profile with dotted names; empty where it cannot be read."""
    try:
        return flat(run.settings)
    except (DataError, OSError):
        return {}


TRAJECTORY = re.compile(r"[0-9a-f]{16,64}")
MOST = 200


@dataclass(frozen=True)
class Shown:
    """A finding, its figures in words, and where its examples are.

    Attributes:
        episodes: For each list of examples its name, and the trajectories' ids with the source that holds them.
        entries: For each iteration that it concerns, a stored result with its rollouts.
    """

    finding: Finding
    figures: dict[str, Any]
    episodes: list[tuple[str, list[tuple[str, Source]]]]
    entries: list[tuple[int, str]]


def findings_of(run: FinishedRun, sources: list[Source]) -> list[Shown]:
    """The findings of a run, the worst first; none where the doctor has not looked."""
    records = read_small(run.record.path / FINDINGS_FILE).get("findings") or []
    found = []
    for record in records:
        try:
            found.append(Finding.from_record(record))
        except (TypeError, KeyError):  # of another version
            continue
    named = {one for finding in found for _, ids in _lists(finding) for one in ids}
    where = _places(sources, sorted(named)[:MOST])
    by_iteration = {one.iteration: one.entry for one in reversed(sources) if one.kind == "rollout"}
    return [
        Shown(
            finding=finding,
            figures={name: value for name, value in finding.evidence.items() if not _is_list_of_ids(value)},
            episodes=[
                (name, [(one, where[one]) for one in ids if one in where])
                for name, ids in _lists(finding)
                if any(one in where for one in ids)
            ],
            entries=[(number, by_iteration[number]) for number in finding.iterations if number in by_iteration],
        )
        for finding in worst_first(found)
    ]


def _lists(finding: Finding) -> Iterator[tuple[str, list[str]]]:
    for name, value in finding.evidence.items():
        if _is_list_of_ids(value):
            yield name, value


def _is_list_of_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) and TRAJECTORY.fullmatch(one) for one in value)


def _places(sources: list[Source], ids: list[str]) -> dict[str, Source]:
    rollouts = [one for one in sources if one.kind == "rollout"]
    if not ids or not rollouts:
        return {}
    marks = ", ".join("?" for _ in ids)
    rows = Episodes(rollouts).rows(f"SELECT id, place FROM {{episodes}} WHERE id IN ({marks})", ids)
    return {str(row["id"]): rollouts[row["place"]] for row in rows}


FOLDER = "audit"  # of the work folder, where `tracewheel audit --out` put it


def graders_of(run: FinishedRun) -> tuple[Markup, str] | None:
    """The section of the run's page and whose audit it is; None where neither the run nor its work folder holds one.

    An audit of the work folder was made of the graders and tasks of its command, which need not be those of the run.
    """
    gate = run.settings.get("gate") or {}
    for folder, whose in ((run.record.path, ""), (run.work_dir / FOLDER, f"Of {FOLDER}/ in the work folder, not of this run.")):
        if found := read_small(folder / AUDIT_FILE):
            asked = None if whose else gate.get("false_accepts")
            try:
                return audit_section(found, run.gate, asked), whose
            except DataError as flaw:
                return Markup("<p>{}</p>").format(str(flaw)), whose
    return None


def headline(results: Results) -> str:
    """The result in one sentence."""
    after, deployed = results.policy(AFTER), results.policy(DEPLOYED)
    if after is None or after.greedy is None:
        return "No policy was evaluated after RL."
    if deployed is None or deployed.greedy is None:
        return f"Held-out success after RL is {percent(after.greedy.value)}."
    return (
        f"Held-out success goes from {percent(deployed.greedy.value)} (deployed agent, as logged) "
        f"to {percent(after.greedy.value)} after RL."
    )


def aim_of(run: FinishedRun, after: PolicyResult | None) -> tuple[bool, str] | None:
    """Whether the profile's aim for the harder tier is met, and a sentence about it; None where it sets none."""
    target = (run.settings.get("aims") or {}).get("harder")
    if target is None or after is None:
        return None
    aim, reached = f"The aim of {percent(target)} for harder-tier success, greedy", after.harder
    if reached is None:
        return False, f"{aim}, was not measured."
    met = reached.value >= target
    ends = f"95% interval {percent(reached.low)} to {percent(reached.high)}, n = {reached.n}"
    return met, f"{aim}, is {'met' if met else 'not met'}: {percent(reached.value)} ({ends})."


def lineage_of(run: FinishedRun) -> dict[str, dict[str, Any]]:
    """What a run was made with and from, and where its results are, by heading."""
    summary, damaged = run.summary, run.summary.get("damaged") or ()
    try:
        lineage: dict[str, Any] = run.lineage
    except DataError:
        lineage = {}
    git, machine = lineage.get("git") or {}, lineage.get("machine") or {}
    kind, chosen = machine.get("kind") or {}, lineage.get("chosen") or {}
    datasets = (lineage.get("datasets") or {}).items()
    found = {
        "Run": {
            "started": lineage.get("started"),
            "resumed": len(lineage.get("resumed") or ()) or None,
            "chosen iteration": chosen.get("iteration") if isinstance(chosen, dict) else None,
            "base policy": " ".join(map(str, (lineage.get("base") or {}).values())),
            "machine": ", ".join(map(str, filter(None, (kind.get("processor"), *kind.get("gpus", ()))))),
            "adapter": summary.get("adapter"),
            "model": summary.get("model"),
            "model version": summary.get("model_version"),
            "MLflow run": summary.get("mlflow_run") or read_small(run.record.path / "state.json").get("mlflow_run"),
        },
        "Code": {"commit": git.get("commit") or "not in a git repository", "changed since the commit": git.get("changed")},
        "Inputs": lineage.get("inputs") or {},
        "Datasets": {name: f"{one.get('entry')} {one.get('digest')}" for name, one in datasets if isinstance(one, dict)},
        "Packages": lineage.get("packages") or {},
        "Learning rate": {loop: _trials(trials) for loop, trials in (summary.get("rate_trials") or {}).items()},
        "Algorithm": {"learner.kind auto": summary.get("algorithm")},
        "Lost tasks": {loop: counts.get("says") for loop, counts in (summary.get("lost_tasks") or {}).items()},
        "Damaged in the store, and made again": {one["entry"]: one["flaw"] for one in damaged},
        "Rollouts": {loop: _rollouts(counts) for loop, counts in (summary.get("rollouts") or {}).items()},
    }
    known = {name: {key: value for key, value in rows.items() if value not in (None, "")} for name, rows in found.items()}
    return {name: rows for name, rows in known.items() if rows}


def _rollouts(counts: dict[str, Any]) -> str:
    """How a loop got its rollouts, in a line."""
    words = [f"{name.replace('_', ' ')} {value}" for name, value in counts.items() if name not in ("mode", "queue")]
    return ": ".join([str(counts.get("mode")), *([", ".join(words)] if words else [])])


def _trials(found: dict[str, Any]) -> str:
    """The learning rate that trials found, in a line."""
    tried = ", ".join(f"{trial['rate']:.3g}: {trial['kl']:.3g}" for trial in found["trials"])
    return f"{found['learning_rate']:.3g} (KL after one update, nats a token, by rate: {tried})"


EXAMPLES, MOST_EXAMPLES = 60, 6  # of a grader, on the page of the audit and on that of a run
WORDS = {
    "solution": "known solutions",
    "equal_end": "changed solutions that end the same",
    "remark": "solutions with a remark at the end",
    "nothing": "episodes without a call",
    "claim": "failed episodes that claim success",
    "near_miss": "near misses",
    "change": "changed solutions",
    "attack": "attacks on the answer",
    "state": "forged final states",
}


def audit_section(
    audit: Mapping[str, Any], gate: Mapping[str, Any] | None = None, asked: float | str | None = None, *, whole: bool = False
) -> Markup:
    """The rates of each grader and examples.

    Args:
        audit: What the audit found.
        gate: The record of the run's `Verdict`; empty or None where none was decided.
        asked: `gate.false_accepts` of its profile: what the gate held the gain against.
        whole: With a table of all kinds of probes, and all examples.

    Raises:
        DataError: an earlier version, or a hand, wrote the result.
    """
    gate = gate or {}
    reason = next((str(one) for one in gate.get("reasons") or () if str(one).startswith(EXPLAINED)), "")
    passed = asked is not None and gate.get("verdict") == "promoted"
    try:
        values: dict[str, Any] = {"audit": audit, "reason": reason, "asked": asked if passed else None, "whole": whole}
        groups = grouped(audit) if whole else {}
        return Markup(render("graders.html", **values, groups=groups, most=EXAMPLES if whole else MOST_EXAMPLES))
    except (TemplateError, TypeError, ValueError, AttributeError, KeyError) as flaw:
        raise DataError(f"the audit cannot be read ({flaw}): run `tracewheel audit` again with --run") from flaw


def grouped(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """For each verifier, the rates of groups of probes: counts added up, and the kinds that went wrong."""
    found: dict[str, list[dict[str, Any]]] = {}
    for spec, verifier in result["verifiers"].items():
        rows: dict[str, dict[str, Any]] = {}
        for rate in verifier["rates"]:
            name, _, kind = rate["kind"].partition(".")
            row = rows.setdefault(
                name,
                {"name": WORDS.get(name, name), "wants": rate["wants"], "wrong_kinds": []}
                | dict.fromkeys(("probes", "wrong", "unscored", "doubtful"), 0),
            )
            for count in ("probes", "wrong", "unscored", "doubtful"):
                row[count] += rate[count]
            if rate["wrong"]:
                row["wrong_kinds"].append(f"{kind.replace('_', ' ')} {rate['wrong']} of {rate['probes']}")
        found[spec] = [rows[name] for name in WORDS if name in rows] + [row for name, row in rows.items() if name not in WORDS]
    return found
