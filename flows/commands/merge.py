"""`tracewheel merge`: several adapters into one, kept only when it holds up on the validation split."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.console.arguments import folder_of
from flows.setup import prepare_environment, resolve_config
from tracewheel.config import MergeCheckSections, MergeConfig
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.store import produce_whole

SETTINGS = ("method", "weight", "density", "space", "rank")


def merge(options: argparse.Namespace) -> dict[str, Any]:
    """Merge adapters of one base, evaluate the merge and its parts, and keep it when it is not worse than the best part.

    Raises:
        AdapterMismatchError: an adapter was made for another base.
        ConfigError: an option does not fit.
        DataError: a folder is missing, or there is nothing to evaluate on.
        GateRefused: the merge is worse than one of its parts; nothing is written.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("policy.base")
    prepare_environment(None, debug=options.debug)
    from tracewheel.evaluation.merge_check import MERGED, MergeFolders, merge_and_check

    settings = merge_settings(options)
    folders = dict(named(pair) for pair in options.adapters)
    if len(folders) != len(options.adapters):
        raise DataError("--adapter: names must be distinct")
    if MERGED in folders:
        raise DataError(f"--adapter {MERGED}=…: that is the name of the result; give the part another")
    if bool(options.curated) == options.unevaluated:
        raise DataError("a merge is evaluated before it is used: give --curated DIR, or --unevaluated to do without")
    parts = {name: folder_of(folder, f"--adapter {name}") for name, folder in folders.items()}
    given = MergeFolders(parts, folder_of(options.start, "--start") if options.start else None)
    sections, curated = MergeCheckSections.of(config), Path(options.curated) if options.curated else None
    result = produce_whole(Path(options.out), lambda out: merge_and_check(sections, given, settings, out, curated))
    return {"out": options.out, **result}


def merge_settings(options: argparse.Namespace) -> MergeConfig:
    """How to merge, by the options that were given."""
    given = {name: value for name in SETTINGS if (value := getattr(options, name)) is not None}
    try:
        return MergeConfig.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"--{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        raise ConfigError(problems) from error


def named(pair: str) -> tuple[str, str]:
    """Name and folder of `NAME=DIR`."""
    name, separator, folder = pair.partition("=")
    if not separator or not name or "/" in name or name.startswith("."):
        raise DataError(f"--adapter {pair}: expected NAME=DIR, the name without a slash")
    return name, folder
