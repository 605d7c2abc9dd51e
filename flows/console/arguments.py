"""What commands have in common: folders, pairs and splits as the command line names them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.curation.curated_folder import EPISODES_FILE, SPLITS, TASKS_FILE, load_tasks

if TYPE_CHECKING:
    from tracewheel.core.types import Task
    from tracewheel.curation.split_record import SplitRecord


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
    folder = folder_of(options.curated, "--curated")
    for name in (TASKS_FILE, EPISODES_FILE):
        if not (folder / name).is_file():
            raise DataError(f"--curated {folder}: holds no {name}; give the output of `tracewheel curate`")
    return folder


def curation_of(folder: Path) -> Path:
    """The output of curate that `--earlier` names: the folder itself, or what the run in that folder has curated.

    Raises:
        DataError: the folder is a run's, and the run's store has lost its curation.
    """
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
    return load_tasks(curated_folder(options), checked_split(options))


def checked_split(options: argparse.Namespace) -> str:
    """The split that `--split` names.

    Raises:
        DataError: there is no such split.
    """
    if options.split not in SPLITS:
        raise DataError(f"--split {options.split}: the splits are {', '.join(SPLITS)}")
    return str(options.split)


def warn_of_leaks(leaks: list[dict[str, Any]]) -> None:
    """Name the leaks that `--allow-leak` lets through."""
    from tracewheel.curation.leaks import describe_leaks

    if leaks:
        print(f"tracewheel: curation.allow_leak: {describe_leaks(leaks)}", file=sys.stderr)


def profile_words(options: argparse.Namespace) -> str:
    """The profile with the settings that were given, as it is typed."""
    words = [options.config, *(word for setting in options.overrides for word in ("--set", setting))]
    return shlex.join([*words, *(["--run-dir", options.run_dir] if options.run_dir else [])])
