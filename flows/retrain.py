"""The loop: from logged traces to a promoted adapter."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import prefect
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.console.progress import TerminalReporter
from flows.deploy.ends import Skipped, begin, crashed, ending, in_order, skipped, watched
from flows.deploy.turns import in_turn
from flows.improve import improve, validate
from flows.intake import take_in
from flows.opening import earlier_curation, opened, starting_facts, starting_point, tracked
from flows.screening import screened
from flows.setup import resolve_config
from flows.wheel_stages import Played, as_challenger, as_champion, bring
from tasks.closing.outcome import Outcome
from tasks.closing.report import told_by_mlflow, write_report
from tasks.engine.drivers import DirectDriver
from tasks.engine.fleet import check_fleet
from tasks.engine.foresight import foresee_run
from tasks.engine.reading import begin_run, waits_for_logs
from tasks.engine.run import Policy, Run
from tasks.records.audit import audited
from tasks.records.beforehand import work_folder_lines
from tasks.records.decisions import decide, note_tick, nothing_new
from tasks.records.doctor import Watch
from tasks.records.housekeeping import keep_house_after
from tasks.records.improvement import Improvement, candidate_rates
from tasks.records.split_chain import earlier_splits
from tasks.stages.candidate import champion_of, confirm, first_look, name_candidate, note_promoted
from tasks.stages.champion import promote_policy
from tasks.stages.curate import curate_tasks
from tasks.stages.evaluate import evaluate_policy
from tasks.stages.gate import gate_policy, power_before
from tasks.stages.warm_start import WARM_STARTS, warm_start_policy
from tracewheel.config import RetrainConfig, RolloutSections, SamplerSections
from tracewheel.core.errors import ConfigError, DataError, DoubtfulData
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import Entry
from tracewheel.curation.agreement import Agreement
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, SPLITS, TRAIN, load_tasks
from tracewheel.evaluation.error_budget import promise_in_words
from tracewheel.evaluation.idle_reward import check_idle
from tracewheel.operations.preflight import preflight
from tracewheel.policy.limits import check_base
from tracewheel.rollout.prompt_lengths import check_prompts
from tracewheel.sampling.curriculum import make_sampler
from tracewheel.sampling.validation import best_of
from tracewheel.scoring.missing import ADVICE
from tracewheel.traces.sources import fetch_new, named

DESCRIPTION = (
    "Turns the logs of an agent into a better adapter: takes in what was logged, trains on tasks whose outcome can be "
    "verified, and lets a statistical gate decide on held-out tasks whether the new adapter becomes champion. A run ends as "
    "Promoted, Refused or Skipped, each with its reason; one that was stopped or killed is resumed by the next."
)


@prefect.flow(name="retrain", description=DESCRIPTION, validate_parameters=False, on_crashed=[crashed])
def retrain(
    profile: str,
    overrides: list[str] | None = None,
    run_dir: str | None = None,
    scheduled: bool = False,
    fresh: bool = False,
) -> State[Any]:
    """Run the whole pipeline on a profile, or resume it.

    Args:
        profile: Path of the YAML profile.
        overrides: `a.b=value` settings.
        run_dir: Where everything goes, instead of the profile's `work_dir`.
        scheduled: Nobody waits for it: end as «Skipped», with the reason, when there is nothing to learn.
        fresh: Begin on the logs as they are now, even if an earlier run is incomplete.
    """
    config = resolve_config(profile, overrides, run_dir)

    def work() -> State[Any]:
        with in_order(), in_turn(config, scheduled=scheduled) as in_the_way:
            if in_the_way:
                return Completed(name="Skipped", message=in_the_way)
            return run_pipeline(config, scheduled=scheduled, fresh=fresh)

    return watched(config, work, scheduled=scheduled)


def run_alone(
    profile: str,
    overrides: list[str] | None,
    run_dir: str | None,
    driver: DirectDriver,
    *,
    scheduled: bool = False,
    fresh: bool = False,
) -> dict[str, Any]:
    """`retrain` without Prefect's server; returns the summary, or `skipped`: why a scheduled run did not start."""
    config = resolve_config(profile, overrides, run_dir)
    with in_order(), in_turn(config, scheduled=False):
        reporter = TerminalReporter()
        _fetch(config, reporter)
        run = screened(begin_run(config, reporter, driver, fresh=fresh), fresh=fresh)
        if scheduled and (reason := nothing_new(run)):
            return {"skipped": reason}
        state = ending(run, lambda: whole(run, reporter, scheduled=scheduled))
        found: dict[str, Any] | None = state.data  # type: ignore[assignment]  # a summary, or nothing
        return found or {"skipped": state.message}


def run_pipeline(config: RetrainConfig, *, scheduled: bool, fresh: bool = False) -> State[Any]:
    """What `retrain` does when its turn has come."""
    reporter = TerminalReporter()
    _fetch(config, reporter)
    if scheduled and waits_for_logs(config):
        return Completed(name="Skipped", message=f"no logs yet in {named(config.ingest.paths)}")
    run = screened(begin_run(config, reporter, fresh=fresh), fresh=fresh, tell=scheduled)
    if scheduled and (reason := nothing_new(run)):
        if not run.record.summary:
            note_tick(config.work_dir)
        return skipped(run, reason)
    return ending(run, lambda: whole(run, reporter, scheduled=scheduled))


