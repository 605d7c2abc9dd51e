"""`tracewheel backtest`: replays scheduled retraining on the logs of the past, and measures what would have served each day."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, Writes, profile_options

if TYPE_CHECKING:
    import pandas

    from tracewheel import Card
    from tracewheel_lab.backtest.plan import Window
    from tracewheel_lab.backtest.replay import Profile

PLAN_FILE, RESULT_FILE, PAGE_FILE, CONSOLE_FILE = "plan.json", "backtest.json", "backtest.md", "console.log"
HEAD = (
    "branch", "point-days", "95% interval", "promoted", "false promotions", "waits", "refused", "skipped", "failed",
    "promotions on later tasks",
)  # fmt: skip


def options(parser: ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--logs", metavar="PATH", help="files, folder or glob of logs (default: the profile's ingest.paths)")
    parser.add_argument("--from", dest="first", required=True, metavar="DATE", help="first day; older logs are known on it")
    parser.add_argument("--to", dest="last", required=True, metavar="DATE", help="last day, included")
    parser.add_argument("--cadence", required=True, metavar="LIST", help="how often a run is scheduled, as in 12h,1d,3d,2w")
    parser.add_argument(
        "--compare", action="append", default=[], metavar="a.b=LIST", help="a setting's values, as in gate.confidence=0.8,0.95"
    )
    parser.add_argument("--timezone", metavar="NAME", help="of the days (default: schedule.timezone, or UTC)")
    parser.add_argument("--out", metavar="DIR", help="results and state; the same command resumes (default: WORK_DIR-backtest)")


def run(options: Namespace) -> dict[str, Any]:
    """Replay each branch, and let what served sit the exam.

    Raises:
        InputError: an option, the profile or the logs are wrong, or the folder holds another backtest.
        InfrastructureError: a run failed for another reason; the same command resumes.
    """
    from tracewheel import prepare_environment, resolve_config, write_json
    from tracewheel_lab.backtest.exam import BASE, figures_of, make_exam, sit_exam, used_by
    from tracewheel_lab.backtest.plan import Window, branches_of
    from tracewheel_lab.backtest.replay import Profile, check_settings, replay

    overrides = [*options.overrides, *([f"ingest.paths={json.dumps([options.logs])}"] if options.logs else [])]
    config = resolve_config(options.config, overrides, options.run_dir)
    config.require("policy.base")
    prepare_environment(None, debug=options.debug)
    window = Window.of(options.first, options.last, options.timezone or config.schedule.timezone or "UTC")
    branches = branches_of(options.cadence, options.compare)
    moments = {branch: window.ticks(branch.cadence) for branch in branches}
    profile = Profile(options.config, tuple(overrides))
    check_settings(profile, branches)
    out = Path(options.out or f"{config.work_dir.rstrip('/')}-backtest").resolve()
    _keep_plan(
        out, {"profile": config.model_dump(mode="json", exclude={"work_dir"}), "window": [*map(str, vars(window).values())]}
    )

    traces = _traces(profile, window, out)
    asked = make_exam(profile, window, traces, out / "exam")
    ticks = {
        branch: replay(profile, branch, moments[branch], traces, out / "branches" / branch.folder, _say) for branch in branches
    }
    scores = {BASE: sit_exam(profile, BASE, out / "exam")}
    for champion in dict.fromkeys(tick.champion for found in ticks.values() for tick in found if tick.champion):
        scores[champion] = sit_exam(profile, champion, out / "exam")
    used = {tick.run: used_by(tick.run) for found in ticks.values() for tick in found if tick.run}
    result = {
        "window": {"from": str(window.first), "to": str(window.last), "timezone": window.zone},
        "exam": {"tasks": int(asked["task_id"].nunique()), "days": int(asked["day"].nunique())},
        "branches": {branch.name: figures_of(asked, ticks[branch], scores, used) for branch in branches},
    }
    write_json(out / RESULT_FILE, result)
    (out / PAGE_FILE).write_text(page(result), encoding="utf-8")
    return {**result, "out": str(out), "page": str(out / PAGE_FILE)}


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _keep_plan(out: Path, plan: dict[str, Any]) -> None:
    """Write what identifies the backtest, or compare it with what the folder holds.

    Raises:
        DataError: the folder holds another one, or something else.
    """
    from tracewheel import read_json, write_json

    path = out / PLAN_FILE
    if path.is_file():
        other = [name for name, value in plan.items() if read_json(path).get(name) != value]
        if other:
            raise DataError(f"--out {out}: holds a backtest with another {' and '.join(other)}; give another folder")
    elif out.is_dir() and any(out.iterdir()):
        raise DataError(f"--out {out}: holds something else than a backtest; give another folder")
    else:
        out.mkdir(parents=True, exist_ok=True)
        write_json(path, plan)


def _traces(profile: Profile, window: Window, out: Path) -> pandas.DataFrame:
    """All traces of the logs with `moment`, from which each exists: when it was made, or before the window if that is unknown.

    Raises:
        DataError: none is of the window.
    """
    import pandas

    from tracewheel import read_table
    from tracewheel_lab.backtest.replay import tracewheel

    ingested = out / "ingested"
    if not ingested.is_dir():
        tracewheel(["ingest", *profile.words(), "--out", str(ingested)], out / CONSOLE_FILE)
    traces = read_table(ingested / "traces.parquet")
    moments = pandas.to_datetime(traces["created"], utc=True, errors="coerce", format="ISO8601")
    inside = (moments >= window.begin) & (moments < window.end)
    if not inside.any():
        raise DataError(
            f"--from {window.first} --to {window.last}: no trace is of these days; the logs have {moments.min():%Y-%m-%d} to"
            f" {moments.max():%Y-%m-%d}"
        )
    if unknown := int(moments.isna().sum()):
        _say(f"{unknown} traces have no time: they count as older than the window")
    return traces.assign(moment=moments.fillna(pandas.Timestamp(window.begin) - pandas.Timedelta(seconds=1)))


def rows_of(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table, in the order of `HEAD`; the branch with the most points first."""
    ordered = sorted(result["branches"].items(), key=lambda item: -item[1]["points"]["gained"])
    return [
        (
            name,
            f"{one['points']['gained']:+.0f}",
            f"{one['points']['low']:+.0f} to {one['points']['high']:+.0f}",
            str(one["ends"]["promoted"]),
            _false_promotions(one["promotions"]),
            *(str(one["ends"][end]) for end in HEAD[5:9]),
            ", ".join(promotion["verdict"] for promotion in one["promotions"]) or "none",
        )
        for name, one in ordered
    ]


