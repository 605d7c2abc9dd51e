"""What a run of a profile makes, from the profile alone, and which of it the store has. Nothing is made and nothing written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.engine.differences import differences
from tasks.engine.run import Run
from tasks.engine.stage_code import TASKS
from tasks.records.gate_ledger import CANDIDATE, began_with
from tasks.stages.warm_start import WARM_STARTS
from tracewheel.config import RetrainConfig, load_stored_config
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import LOOP_FILE, RunRecord
from tracewheel.core.store import Entry
from tracewheel.core.types import content_hash
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, RESERVE, TASKS_FILE, TRAIN, VALIDATION, load_tasks
from tracewheel.evaluation.candidate import PROMOTED
from tracewheel.evaluation.evaluate import samples_on
from tracewheel.evaluation.ranking import Evaluation, comparable_rates
from tracewheel.report.doctor import read_guard
from tracewheel.sampling.validation import best_of, has_room, validates

# Sections that decide what a loop plays, beside those that the key of a rollout holds.
STEERING = ("training", "sampler", "learner", "guard", "rubric", "evaluation")


@dataclass(frozen=True)
class Planned:
    """A call of a stage.

    Attributes:
        stage: Its name in the store.
        label: The name of the call (`StageTask.label`).
        units: Its amount of work.
        after: Labels of the calls that it depends on.
        arguments: Plain arguments that tell it from others with its label.
        best_of: Labels of evaluations on the validation split, the best of which it goes on with.
    """

    stage: str
    label: str
    units: int = 1
    after: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    best_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """What a work folder says of a run beside its profile.

    Attributes:
        champion: Whether it starts from a champion.
        candidate: Name of the policy that the candidate which it starts from is compared with; "" where none waited.
        proven: Whether this run has proven it, and so trained nothing.
        tasks: Number of tasks by split, once they are curated.
        iterations: Those of a loop that is complete.
        went_back: Iterations after which the guard took that loop back.
    """

    champion: bool = False
    candidate: str = ""
    proven: bool = False
    tasks: Mapping[str, int] | None = None
    iterations: int | None = None
    went_back: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Found:
    """A planned call and its stored result; without one, why it would be made."""

    planned: Planned
    entry: Entry | None
    why: str = ""


def stages_of(config: RetrainConfig, known: Known = Known()) -> list[Planned]:
    """What a run of a profile makes, in order; dynamic sampling is counted with one round for each iteration."""
    plan = _Listing(config, known)
    plan.tasks()
    plan.policies()
    if not known.proven:
        plan.loop()
    plan.comparison()
    return plan.calls


class _Listing:
    """Lists the calls of `flows.retrain.whole`."""

    def __init__(self, config: RetrainConfig, known: Known) -> None:
        self.config, self.known = config, known
        self.calls: list[Planned] = []
        planned = {split: getattr(config.curation, f"{split}_tasks") for split in (TRAIN, VALIDATION, HELD_OUT, HARDER)}
        self._size: Mapping[str, int] = known.tasks or planned
        self._made_by: dict[str, str | None] = {"base": None}  # name of a policy to the label of the call that made it
        warm = WARM_STARTS[config.warm_start.demonstrations]
        self._start = "candidate" if known.candidate else "champion" if known.champion else warm
        self._validated: dict[str, str] = {}  # candidate to the label of its validation

    def _add(self, stage: str, label: str, units: int = 1, **more: Any) -> str:
        if all(label != call.label or more.get("arguments") != call.arguments for call in self.calls):
            self.calls.append(Planned(stage, label, units, **more))
        return label

    def tasks(self) -> None:
        self._add("ingest", "ingest")
        self._add("curate", "curate", after=("ingest",))

    def policies(self) -> None:
        both = self.config.comparison.warm_starts == "both"
        for demonstrations, name in WARM_STARTS.items():
            if name == self._start or (both and demonstrations != "none"):
                self._made_by[name] = self._add("warm_start", f"warm_start {demonstrations}", after=("curate",))
        if self.known.champion:
            self._made_by["champion"] = self._add("champion", "champion", after=("curate",))
        if self.known.candidate:
            self._made_by["candidate"] = None
            for name in ("candidate", self.known.candidate):
                self._evaluate(name, RESERVE)
            if self.known.proven:
                self._validate("candidate")
        elif not self.known.champion:
            for name in self._made_by:
                self._evaluate(name, VALIDATION)

    def _evaluate(self, name: str, split: str, *, repeat: int = 0, **more: Any) -> str:
        made_by = self._made_by.get(name)
        after = ("curate", *([made_by] if made_by else []))
        wanted = {"split": split, **({"repeat": repeat} if repeat else {})}
        units = self._size.get(HELD_OUT if split == RESERVE else split, 0) * (1 + samples_on(split, self.config.evaluation))
        return self._add("evaluate", f"evaluate {name} {split}", units, after=after, arguments=wanted, **more)

    def _validate(self, name: str) -> None:
        self._validated[name] = self._evaluate(name, VALIDATION)

    def loop(self) -> None:
        config, training = self.config, self.config.training
        episodes = min(training.tasks_per_iteration, self._size.get(TRAIN, 0)) * config.episodes_per_task
        rollout = "collect" if config.rollout.mode == "async" else "rollout"
        self._validate(self._start)
        state = self._made_by[self._start] or "curate"
        for name in config.wheel_sections:
            state = self._add(name, f"{name} {self._start}", after=("curate", state))
        for iteration in range(1, training.iterations + 1):
            of = f"{iteration} of {training.iterations}"
            trajectories = self._add(rollout, f"{rollout} {of}", episodes, after=("curate", state))
            scores = self._add("score", f"score {of}", episodes, after=(trajectories,))
            if iteration == 1 and config.learner.learning_rate == "auto":
                state = self._add("rate_trials", "rate_trials", len(config.rate_trials.rates), after=(scores,))
            state = self._add("update", f"update {of}", after=(scores, state))
            if iteration in self.known.went_back:
                state = self._add("go_back", f"go_back {of}", after=(state,))
            self._made_by[f"rl-{iteration}"] = state
            last = iteration == self.known.iterations or not has_room(
                training.episodes, iteration * config.episodes_per_iteration, config.episodes_per_iteration
            )
            if iteration not in self.known.went_back and (last or validates(training, iteration)):
                self._validate(f"rl-{iteration}")
            if last:
                break

    def comparison(self) -> None:
        config, every = self.config, self.config.comparison.policies == "all"
        chosen = {"rl": tuple(self._validated.values())}
        without = tuple(f"evaluate {name} {VALIDATION}" for name in self._made_by if not name.startswith("rl-"))
        baseline = self.known.candidate if self.known.proven else self._start
        if not self.known.champion and not self.known.candidate:
            chosen["baseline"] = without
        names = [name for name in self._made_by if not name.startswith("rl-") and (every or name == baseline)]
        for split in (HELD_OUT, HARDER):
            for name in [*names, "rl"]:
                # Of the policies without reinforcement learning the best is compared; which one validation says.
                alone = name == baseline and not every
                self._evaluate(name, split, best_of=chosen.get("rl" if name == "rl" else "baseline" if alone else "", ()))
        if config.gate.false_accepts == "audit":
            self._add("audit", "audit", after=("curate",))
        if not self.known.proven:
            self._add("gate", "gate", after=(f"evaluate rl {HELD_OUT}", f"evaluate {baseline} {HELD_OUT}"))
        if config.comparison.aa:
            self._evaluate(baseline, HELD_OUT, repeat=1, best_of=chosen.get("baseline", ()))


class Lookup:
    """Finds planned calls among the stored results of a work folder.

    Args:
        run: The run.
        start: What it starts from (`start.json`).
    """

    def __init__(self, run: Run, start: Mapping[str, Any]) -> None:
        self._run, self._start = run, start
        self._made = run.store.made()
        own = (began_with(run, start) or {}).get(CANDIDATE, {})
        self._why = {own[name]: "" for name in ("weights", "against") if own.get(name)}  # made by earlier runs, as they are
        self._curated: Entry | None = None
        self._found: dict[str, Entry] = {}
        events = [event for event in read_guard(run.record.path) or [] if event["action"] == "go_back"]
        self._updates_with = [(event["iteration"], event["learning_rate"]) for event in events]  # after it, the rate

    def find(self, planned: Planned) -> Found:
        """The result of a call. Calls are asked for in their order."""
        if missing := next((label for label in (*planned.after, *planned.best_of) if label not in self._found), None):
            return Found(planned, None, f"'{missing}' is made first")
        if planned.stage not in TASKS:
            return Found(planned, None, "what a stage of a wheel has found is looked up when the run reaches it")
        names = list(self._named(planned))
        name = next((name for name in names if not self._why_not(name)), None)
        if name is None:
            return Found(planned, None, self._why_not(names[0]) if names else "nothing is stored")
        entry = self._run.store.find_named(name)
        if entry is None:
            return Found(planned, None, f"what is stored is damaged: {self._run.store.flaws[name]}")
        self._found[planned.label] = entry
        if planned.stage == "curate":
            self._curated = entry
        if planned.stage == "rate_trials":
            self._updates_with.insert(0, (0, entry.result["learning_rate"]))
        return Found(planned, entry)

    def _named(self, planned: Planned) -> Iterator[str]:
        """Names of the stored results that may be this call's, the newest first."""
        chosen = self._best(planned.best_of) if planned.best_of else None
        for name, made in self._made.items():
            arguments = made["arguments"]
            if not name.startswith(f"{planned.stage}-") or arguments.get("repeat") != planned.arguments.get("repeat"):
                continue
            if any(arguments.get(key) != value for key, value in planned.arguments.items()):
                continue
            if chosen is None:
                ours = _without_total(made["label"]) == _without_total(planned.label)
            else:
                ours = _identity(arguments["policy"]) == _identity(chosen)
            if ours:
                yield name

    def _best(self, labels: Iterable[str]) -> Mapping[str, Any]:
        """The policy of the best of these evaluations, as an argument."""
        entries = {label: self._found[label] for label in labels}
        rates = comparable_rates({label: Evaluation(entry.result, entry.path) for label, entry in entries.items()})
        best = best_of(rates) or next(iter(entries))
        policy: Mapping[str, Any] = self._made[entries[best].path.name]["arguments"]["policy"]
        return policy

    def _why_not(self, name: str) -> str:
        """Why a stored result is not what the run would make; empty where it is."""
        if name not in self._why:
            self._why[name] = ""  # an update that took no step is made from what it is
            self._why[name] = self._differs(name, self._made[name]) if name in self._made else f"{name} is no longer stored"
        return self._why[name]

    def _differs(self, name: str, made: Mapping[str, Any]) -> str:
        stage, arguments = name.rpartition("-")[0], made["arguments"]
        if found := differences(made, TASKS[stage], self._config_of(stage, arguments), self._run.store):
            return "; ".join(found)
        if own := self._differs_in_start(stage, made):
            return own
        skipped = {"earlier", "splits"} | ({"curated"} if stage == "evaluate" else set())
        for argument, value in arguments.items():
            for upstream in _entries_in(value) if argument not in skipped else ():
                same = [other for other, facts in self._made.items() if facts["digest"] == upstream["digest"]]
                if all(map(self._why_not, [*same, upstream["entry"]])):
                    label = self._made.get(upstream["entry"], {"label": upstream["entry"]})["label"]
                    return f"'{label}' is another"
        return ""

    def _config_of(self, stage: str, arguments: Mapping[str, Any]) -> RetrainConfig:
        """The profile as a call sees it: the trials of learning rates and the guard change that of updates."""
        config, rate = self._run.config, None
        if stage == "update":
            rate = next((rate for after, rate in reversed(self._updates_with) if arguments["iteration"] > after), None)
        if rate is None:
            return config
        return config.model_copy(update={"learner": config.learner.model_copy(update={"learning_rate": rate})})

    def _differs_in_start(self, stage: str, made: Mapping[str, Any]) -> str:
        """What a call does not read of its upstream: the logs, and what the run starts from."""
        arguments, start = made["arguments"], self._start
        if stage == "ingest" and arguments["snapshot"]["snapshot"] != self._run.snapshot.digest:
            return "the logs are others"
        if stage == "curate":
            earlier, splits = arguments.get("earlier") or {}, arguments.get("splits") or {}
            if earlier.get("entry") != start.get("evidence"):
                return "pass rates resume from another curation"
            if bool(splits) != bool(start.get("splits")) or (
                splits and splits["digest"] != start["splits"].get("digest", splits["digest"])
            ):
                return "splits resume from another record"
        if stage == "champion" and arguments["version"] != (start.get("champion") or {}).get("version"):
            return "the champion is another"
        if stage == "evaluate" and not self._same_tasks(arguments["curated"]["entry"], arguments["split"]):
            return f"the {arguments['split']} tasks are others"
        if stage in ("rollout", "collect"):
            return self._differs_in_choice(stage, made["run"])
        return ""

    def _same_tasks(self, curated: str, split: str) -> bool:
        """Whether an earlier curation has the same tasks in a split."""
        ours = self._curated
        if ours is None or ours.path.name == curated:
            return ours is not None
        theirs = self._run.store.root / curated
        tasks = [[task.to_record() for task in load_tasks(path, split)] for path in (ours.path, theirs) if path.is_dir()]
        return len(tasks) == 2 and content_hash(tasks[0]) == content_hash(tasks[1])

    def _differs_in_choice(self, stage: str, run_id: str) -> str:
        """Whether the run that made a rollout chose its tasks as this one would."""
        run = self._run
        if run_id == run.record.run_id:
            return ""
        if stage == "collect":
            return "its workers' queue is of another run"
        record = RunRecord(run.record.path.parent, run_id)
        try:
            began, theirs = record.started(), load_stored_config(record.path)
        except (ConfigError, DataError):
            began, theirs = None, run.config
        if began is None:
            return f"run {run_id}, which chose its tasks, is gone"
        if began.get("sampler") != self._start.get("sampler"):
            return "the tasks' posterior chooses other tasks"
        changed = [name for name in STEERING if _steers(theirs, name) != _steers(run.config, name)]
        return f"other tasks are chosen: {', '.join(changed)}" if changed else ""


