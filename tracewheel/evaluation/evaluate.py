"""The evaluation stage: one greedy and several sampled episodes of each task, scored and summarised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import EvaluateSections, EvaluationConfig, RubricConfig
from tracewheel.core.files import write_frame, write_json, write_records
from tracewheel.core.inference import rate_interval
from tracewheel.core.types import Score, Task, Trajectory
from tracewheel.curation.curated_folder import HARDER, VALIDATION, load_components, load_tasks
from tracewheel.evaluation.paired_outcomes import COMPONENT, task_pass_at, task_rates
from tracewheel.evaluation.paired_outcomes import RESULTS_FILE as RESULTS_FILE
from tracewheel.policy.adapters import PolicyRef
from tracewheel.rollout.rollout import TRAJECTORIES_FILE, RolloutPlan, rollout
from tracewheel.sampling.seeds import evaluation_seed
from tracewheel.sampling.validation import MODES, VALIDATION_SAMPLES
from tracewheel.scoring.missing import missing_words
from tracewheel.scoring.objectives import PREFIX
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import SCORES_FILE, read_scores, score, write_scores

if TYPE_CHECKING:
    import pandas as pd

EVALUATION_FILE = "evaluation.json"
# Statuses of scores without a total, and the end of their columns' names.
# The folders of the rubric that does not decide, and the names of both.
TRAINING, HELD_BACK = "training", "held_back"
MISSING = {"unscored": "unscored", "infrastructure_failed": "failed"}


def evaluate(
    config: EvaluateSections,
    policy: PolicyRef,
    tasks: list[Task],
    out: Path,
    *,
    samples: int,
    seed: int,
    held_out: bool = False,
    components: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Evaluate a policy; writes both modes' trajectories and scores, `results.parquet`, `evaluation.json`.

    `results.parquet` has a row per task: `task_id`, `family`, `tier`, `component` (equal for tasks that hang together),
    `greedy` (1, 0, or NaN where unscored), `sampled_successes`, `sampled_attempts` (scored ones), and what is missing:
    `greedy_unscored`, `greedy_failed`, `sampled_unscored`, `sampled_failed`, episodes that no verifier scored or the
    infrastructure failed.

    Without tasks every rate is None.

    Args:
        samples: Sampled episodes per task; with 0 only greedy ones are played.
        seed: Seed of the sampled episodes.
        held_out: Whether the tasks are those by which policies are compared at the end. Then `evaluation.rubric` scores them,
            where there is one, and the training rubric's scores lie in `training/` of each mode; else it is the other way
            round, and the folder is `held_back/`.
        components: Task id to its component (`load_components`); a task that it lacks is alone.
        progress: Called with (finished episodes, all episodes) of each mode.

    Returns:
        The summary: `greedy` and `sampled`, each with `rate`, `interval` (95%), `n`; `pass_at`, and `pass_at_known` with the
        `interval`, `n` and `unscored` tasks of each k; `by_tier` and `by_family` with the same two rates; `missing`: by mode
        the number of `unscored` and `infrastructure_failed` episodes; `without_score`: by mode what left most of them so,
        where they are many; `episodes` and `generated_tokens`; where the rubric has `objectives`, the mean of each over both
        modes' scored episodes (None where nothing is scored); with an `evaluation.rubric`, `judges`: by rubric, `training` and
        `held_back`, each mode's mean success, reward and count.

    Raises:
        DataError, InfrastructureError: too many episodes failed through no fault of the policy.
    """
    settings = config.evaluation
    sampling = {"temperature": settings.temperature, "top_p": settings.top_p}
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update=sampling)})
    decides, beside = _rubrics(config, held_out)
    scores: dict[str, list[Score]] = {}
    others: dict[str, list[Score]] = {}
    spent: dict[str, Any] = {"episodes": 0.0, "generated_tokens": 0.0}
    if not tasks:  # a profile without a harder tier
        for mode in MODES:
            _play_none(out / mode)
        return write_evaluation(settings, decides, tasks, {mode: [] for mode in MODES}, out, spent, components)
    for mode, greedy in (("greedy", True), ("sampled", False)):
        folder = out / mode
        if not greedy and not samples:
            _play_none(folder)
            scores[mode] = []
            continue
        plan = RolloutPlan(tasks, samples=1 if greedy else samples, seed=seed, greedy=greedy)
        metrics = rollout(config, policy, plan, folder, progress=progress)
        spent |= {key: spent[key] + metrics[key] for key in ("episodes", "generated_tokens")}
        scores[mode] = _scored(config, decides, tasks, folder, folder)
        if beside:
            others[mode] = _scored(config, beside, tasks, folder, folder / (TRAINING if held_out else HELD_BACK))
    spent |= _judges(scores, others, held_out=held_out) if beside else {}
    return write_evaluation(config.evaluation, decides, tasks, scores, out, spent, components)


