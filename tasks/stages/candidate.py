"""The candidate of earlier nights: playing it on fresh tasks before a run trains, and naming one after the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.engine.run import Policy, Run
from tasks.records.gate_ledger import CANDIDATE, Gate, began_with, change, end, wait
from tasks.stages.evaluate import evaluate_policy
from tracewheel.core import clock
from tracewheel.core.errors import AdapterMismatchError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import RESERVE, load_tasks
from tracewheel.evaluation import candidate
from tracewheel.evaluation.candidate import DROPPED, NIGHTS, PROMOTED, WAITING
from tracewheel.evaluation.error_budget import NIGHT, Look, names_candidates
from tracewheel.policy.adapters import policy_of
from tracewheel.traces.forgotten import LEARNT, read_forgotten

OF_A_NIGHT = ("tasks", "difference", "interval", "p_value", "level", "boundary")


@dataclass(frozen=True)
class Confirmed:
    """A candidate after a look at its evidence: its policy, the one that it is compared with, and its line of the ledger.

    `gate` is the verdict's record where it is promoted.
    """

    policy: Policy
    against: Policy
    line: Gate
    gate: dict[str, Any]

    @property
    def promoted(self) -> bool:
        return bool(self.line["verdict"] == PROMOTED)


def champion_of(start: Mapping[str, Any]) -> str:
    """The digest of the champion that a run began with; "" for none."""
    return str((start["champion"] or {}).get("digest", ""))


def first_look(run: Run, curated: Entry | None) -> Look:
    """The kind of look that a run's gate has: one of a night that may name a candidate, or the only one."""
    enough = curated is not None and len(load_tasks(curated.path, RESERVE)) >= run.config.gate.min_pairs
    alone = not run.config.wheel_sections  # a candidate is an adapter alone
    return Look(kind=NIGHT) if enough and alone and names_candidates(run.config.gate) else Look()


def confirm(
    run: Run, start: Mapping[str, Any], curated: Entry, *, beat: Policy | None, false_accepts: float | None
) -> Confirmed | None:
    """Let the candidate's evidence grow by a night, and note what comes of it.

    A run that is repeated finds its night again, and plays nothing twice.

    Args:
        run: The run.
        start: What the run began with (`start.json`).
        curated: The tasks.
        beat: The champion; None where there is none, and the candidate is compared with what it was compared with before.
        false_accepts: As in `gate.decide`.

    Returns:
        None where no candidate waits any more, unless this run proved it.
    """
    line, champion = began_with(run, start), champion_of(start)
    if line is None:
        return None
    own, run_id = line[CANDIDATE], run.record.run_id
    known = [night["run"] for night in own["nights"]]
    nights = own["nights"][: known.index(run_id)] if run_id in known else own["nights"]
    if run_id not in known and line.get("verdict", WAITING) != WAITING:
        return None
    policy, against = _policy(run, "candidate", own["weights"]), beat or _policy(run, line["baseline"], own["against"])
    screens, ours, theirs = (
        [entry for name in names if (entry := run.store.find_named(name))]
        for names in (own["screens"], *([night["evaluations"][side] for night in nights] for side in (0, 1)))
    )
    why = _gone(run, own, champion, policy, against)
    if len(screens) < len(own["screens"]) or len(ours) < len(nights) or len(theirs) < len(nights):
        why = why or "evaluations that it was confirmed by are gone from the store"
    fresh, together = candidate.fresh_tasks(curated.path, [one.path for one in screens], [one.path for one in ours])
    if not fresh:
        why = why or "no fresh tasks are left to confirm it on: bring more logs (docs/gate.md)"
    if why or policy is None or against is None:
        end(run.config.work_dir, line["evidence"], why)
        run.reporter.say(f"candidate of run {line['run']}: {why}")
        return None
    batch = fresh[: run.config.curation.held_out_tasks]
    tonight = [evaluate_policy(run, policy=one, curated=curated, split=RESERVE, tasks=batch) for one in (policy, against)]
    found = candidate.confirm(
        run.config.gate,
        [(one.path, other.path) for one, other in zip([*ours, tonight[0]], [*theirs, tonight[1]], strict=True)],
        level=line["level"],
        together=together,
        before=nights[-1]["spent"] if nights else 0.0,
        planned=own["planned"],
        baseline_name=line["baseline"],
        false_accepts=false_accepts,
    )
    night = {
        "run": run_id,
        "at": clock.now().isoformat(timespec="seconds"),
        "evaluations": [entry.path.name for entry in tonight],
        "spent": found["spent"],
        **{name: found[name] for name in OF_A_NIGHT},
    }
    if run_id in known:
        night = own["nights"][len(nights)]
    after = {**line, "verdict": found["state"], "why": found["why"], CANDIDATE: {**own, "nights": [*nights, night]}}
    if run_id not in known:
        noted = {**after, "verdict": WAITING} if found["state"] == PROMOTED else after
        change(run.config.work_dir, line["evidence"], lambda _: noted)
    run.reporter.say(f"candidate of run {line['run']}, night {len(ours) + 1} of {NIGHTS}: {found['why']}")
    return None if found["state"] == DROPPED else Confirmed(policy, against, after, found["gate"])