def _steers(config: RetrainConfig, section: str) -> Any:
    """A section without how long the loop is: a longer one begins as a shorter one."""
    settings = getattr(config, section)
    return settings.model_copy(update={"iterations": 1, "episodes": None}) if section == "training" else settings


def _without_total(label: str) -> str:
    return re.sub(r" of \d+", "", label)


def known_of(run: Run, start: Mapping[str, Any], curated: Entry | None) -> Known:
    """What the work folder says of a run beside its profile."""
    tasks = None
    if curated is not None:
        counts = read_table(curated.path / TASKS_FILE)["split"].value_counts()
        tasks = {str(split): int(count) for split, count in counts.items()}
    loop = run.record.path / LOOP_FILE
    complete = run.record.summary is not None and loop.is_file()
    run_began_with = (run.record.summary or {}).get("candidate") or {}
    against = (run_began_with if run.record.summary else began_with(run, start) or {}).get("baseline", "")
    events = read_guard(run.record.path) or []
    return Known(
        champion=bool(start.get("champion")),
        candidate=against,
        proven=run_began_with.get("verdict") == PROMOTED,
        tasks=tasks,
        iterations=len(read_json(loop)["iterations"]) if complete else None,
        went_back=frozenset(event["iteration"] for event in events if event["action"] in ("go_back", "stop")),
    )


def _entries_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """The entries that an argument names."""
    if isinstance(value, Mapping):
        if {"entry", "digest"} <= value.keys():
            yield value
        else:
            for inner in value.values():
                yield from _entries_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _entries_in(inner)


def _identity(policy: Mapping[str, Any]) -> tuple[Any, Any]:
    return policy.get("digest"), policy["version"]
