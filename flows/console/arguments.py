"""What commands have in common: options, and the profiles, folders, pairs and splits that they name."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError

if TYPE_CHECKING:
    from tasks.engine.run import Run
    from tracewheel.config import RetrainConfig
    from tracewheel.core.types import Task
    from tracewheel.curation.split_record import SplitRecord


def profile_options(parser: argparse.ArgumentParser) -> None:
    """The profile, and what is set otherwise than in it."""
    parser.add_argument("config", metavar="CONFIG", help="YAML profile")
    set_option(parser)
    parser.add_argument("--run-dir", metavar="DIR", help="where everything goes, instead of the profile's work_dir")
    unsafe_option(parser)


def set_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")


def unsafe_option(parser: argparse.ArgumentParser) -> None:
    """For commands that may run code of agents; `flows.cli` sets the variable that it stands for."""
    parser.add_argument("--unsafe-local", action="store_true", help="allow the sandbox unsafe_local: agents' code as this user")


def allow_option(parser: argparse.ArgumentParser, option: str, setting: str, says: str) -> None:
    """An option that stands for a setting."""
    parser.add_argument(option, dest="overrides", action="append_const", const=setting, help=says)


def leak_option(parser: argparse.ArgumentParser) -> None:
    allow_option(parser, "--allow-leak", "curation.allow_leak=true", "continue although the splits leak; the run is marked")


def curated_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")


def state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="output of a warm start or an update (default: the base alone)")


def out_option(parser: argparse.ArgumentParser, help: str = "folder to write; replaced if it exists") -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help=help)


def profile_of(options: argparse.Namespace, *required: str, prefect: bool = False) -> RetrainConfig:
    """The profile that was named; and the environment is set for the libraries that are imported next.

    Args:
        options: Of the command line.
        required: Settings that the command cannot do without.
        prefect: Whether Prefect is used, whose own files go into the work folder.

    Raises:
        ConfigError: the profile or an override is invalid, or lacks what is required.
    """
    from flows.setup import prepare_environment, resolve_config

    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require(*required)
    prepare_environment(config.work_dir if prefect else None, debug=options.debug)
    return config


def note(text: str) -> None:
    """Tell something on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def folder_of(path: str, option: str) -> Path:
    """The folder that an option names.

    Raises:
        DataError: there is no such folder.
    """
    if not Path(path).is_dir():
        raise DataError(f"{option} {path}: no such folder")
    return Path(path)


def named_folder(pair: str, option: str) -> tuple[str, Path]:
    """Name and folder of `NAME=DIR`.

    Raises:
        DataError: it is not of this form, or there is no such folder.
    """
    name, separator, folder = pair.partition("=")
    if not separator or not Path(folder).is_dir():
        raise DataError(f"{option} {pair}: expected NAME=DIR with a folder that exists")
    return name, Path(folder)


def best_state(pairs: list[str]) -> str:
    """Of `EVALUATION=STATE` folders, the state with the best evaluation on validation; ties go to the earliest.

    Raises:
        DataError: a pair is not of this form, an evaluation cannot be read, or none has enough scored episodes.
    """
    states = dict(named_folder(pair, "--best-of") for pair in pairs)
    return str(states[best_evaluation({name: Path(name) for name in states}, "--best-of")])


def best_evaluation(folders: Mapping[str, Path], option: str) -> str:
    """Name of the evaluation with the best rate, on the tasks that are scored in all; ties go to the earliest.

    Raises:
        DataError: an evaluation cannot be read, or none has enough scored episodes.
    """
    from tracewheel.evaluation.ranking import Evaluation, comparable_rates
    from tracewheel.sampling.validation import best_of

    best = best_of(comparable_rates({name: Evaluation.read(folder) for name, folder in folders.items()}))
    if best is None:
        raise DataError(
            f"{option}: none of {', '.join(map(str, folders.values()))} has scores of half of its tasks in both modes"
        )
    return best