def note_promoted(run: Run, line: Gate | None) -> None:
    """Note that a run has registered the candidate that it proved; `line` is that of the candidate that it began with."""
    if line and line["verdict"] == PROMOTED:
        change(run.config.work_dir, line["evidence"], lambda _: line)


def name_candidate(
    run: Run, gate: dict[str, Any], curated: Entry, *, policy: Policy, screen: Entry, champion: str, after: Confirmed | Policy
) -> dict[str, Any]:
    """Let a challenger that passed the screen wait as candidate.

    Args:
        run: The run.
        gate: The verdict's record.
        curated: The tasks.
        policy: The challenger.
        screen: Its evaluation on the night's held-out tasks.
        champion: The digest of the champion that the run began with; "" for none.
        after: The policy to beat; or the candidate that the challenger was trained from, whose place it takes where it has
            passed the gate's conditions against it at the level of the screen.

    Returns:
        The verdict's record, as it then is.
    """
    instead = isinstance(after, Confirmed)
    asked = gate["verdict"] == "promoted" if instead else candidate.passes_screen(gate)
    if not asked or first_look(run, curated).kind != NIGHT:
        return candidate.cannot_wait(gate) if instead and asked else gate
    assert policy.entry is not None and policy.weights is not None
    before, against = (after.line, after.against) if isinstance(after, Confirmed) else (None, after)
    screens = [*(before[CANDIDATE]["screens"] if before else []), screen.path.name]
    fresh, _ = candidate.fresh_tasks(curated.path, [entry.path for name in screens if (entry := run.store.find_named(name))])
    digest = digest_of(policy.weights)
    line = {
        "evidence": f"candidate-{digest}-{champion or 'none'}",
        "run": run.record.run_id,
        "baseline": before["baseline"] if before else gate["baseline"],
        CANDIDATE: {
            "weights": policy.entry.path.name,
            "digest": digest,
            "against": against.entry.path.name if against.entry else "",
            "champion": champion,
            "planned": min(len(fresh), NIGHTS * run.config.curation.held_out_tasks),
            "screens": screens,
            "nights": [],
        },
    }
    if len(fresh) < run.config.gate.min_pairs or not wait(run, line):
        return candidate.cannot_wait(gate) if instead else gate
    return candidate.waits(gate, instead)


def _policy(run: Run, name: str, entry_name: str) -> Policy | None:
    """A policy by the name of its entry, "" for the base; None where the store has lost it, or it is of another base."""
    if not entry_name:
        return run.base()
    run.record.need(entry_name)
    entry = run.store.find_named(entry_name)
    if entry is None:
        return None
    weights = run.adapted(name, entry).weights
    assert weights is not None
    try:
        return run.adapted(name, entry, policy_of(weights, run.config.policy.base).version)
    except AdapterMismatchError:
        return None


def _gone(run: Run, own: dict[str, Any], champion: str, policy: Policy | None, against: Policy | None) -> str:
    """Why a candidate cannot be confirmed any more; "" where it can."""
    if own["digest"] in read_forgotten(run.config.work_dir).adapters:
        return f"it {LEARNT}"
    if own["champion"] != champion:
        if own["digest"] == champion:
            return "it is champion already"
        return "another champion came since" if champion else "the champion that it was compared with is none any more"
    if policy is None or against is None:
        return "its weights, or those of the policy to beat, are gone from the store, or of another base"
    return ""