def evaluate_split(
    config: EvaluateSections,
    policy: PolicyRef,
    curated: Path,
    split: str,
    out: Path,
    *,
    samples: int | None = None,
    repeat: int = 0,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The evaluation stage: `evaluate` on the tasks of a split, or of the reserve, with the seed of that split.

    Args:
        curated: The curation stage's output.
        split: On `validation`, by which iterations are chosen, the training rubric scores; on the others `evaluation.rubric`.
        samples: Sampled episodes per task; by default one on `validation`, none on `harder`, else `evaluation.samples`.
        repeat: Number of a repeated evaluation, which has another seed.
        only: Ids of the tasks to play; by default all of the split.
    """
    if samples is None:
        samples = samples_on(split, config.evaluation)
    tasks = [task for task in load_tasks(curated, split) if only is None or task.id in only]
    seed = evaluation_seed(config.seed, split, repeat)
    known, held_out = load_components(curated), split != VALIDATION
    return evaluate(config, policy, tasks, out, samples=samples, seed=seed, held_out=held_out, components=known)


def samples_on(split: str, config: EvaluationConfig) -> int:
    """Sampled episodes per task on a split. Of the harder tier tables and aims read greedy success alone."""
    return {VALIDATION: VALIDATION_SAMPLES, HARDER: 0}.get(split, config.samples)


def _rubrics(config: EvaluateSections, held_out: bool) -> tuple[RubricConfig, RubricConfig | None]:
    """The rubric that decides, and the other one, where there are two."""
    held_back = config.evaluation.rubric
    if held_back is None:
        return config.rubric, None
    return (held_back, config.rubric) if held_out else (config.rubric, held_back)


def _scored(config: EvaluateSections, rubric: RubricConfig, tasks: list[Task], episodes: Path, out: Path) -> list[Score]:
    score(config.model_copy(update={"rubric": rubric}), tasks, episodes / TRAJECTORIES_FILE, out)
    return read_scores(out / SCORES_FILE)


def _judges(decided: Mapping[str, list[Score]], others: Mapping[str, list[Score]], *, held_out: bool) -> dict[str, Any]:
    both = (others, decided) if held_out else (decided, others)
    return {"judges": {name: _judged(found) for name, found in zip((TRAINING, HELD_BACK), both, strict=True)}}


def _judged(scores: Mapping[str, list[Score]]) -> dict[str, Any]:
    """By mode, the mean `success` and `reward` of the scored episodes, and how many there are."""
    found = {}
    for mode, items in scores.items():
        scored = [item for item in items if item.total is not None]
        totals = [item.total for item in scored if item.total is not None]
        count = len(scored)
        success = sum(success_of(item) for item in scored) / count if count else None
        found[mode] = {"success": success, "reward": sum(totals) / count if count else None, "n": count}
    return found


def _play_none(folder: Path) -> None:
    folder.mkdir(parents=True)
    write_records(folder / TRAJECTORIES_FILE, [], Trajectory)
    write_scores(folder / SCORES_FILE, [])


def write_evaluation(
    evaluation: EvaluationConfig,
    rubric: RubricConfig,
    tasks: list[Task],
    scores: Mapping[str, list[Score]],
    out: Path,
    spent: Mapping[str, Any],
    components: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write `results.parquet` and `evaluation.json` from scored episodes of any player; see `evaluate`.

    Args:
        scores: By mode: `greedy`, `sampled` or both.
        spent: More figures for the summary.
        components: Task id to its component.
    """
    successes = {mode: _successes(found) for mode, found in scores.items()}
    results = _results(tasks, successes.get("greedy", {}), successes.get("sampled", {}), components or {})
    for mode in MODES:
        for status, ending in MISSING.items():
            counts = Counter(item.task_id for item in scores.get(mode, []) if item.status == status)
            results[f"{mode}_{ending}"] = [counts[task.id] for task in tasks]
    import pyarrow

    texts = ("task_id", "family", COMPONENT)
    types = {name: pyarrow.string() if name in texts else pyarrow.int64() for name in results.columns}
    write_frame(out / RESULTS_FILE, results, pyarrow.schema(types | {"greedy": pyarrow.float64()}))
    summary = summarise(evaluation, results) | dict(spent)
    words = {mode: text for mode, found in scores.items() if (text := missing_words(found, out / mode / TRAJECTORIES_FILE))}
    summary |= {"without_score": words} if words else {}
    if rubric.objectives:
        names = [objective.name for objective in rubric.objectives]
        summary["objectives"] = {name: _mean_objective(list(scores.values()), name) for name in names}
    write_json(out / EVALUATION_FILE, summary)
    return summary


def summarise(config: EvaluationConfig, results: pd.DataFrame) -> dict[str, Any]:
    """Rates with 95% intervals (`inference.rate_interval`). `n` counts the scored tasks."""
    passed = {str(k): _known(results, task_pass_at(results, k)) for k in config.pass_at}
    return {
        "tasks": len(results),
        **_rates(results),
        "pass_at": {k: found.pop("rate") for k, found in passed.items()},
        "pass_at_known": passed,
        "by_tier": {str(tier): _rates(rows) for tier, rows in results.groupby("tier")},
        "by_family": {str(family): _rates(rows) for family, rows in results.groupby("family")},
        **({"missing": missing} if (missing := missing_episodes(results)) else {}),
    }


def missing_episodes(results: pd.DataFrame) -> dict[str, dict[str, int]]:
    """By mode, how many episodes are `unscored` and `infrastructure_failed`; empty for results of earlier versions."""
    if not {f"{mode}_{ending}" for mode in MODES for ending in MISSING.values()} <= set(results.columns):
        return {}
    return {mode: {status: int(results[f"{mode}_{ending}"].sum()) for status, ending in MISSING.items()} for mode in MODES}


def _mean_objective(modes: list[list[Score]], name: str) -> float | None:
    """The mean of the modes' means, by which candidates are ranked."""
    means = []
    for scores in modes:
        values = [item.breakdown[f"{PREFIX}{name}"] for item in scores if item.status == "scored"]
        if not values:
            return None
        means.append(sum(values) / len(values))
    return sum(means) / len(means)


def _successes(scores: list[Score]) -> dict[str, list[float]]:
    """The successes (1 or 0) of each task's scored episodes."""
    successes: dict[str, list[float]] = {}
    for item in scores:
        kept = successes.setdefault(item.task_id, [])
        if item.status == "scored":
            kept.append(float(success_of(item)))
    return successes


def _results(
    tasks: list[Task], greedy: dict[str, list[float]], sampled: dict[str, list[float]], components: Mapping[str, str]
) -> pd.DataFrame:
    import pandas as pd

    rows = [
        {
            "task_id": task.id,
            "family": task.family,
            "tier": task.tier,
            COMPONENT: components.get(task.id, task.id),
            "greedy": greedy[task.id][0] if greedy.get(task.id) else float("nan"),
            "sampled_successes": sum(sampled.get(task.id, [])),
            "sampled_attempts": len(sampled.get(task.id, [])),
        }
        for task in tasks
    ]
    columns = ["task_id", "family", "tier", COMPONENT, "greedy", "sampled_successes", "sampled_attempts"]
    return pd.DataFrame(rows, columns=columns)


def _rates(results: pd.DataFrame) -> dict[str, Any]:
    rates = task_rates(results)
    found = {mode: _known(results, rates[mode]) for mode in MODES}
    return {mode: {name: value for name, value in one.items() if name != "unscored"} for mode, one in found.items()}


def _known(results: pd.DataFrame, values: pd.Series) -> dict[str, Any]:
    """The mean of the tasks' values that are known, its interval, their number and that of the others."""
    known = values.notna().to_numpy()
    scored = values[known]
    components = results.loc[known, COMPONENT] if COMPONENT in results else None
    return {
        "rate": float(scored.mean()) if len(scored) else None,
        "interval": list(rate_interval(scored, components)) if len(scored) else [0.0, 1.0],
        "n": len(scored),
        "unscored": len(values) - len(scored),
    }