def _false_promotions(promotions: Sequence[Mapping[str, Any]]) -> str:
    """Promotions that later tasks show to be false, of those that enough later tasks judge."""
    verdicts = [promotion["verdict"] for promotion in promotions]
    return f"{verdicts.count('false')} of {len(verdicts) - verdicts.count('too few tasks')}"


def page(result: Mapping[str, Any]) -> str:
    """The result as Markdown: the table, the curve of each branch by day, and its runs."""
    window = result["window"]
    lines = [f"# Backtest {window['from']} to {window['to']}", "", *_table(HEAD, rows_of(result))]
    for name, one in result["branches"].items():
        lines += [
            "",
            f"## {name}",
            "",
            f"{one['used_before']} of {one['asked']} tasks of days had been trained or selected on",
            "",
        ]
        days = [(day["day"], f"{day['base']:.1%}", f"{day['champion']:.1%}", str(day["tasks"])) for day in one["days"]]
        lines += [*_table(("day", "base", "champion", "tasks"), days), ""]
        runs = [
            (
                tick["at"][:16].replace("T", " "),
                tick["end"],
                "" if tick["gain"] is None else f"{100 * tick['gain']:+.1f}",
                tick["why"],
            )
            for tick in one["ticks"]
        ]
        lines += _table(("run", "end", "points", "why"), runs)
    return "\n".join(lines) + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    cells = [head, ("---",) * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in cells]


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    rows, exam = rows_of(result), result["exam"]
    return Card(
        f"Backtest of {len(rows)} schedules, written to {result['page']}",
        [("exam", f"{exam['tasks']} tasks on {exam['days']} days")],
        [Grid(HEAD, rows)],
        f"most points over the base: {rows[0][0]} ({rows[0][1]}, {rows[0][2]})",
    )


COMMAND = Command(
    "backtest",
    "what scheduled retraining would have done with past logs",
    options,
    run,
    card,
    Writes((PLAN_FILE,), ("ingested/*", "exam/*", "branches/*", RESULT_FILE, PAGE_FILE, CONSOLE_FILE)),
)