def _fetch(config: RetrainConfig, reporter: TerminalReporter) -> None:
    """Fetch what sources of logs have that is new."""
    for found in fetch_new(config.ingest.paths):
        reporter.say(f"{found.address}: {found.lines} new lines")


def whole(run: Run, reporter: TerminalReporter, *, scheduled: bool) -> dict[str, Any]:
    """The run from its traces to its report; returns its summary.

    Raises:
        Skipped: there is not enough to learn for a scheduled run.
    """
    started = time.monotonic()
    with opened(run, reporter):
        begin(run, scheduled=scheduled)
        prepared = prepare(run)
        decision = decide(run, prepared.curated, prepared.start, asked=scheduled)
        if not decision.starts:
            keep_house_after(run)
            raise Skipped(decision.why)
        if scheduled:
            reporter.say(f"starts: {decision.why}")
        with tracked(run) as run:
            outcome = replace(learn(run, prepared), started=started)
            version = run.driver.call(promote_policy, run, outcome.policies["rl"], outcome.gate)
            note_promoted(run, outcome.candidate)
            summary = run.driver.call(write_report, run, outcome, version)
            bring(run.config, run.reporter.say)
        if scheduled:
            keep_house_after(run)
        return summary | told_by_mlflow(run.record)


@dataclass(frozen=True)
class Prepared:
    """What a run learns from, before anything is trained.

    Attributes:
        start: The starting facts (`opening.starting_facts`).
    """

    traces: Entry
    start: dict[str, Any]
    curated: Entry


def prepare(run: Run) -> Prepared:
    """The first part of the diagram: traces and tasks."""
    check_base(run.config)
    check_fleet(run.config)
    if not run.record.started():
        look_beforehand(run)
    traces = take_in(run)
    start = starting_facts(run, traces)
    splits, lost = earlier_splits(run, start)
    curated = curate_tasks(run, traces=traces, earlier=earlier_curation(run, start), splits=splits, splits_lost=lost)
    look_at_agreement(run, curated)
    return Prepared(traces, start, curated)


def learn(run: Run, prepared: Prepared | None = None) -> Outcome:
    """The rest of the diagram: warm starts, reinforcement learning, evaluation, gate."""
    prepared = prepared or prepare(run)
    traces, start, curated = prepared.traces, prepared.start, prepared.curated
    if run.tracking:
        run.reporter.say(curated.result["split_ledger"]["says"])
        run.tracking.log()
    if versions := curated.result.get("versions"):
        run.reporter.say(versions["says"])
    run.reporter.say(f"gate: {power_before(run, curated)['says']}. {promise_in_words(run.config.gate)}")
    look_at_prompts(run, curated)
    look_at_reward(run, curated)
    look_at_memory(run, curated)
    champion, sampler = starting_point(run, start, curated)
    accepts = audited(run, curated)
    # A candidate is an adapter alone, and a stage of a wheel changes more: it waits for a run without.
    waiting = None if run.config.wheel_sections else confirm(run, start, curated, beat=champion, false_accepts=accepts)
    proven = waiting is not None and waiting.promoted
    policies, chosen = without_rl(run, curated, waiting.policy if waiting else champion)
    plain = ours = Played(run, curated)
    played = {champion.name: as_champion(plain, start)} if champion else {}
    if waiting and proven:  # the night's work is done: what it trained would have to wait for the next gate
        baseline = waiting.against.name
        policies[baseline] = waiting.against
        learned = Improvement([validate(run, curated, chosen)])
        Watch(run, curated, chosen).see(0, learned.evaluations)
    else:
        baseline = chosen.name if waiting or champion else best_on_validation(run, curated, policies)
        theirs = played.get(chosen.name, plain)
        ours = as_challenger(theirs, chosen)
        if ours is not theirs:
            look_at_prompts(*ours)
        if ours is not plain:  # it makes variants of tasks in their environment
            sampler = make_sampler(SamplerSections.of(ours.run.config), ours.curated.path, start["sampler"])
        learned = improve(*ours, chosen, sampler)
    changed = learned.best.iteration > 0 and not same_weights(learned.best.policy, chosen)
    played["rl"] = ours
    policies["rl"] = replace(learned.best.policy if changed else chosen, name="rl")

    every = run.config.comparison.policies == "all"
    compared = {name: policy for name, policy in policies.items() if every or name in (baseline, "rl")}
    evaluations: dict[str, dict[str, Entry]] = {name: {} for name in compared}
    for split in (HELD_OUT, HARDER):
        for name, policy in compared.items():
            how = played.get(name, plain)
            evaluations[name][split] = evaluate_policy(how.run, policy=policy, curated=how.curated, split=split)
    if waiting and proven:
        gate = waiting.gate
    else:
        screen = evaluations["rl"][HELD_OUT]
        gate = gate_policy(
            run,
            challenger=screen,
            baseline=evaluations[baseline][HELD_OUT],
            baseline_name=baseline,
            first=None if waiting else first_look(run, curated),
            updates=learned.updates.values(),
            false_accepts=accepts,
            trained=changed or ours is not played.get(baseline, plain),
        )
        after = waiting or policies[baseline]
        gate = name_candidate(
            run, gate, curated, policy=policies["rl"], screen=screen, champion=champion_of(start), after=after
        )
    repeated = None
    if run.config.comparison.aa:  # the policy to beat once more on the same tasks, with another seed
        how = played.get(baseline, plain)
        repeated = evaluate_policy(how.run, policy=policies[baseline], curated=how.curated, split=HELD_OUT, repeat=1)
    return Outcome(
        traces=traces,
        curated=curated,
        policies=policies,
        evaluations=evaluations,
        learned=learned,
        gate=gate,
        candidate=waiting.line if waiting else None,
        sampler=sampler.to_state(),
        repeated=repeated,
    )