def curated_folder(options: argparse.Namespace) -> Path:
    """The folder that `--curated` names.

    Raises:
        DataError: it is not the output of `tracewheel curate`.
    """
    from tracewheel.curation.curated_folder import EPISODES_FILE, TASKS_FILE

    folder = folder_of(options.curated, "--curated")
    for name in (TASKS_FILE, EPISODES_FILE):
        if not (folder / name).is_file():
            raise DataError(f"--curated {folder}: holds no {name}; {_what_instead(folder)}")
    return folder


def _what_instead(folder: Path) -> str:
    """What a folder is that is no curation, and what to do."""
    from tracewheel.report.doctor import LOOP_FILE
    from tracewheel.traces.ingested_folder import TRACES_FOLDER

    if (folder / TRACES_FOLDER).exists():
        return (
            "these are the traces of `tracewheel ingest`; make tasks of them first: "
            f"tracewheel curate PROFILE.yaml --traces {shlex.quote(str(folder))} --out {shlex.quote(f'{folder}-curated')}"
        )
    if (folder / LOOP_FILE).is_file():
        return f"this is a run; its tasks are in {curation_of(folder)}"
    return "give the output of `tracewheel curate`"


def curation_of(folder: Path) -> Path:
    """The output of curate that `--earlier` names: the folder itself, or what the run in that folder has curated.

    Raises:
        DataError: the folder is a run's, and the run's store has lost its curation.
    """
    from tracewheel.core.files import read_json
    from tracewheel.report.doctor import LOOP_FILE

    if not (folder / LOOP_FILE).is_file():
        return folder
    curated = folder.parent / "store" / str(read_json(folder / LOOP_FILE).get("curated"))
    if not curated.is_dir():
        raise DataError(f"--earlier {folder}: {curated}, which this run has curated, is no longer there")
    return curated


def earlier_record(options: argparse.Namespace, earlier: Path | None) -> SplitRecord | None:
    """The record of splits that `tracewheel curate` begins with: of `--splits`, of the earlier curation, or none."""
    from tracewheel.curation.split_record import SplitRecord

    if options.splits and Path(options.splits).is_file():
        return SplitRecord.read(Path(options.splits))
    if earlier:
        return SplitRecord.of_curated(earlier)
    return SplitRecord(lost=True) if options.splits_lost else None


def tasks_of_split(options: argparse.Namespace) -> list[Task]:
    """The tasks of the split that `--split` names.

    Raises:
        DataError: there is no such split, or the curated folder is not the output of `tracewheel curate`.
    """
    from tracewheel.curation.curated_folder import load_tasks

    return load_tasks(curated_folder(options), checked_split(options))


def checked_split(options: argparse.Namespace) -> str:
    """The split that `--split` names.

    Raises:
        DataError: there is no such split.
    """
    from tracewheel.curation.curated_folder import SPLITS

    if options.split not in SPLITS:
        raise DataError(f"--split {options.split}: the splits are {', '.join(SPLITS)}")
    return str(options.split)


def warn_of_leaks(leaks: list[dict[str, Any]]) -> None:
    """Name the leaks that `--allow-leak` lets through."""
    from tracewheel.curation.leaks import describe_leaks

    if leaks:
        note(f"tracewheel: curation.allow_leak: {describe_leaks(leaks)}")


def profile_words(options: argparse.Namespace) -> str:
    """The profile with the settings that were given, as it is typed."""
    words = [options.config, *(word for setting in options.overrides for word in ("--set", setting))]
    return shlex.join([*words, *(["--run-dir", options.run_dir] if options.run_dir else [])])


def finished_run(config: RetrainConfig) -> tuple[Run, dict[str, Any]]:
    """The last run of a profile and its summary.

    Raises:
        DataError: no run of the profile has begun, or the last one is not complete.
    """
    from tasks.engine.reading import last_run

    run = last_run(config)
    if (summary := run.record.summary) is None:
        raise DataError(f"run {run.record.run_id} in {config.work_dir} is not complete; run `tracewheel retrain` first")
    return run, summary
