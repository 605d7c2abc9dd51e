"""The replay: logs cut by date, and one `tracewheel retrain --as-of` for each scheduled run.

Each branch has a work folder of its own, with `logs/`, which only grows, and `ticks.json`. A killed backtest goes on with the
tick that was interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import ConfigError, InfrastructureError, InputError, gain_of, in_words, read_json, write_json

if TYPE_CHECKING:
    import pandas

    from tracewheel_lab.backtest.plan import Branch

DONE, BAD_INPUT, REFUSED, UNHEALTHY = 0, 2, 3, 4
ENDS = ("promoted", "waits", "refused", "skipped", "failed")
TICKS_FILE, LOGS, CONSOLE_FILE = "ticks.json", "logs", "console.log"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Profile:
    """A profile as the command line has it: its path and `a.b=c` settings."""

    path: str
    settings: tuple[str, ...] = ()

    def words(self, *settings: str) -> list[str]:
        """Words of a command line, with further settings."""
        return [self.path, *(word for setting in (*self.settings, *settings) for word in ("--set", setting))]


@dataclass(frozen=True)
class Tick:
    """A scheduled run of the past.

    Attributes:
        at: Its moment.
        end: One of `ENDS`; `waits` where the challenger became the candidate.
        why: The verdict in words, and what came of a candidate of earlier runs; else why there was none.
        run: Folder of the run; "" where none came to a verdict.
        gain: The gain that the verdict shows: of a promotion the expected one; None where no gate measured it.
        champion: Folder of the run whose policy serves from now on; "" is the base.
    """

    at: str
    end: str
    why: str
    run: str
    gain: float | None
    champion: str


def tracewheel(words: Sequence[str], log: Path, accept: Sequence[int] = (DONE,)) -> tuple[int, dict[str, Any]]:
    """Run a command as a child process; returns its exit code and what it printed as JSON.

    Args:
        words: The command line, without `--json`.
        log: A file to which what it says is added.
        accept: Exit codes that are results.

    Raises:
        InputError: what it was given is unusable, and that is not accepted.
        InfrastructureError: it ended with another code.
    """
    program = shutil.which("tracewheel", path=os.path.dirname(sys.executable)) or shutil.which("tracewheel")
    if program is None:
        raise InfrastructureError("the command tracewheel is not on the path")
    with log.open("a", encoding="utf-8") as said:
        child = subprocess.run([program, *words, "--json"], stdout=subprocess.PIPE, stderr=said, text=True, check=False)
    try:
        result: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        result = {"error": f"it printed no result; see {log}"}
    if child.returncode in accept:
        return child.returncode, result
    message = f"tracewheel {words[0]} ended with {child.returncode}: {result.get('error', f'see {log}')}"
    raise (InputError if child.returncode == BAD_INPUT else InfrastructureError)(message)


def replay(
    profile: Profile, branch: Branch, moments: Sequence[datetime], traces: pandas.DataFrame, folder: Path, say: Say
) -> list[Tick]:
    """Replay a branch from where it stands; returns its ticks.

    Args:
        profile: What every run is made with.
        branch: Its settings are added.
        moments: When runs are scheduled.
        traces: Ingested traces with `moment`, the time from which each exists.
        folder: Work folder of the branch.
        say: Told of each tick.

    Raises:
        InfrastructureError: a run failed for a reason that is not in its input; the same command resumes.
    """
    logs = folder / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    path = folder / TICKS_FILE
    ticks = [Tick(**tick) for tick in read_json(path)] if path.is_file() else []
    settings = (
        *branch.settings,
        f"ingest.paths={json.dumps([str(logs)])}",
        f"tracking.uri=sqlite:///{folder / 'mlflow.db'}",
        "gate.approval=none",
    )
    for place in range(len(ticks), len(moments)):
        moment = moments[place]
        new = traces[traces["moment"] < moment]
        if place:
            new = new[new["moment"] >= moments[place - 1]]
        if len(new):
            new.drop(columns="moment").to_parquet(logs / f"{moment:%Y%m%dT%H%M}.parquet", index=False)
        before = ticks[-1].champion if ticks else ""
        ticks.append(_tick(profile.words(*settings), moment.isoformat(), folder, before, has_logs=any(logs.iterdir())))
        write_json(path, [asdict(tick) for tick in ticks])
        say(f"{branch.name}  {ticks[-1].at[:16].replace('T', ' ')}  {len(new)} new traces: {ticks[-1].end}")
    return ticks


def _tick(profile: list[str], at: str, folder: Path, champion: str, *, has_logs: bool) -> Tick:
    """One scheduled run. Bad input, or the doctor, ends it as failed, as it would have ended the real one."""
    if not has_logs:
        return Tick(at, "skipped", "no logs yet", "", None, champion)
    words = ["retrain", *profile, "--run-dir", str(folder), "--as-of", at]
    code, result = tracewheel(words, folder / CONSOLE_FILE, accept=(DONE, BAD_INPUT, REFUSED, UNHEALTHY))
    if code in (BAD_INPUT, UNHEALTHY):
        return Tick(at, "failed", str(result.get("error", "the doctor stopped it")), "", None, champion)
    if "skipped" in result:
        return Tick(at, "skipped", result["skipped"], "", None, champion)
    gate, run = result["gate"], str(folder / result["run_id"])
    serves = run if code == DONE else champion
    return Tick(at, end_of(gate), " ".join(verdict_words(result)), run, gain_of(gate), serves)


def end_of(gate: Mapping[str, Any]) -> str:
    """The end of a run by the record of its verdict."""
    return "waits" if gate.get("cause") == "waits" else str(gate["verdict"])


def verdict_words(summary: Mapping[str, Any]) -> list[str]:
    """A run's verdict as sentences; of a run that proved no candidate, what came of the one that it began with."""
    gate, waiting = summary["gate"], summary.get("candidate") or {}
    said = waiting.get("why") if gate["verdict"] != "promoted" else ""
    return [*in_words(gate), *([f"The candidate of run {waiting['run']}: {said}."] if said else [])]


def check_settings(profile: Profile, branches: Sequence[Branch]) -> None:
    """Check the settings of all branches before anything is computed.

    Raises:
        ConfigError: one is wrong.
    """
    from tracewheel import resolve_config

    for branch in branches:
        try:
            resolve_config(profile.path, [*profile.settings, *branch.settings], None)
        except ConfigError as error:
            raise ConfigError(f"--compare {' '.join(branch.settings)}: {error}" if branch.settings else str(error)) from error