def look_beforehand(run: Run) -> None:
    """Say what `tracewheel check` finds, where something is wrong.

    Raises:
        ConfigError: something stands in the way of the run.
    """
    for line in (*preflight(run.config), *work_folder_lines(run.config)):
        says = "; ".join(text for text in (line.says, line.advice) if text)
        if line.state == "error":
            raise ConfigError(f"{line.name}: {says}")
        if line.state == "warning":
            run.reporter.say(f"{line.name}: {says}")


def look_at_agreement(run: Run, curated: Entry) -> None:
    """Check that most episodes agree with their log when replayed, before anything is trained on the rest.

    Raises:
        DoubtfulData: under half do, and `curation.allow_drift` is not set.
    """
    if run.record.summary or run.config.curation.allow_drift:
        return
    if "agreement" in curated.result and (drift := Agreement.from_record(curated.result["agreement"]).drifts()):
        raise DoubtfulData(f"{drift}; mend the environment, or train on the rest with curation.allow_drift=true")


def look_at_prompts(run: Run, curated: Entry) -> None:
    """Check that the tasks' prompts, or a program's first request, leave room for an episode, before anything is trained.

    Raises:
        ConfigError: they do not.
    """
    if run.record.summary:
        return
    tasks = [task for split in SPLITS for task in load_tasks(curated.path, split)]
    if warning := check_prompts(RolloutSections.of(run.config), tasks):
        run.reporter.say(f"{'program' if run.config.rollout.harness else 'prompts'}: {warning}")


def look_at_reward(run: Run, curated: Entry) -> None:
    """Check what no work earns under the rubric, and that it has the parts that its objectives name.

    Raises:
        ConfigError: an objective names a part that no verifier gives.
        DoubtfulData: no work earns more than `audit.max_idle_reward`.
    """
    if not run.record.summary and (said := check_idle(run.config.rubric, run.config.audit, load_tasks(curated.path, TRAIN))):
        run.reporter.say(f"reward: without any work {said}")


def look_at_memory(run: Run, curated: Entry) -> None:
    """Say what a run that has much to compute needs, and check that it fits.

    Raises:
        ConfigError: it does not.
    """
    if run.record.summary:
        return
    if foresight := foresee_run(run, curated.path):
        run.reporter.say(f"memory: {foresight.says()}")
        foresight.check()


def without_rl(run: Run, curated: Entry, champion: Policy | None) -> tuple[dict[str, Policy], Policy]:
    """The policies without this run's reinforcement learning by name, and the one that it starts from.

    What the profile's `comparison` does not ask for is left out: a run from a champion needs no warm start.
    """
    wanted = run.config.warm_start.demonstrations
    policies = {"base": run.base()}
    for demonstrations, name in WARM_STARTS.items():
        compared = run.config.comparison.warm_starts == "both" and demonstrations != "none"
        if compared or (demonstrations == wanted and not champion):
            trained = warm_start_policy(run, curated=curated, demonstrations=demonstrations)
            policies[name] = run.adapted(name, trained)
    if champion:
        policies[champion.name] = champion
    return policies, champion or policies[WARM_STARTS[wanted]]


def same_weights(one: Policy, other: Policy) -> bool:
    """Whether training has changed nothing."""
    return bool(one.weights and other.weights and digest_of(one.weights) == digest_of(other.weights))


def best_on_validation(run: Run, curated: Entry, policies: dict[str, Policy]) -> str:
    """The best policy without reinforcement learning: the baseline of the gate without a champion.

    Raises:
        DataError: no policy has enough scored episodes.
    """
    candidates = {name: validate(run, curated, policy) for name, policy in policies.items()}
    best = best_of(candidate_rates(candidates))
    if best is None:
        results = [candidate.evaluation.result for candidate in candidates.values()]
        found = [words for result in results for words in result.get("without_score", {}).values()]
        raise DataError(
            "no policy could be rated on the validation split: fewer than half of its tasks were scored for each"
            + (f". {found[0]}; {ADVICE}" if found else "")
        )
    return best
