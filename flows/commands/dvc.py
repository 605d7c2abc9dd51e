"""`tracewheel dvc …`: what `dvc.yaml` calls beside the stages: its params file, the stages' keys, and the figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flows.console.arguments import folder_of
from tracewheel.core.errors import DataError

Options = argparse.Namespace
PARAMS_HEADING = (
    "# The profile of `dvc repro`, written by `tracewheel dvc params {profile}`. Sections that it leaves out have defaults.\n"
)


def add_dvc_commands(commands: Any, exit_codes: str) -> None:
    """The command line of `dvc`."""
    summary = "what dvc.yaml calls: params file, keys of its stages, figures"
    group = commands.add_parser("dvc", help=summary, description=f"{summary}.", epilog=exit_codes)
    inner = group.add_subparsers(required=True, metavar="WHAT")

    def command(name: str, says: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = inner.add_parser(name, help=says, description=f"{says}.", epilog=exit_codes)
        parser.set_defaults(command=f"flows.commands.dvc:{name}", run_dir=None)
        parser.add_argument("config", metavar="CONFIG", help="YAML profile")
        parser.add_argument(
            "--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
        parser.add_argument("--debug", action="store_true", help="show stack traces")
        return parser

    command("params", "print a profile as DVC's params file, for params.yaml")

    keys = command("keys", "settings, code and packages that each stage of dvc.yaml depends on")
    keys.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")

    figures = command("figures", "grouped metrics and plots of a pipeline's outputs")
    figures.add_argument("--curated", required=True, metavar="DIR", help="output of curate")
    figures.add_argument("--rl", required=True, metavar="DIR", help="output of improve")
    figures.add_argument("--evaluations", required=True, metavar="DIR", help="folder with POLICY/SPLIT, outputs of evaluate")
    figures.add_argument("--gate", required=True, metavar="DIR", help="output of promote")
    figures.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def params(options: Options) -> dict[str, Any]:
    """Print a profile with every section and key that `dvc.yaml` reads: DVC needs them in the file.

    Values are as the profile writes them. Filled in are only keys that `dvc.yaml` names, so that choosing another
    `learner.kind` still brings that algorithm's defaults.
    """
    import yaml

    from flows.setup import resolve_config
    from tasks.engine.keys import all_sections
    from tracewheel.config.loading import read_values

    config = resolve_config(options.config, options.overrides)
    config.require("policy.base", "environment.kind", "ingest.paths")
    values = read_values(options.config, options.overrides)
    defaults = config.model_dump(mode="json")
    values = {"name": config.name, **values}
    for section in all_sections():
        values.setdefault(section, {} if isinstance(defaults[section], dict) else defaults[section])
    values["warm_start"].setdefault("demonstrations", config.warm_start.demonstrations)
    if options.json:
        return values
    heading = PARAMS_HEADING.format(profile=options.config)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return {"show": lambda: print(heading + text, end="")}


def keys(options: Options) -> dict[str, Any]:
    """Write a file for each stage of `dvc.yaml`; see `tasks.engine.keys`."""
    from flows.setup import prepare_environment, resolve_config

    config = resolve_config(options.config, options.overrides)
    prepare_environment(None, debug=options.debug)
    from tasks.engine.keys import stage_keys
    from tracewheel.core.files import write_json
    from tracewheel.core.store import produce_whole

    if len(config.ingest.paths) > 1:
        print(
            "tracewheel: dvc.yaml tracks the first of ingest.paths alone; name one folder that holds all logs", file=sys.stderr
        )
    found = stage_keys(config)

    def write(out: Path) -> None:
        for stage, key in found.items():
            write_json(out / f"{stage}.json", key)

    produce_whole(Path(options.out), write)
    return {"out": options.out, "stages": list(found)}


def figures(options: Options) -> dict[str, Any]:
    """Write `metrics.json` and the tables of the plots.

    Raises:
        DataError: a folder lacks something.
    """
    from flows.setup import resolve_config

    config = resolve_config(options.config, options.overrides)
    from flows.commands.loop_command import REPORT_FILE
    from tracewheel.core.files import read_json
    from tracewheel.core.store import produce_whole
    from tracewheel.report.figures import RunFolders, read_gate, write_figures

    curated, rl = folder_of(options.curated, "--curated"), folder_of(options.rl, "--rl")
    loop = read_json(rl / REPORT_FILE)
    if "updates" not in loop:
        raise DataError(
            f"{rl / REPORT_FILE}: no 'updates', which an earlier version did not write; run `tracewheel improve` again"
        )
    run = RunFolders(
        gate=read_gate(folder_of(options.gate, "--gate")),
        seed=config.seed,
        curated=curated,
        evaluations=_evaluations(folder_of(options.evaluations, "--evaluations")),
        updates={int(number): metrics for number, metrics in loop["updates"].items()},
        validation={item["iteration"]: {mode: item[mode] for mode in ("greedy", "sampled")} for item in loop["candidates"]},
        best_iteration=loop["best_iteration"],
    )
    return {"out": options.out, **produce_whole(Path(options.out), lambda out: write_figures(run, rl, out))}


def _evaluations(folder: Path) -> dict[str, list[Path]]:
    """Policy to the folders of its evaluations, in the order of the report's table."""
    from tracewheel.report.results import LABELS

    names = [path.name for path in folder.iterdir() if path.is_dir()]
    ordered = sorted(names, key=lambda name: (list(LABELS).index(name) if name in LABELS else -1, name))
    found = {name: sorted(path for path in (folder / name).iterdir() if path.is_dir()) for name in ordered}
    if not any(found.values()):
        raise DataError(
            f"--evaluations {folder}: no evaluations; it holds folders POLICY/SPLIT, outputs of `tracewheel evaluate`"
        )
    return found
