"""The exam: what served a day is measured on the tasks that users asked for on it.

All verified tasks of the window make one curation, in which nothing is set apart. The base and each champion play them once,
greedily. A task counts on each day on which a trace asks for it, in a branch whose runs had not trained or selected on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, FinishedRun, content_hash, load_tasks, read_table, run_named
from tracewheel_lab.backtest.replay import ENDS, Profile, Tick, tracewheel

if TYPE_CHECKING:
    import pandas

    from tracewheel_lab.backtest.plan import Window

BASE = ""
MANY = 1_000_000
ALL_TASKS = (  # one split of all tasks; curation needs a component for each of the others
    "curation.counts=auto", "curation.split=components", "curation.rotate=null", "curation.min_attempts=0",
    f"curation.train_tasks={MANY}", "curation.validation_tasks=1", "curation.held_out_tasks=1", "curation.harder_tasks=0",
    "curation.shares={validation: 1.0e-06, test: 1.0e-06}", "curation.allow_drift=true",
)  # fmt: skip
LEAST_TASKS = 20
HALF = NormalDist().inv_cdf(0.975)


def make_exam(profile: Profile, window: Window, traces: pandas.DataFrame, folder: Path) -> pandas.DataFrame:
    """The tasks of each day: rows of `day`, `moment` (of the day's first trace), `task_id` and `fingerprint`.

    Args:
        profile: The profile.
        window: The days.
        traces: Ingested traces with `moment`.
        folder: Gets the curation, `curated/`; one that is there is used.

    Raises:
        DataError: nothing of these days can be verified.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = traces[(traces["moment"] >= window.begin) & (traces["moment"] < window.end)]
    curated, log = folder / "curated", folder / "console.log"
    if not curated.is_dir():
        own.drop(columns="moment").to_parquet(folder / "traces.parquet", index=False)
        tracewheel(["ingest", str(folder / "traces.parquet"), "--out", str(folder / "ingested")], log)
        words = ["curate", *profile.words(*ALL_TASKS), "--traces", str(folder / "ingested"), "--out", str(curated)]
        tracewheel(words, log)
    tasks = read_table(curated / "tasks.parquet", ["id", "fingerprint", "split"])
    episodes = read_table(curated / "episodes.parquet", ["trace_id", "task_id"])
    asked = episodes.merge(tasks[tasks["split"] == "train"], left_on="task_id", right_on="id")
    asked = asked.merge(own[["id", "moment"]], left_on="trace_id", right_on="id").sort_values("moment")
    if asked.empty:
        raise DataError(f"--from {window.first} --to {window.last}: no trace of these days gives a task that can be verified")
    asked["day"] = asked["moment"].dt.tz_convert(window.zone).dt.date.astype(str)
    return asked.drop_duplicates(["day", "task_id"])[["day", "moment", "task_id", "fingerprint"]].reset_index(drop=True)


def sit_exam(profile: Profile, champion: str, folder: Path) -> dict[str, float]:
    """Greedy success of a policy on each task; unscored ones are left out.

    Args:
        profile: The profile.
        champion: Folder of the run; `BASE` for the base.
        folder: Where `make_exam` wrote; an evaluation that is there is used.
    """
    out = folder / f"evaluation-{content_hash(champion) if champion else 'base'}"
    if not out.is_dir():
        state = ["--state", champion] if champion else []
        words = [
            "evaluate",
            *profile.words(),
            "--curated",
            str(folder / "curated"),
            *state,
            "--split",
            "train",
            "--samples",
            "0",
        ]
        tracewheel([*words, "--out", str(out)], folder / "console.log")
    found = read_table(out / "results.parquet", ["task_id", "greedy"]).dropna()
    return dict(zip(found["task_id"], found["greedy"].astype(float), strict=True))


def used_by(run: str) -> set[str]:
    """Fingerprints of the tasks that a run trained or selected on."""
    curated = FinishedRun(run_named(run)).curated
    return {task.fingerprint for split in ("train", "validation") for task in load_tasks(curated, split)}


def figures_of(
    asked: pandas.DataFrame, ticks: Sequence[Tick], scores: Mapping[str, Mapping[str, float]], used_in: Mapping[str, set[str]]
) -> dict[str, Any]:
    """What a branch would have brought.

    Args:
        asked: From `make_exam`.
        ticks: Of the branch.
        scores: Champion to task id to success.
        used_in: Run to what `used_by` says of it.

    Returns:
        `points` gained over the base (see `_area`), `days`, `ends`: number of ticks by their end, `promotions` as judged by
        later tasks, `asked` and `used_before`: tasks of days, and how many of them do not count, and `ticks`.
    """
    moments = [datetime.fromisoformat(tick.at) for tick in ticks]
    used: list[set[str]] = [set()]
    for tick in ticks:
        used.append(used[-1] | used_in.get(tick.run, set()))
    champions = [BASE, *(tick.champion for tick in ticks)]
    places = [sum(moment <= at for moment in moments) for at in asked["moment"]]
    rows = asked.assign(
        known=[print in used[place] for print, place in zip(asked["fingerprint"], places, strict=True)],
        champion=[scores[champions[place]].get(task) for task, place in zip(asked["task_id"], places, strict=True)],
        base=asked["task_id"].map(scores[BASE]),
    )
    fair = rows[~rows["known"]].dropna(subset=["champion", "base"])
    fair = fair.assign(gain=100.0 * (fair["champion"] - fair["base"]))
    by_day = fair.groupby("day").agg(champion=("champion", "mean"), base=("base", "mean"), tasks=("task_id", "size"))
    promotions = [
        _judged(asked, moment, (tick.champion, before), scores, used[place + 1])
        for place, (moment, tick, before) in enumerate(zip(moments, ticks, champions, strict=False))
        if tick.champion != before
    ]
    return {
        "points": _area(fair),
        "days": by_day.reset_index().to_dict("records"),
        "ends": {end: sum(tick.end == end for tick in ticks) for end in ENDS},
        "promotions": promotions,
        "asked": len(rows),
        "used_before": int(rows["known"].sum()),
        "ticks": [vars(tick) for tick in ticks],
    }


def _area(rows: pandas.DataFrame) -> dict[str, Any]:
    """Point-days over the base, the sum of the days' mean `gain`, with its 95% interval.

    The variance is that of a sum of daily means. A task asked for on several days is one draw, so its residuals are added up; a
    day of n tasks counts n / (n - 1), and a day with one task adds none.
    """
    if rows.empty:
        return {"gained": 0.0, "low": 0.0, "high": 0.0, "days": 0}
    by_day = rows.groupby("day")["gain"]
    count, mean = by_day.transform("size"), by_day.transform("mean")
    weight = (count / (count - 1).where(count > 1, 1.0)) ** 0.5 * (count > 1)
    residual = (rows["gain"] - mean) / count * weight
    half = HALF * math.sqrt(float((residual.groupby(rows["task_id"]).sum() ** 2).sum()))
    gained = float(by_day.mean().sum())
    return {"gained": gained, "low": gained - half, "high": gained + half, "days": int(rows["day"].nunique())}


def _judged(
    asked: pandas.DataFrame,
    moment: datetime,
    policies: tuple[str, str],
    scores: Mapping[str, Mapping[str, float]],
    used: set[str],
) -> dict[str, Any]:
    """A promotion on later tasks that no run of the branch had used: points over the replaced policy, and what that says."""
    later = asked[(asked["moment"] >= moment) & ~asked["fingerprint"].isin(used)].drop_duplicates("task_id")
    pairs = [tuple(scores[policy].get(task) for policy in policies) for task in later["task_id"]]
    gains = [100.0 * (new - old) for new, old in pairs if new is not None and old is not None]
    count = len(gains)
    found: dict[str, Any] = {"at": moment.isoformat(), "tasks": count, "difference": sum(gains) / count if count else None}
    if count < LEAST_TASKS:
        return found | {"low": None, "high": None, "verdict": "too few tasks"}
    mean = sum(gains) / count
    half = HALF * math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (count - 1) / count)
    verdict = "better" if mean > half else "false" if mean + half <= 0 else "open"
    return found | {"low": mean - half, "high": mean + half, "verdict": verdict}
