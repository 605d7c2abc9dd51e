"""`tracewheel init`: a new project: a complete small one, one around a program, or one from a log file."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from tracewheel import Block, Card, Command, InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", metavar="DIR", help="folder to make; its name is the project's, as in my-agent")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--logs", metavar="FILE", help="make the project from this log file, folder or source")
    kinds.add_argument(
        "--harness",
        metavar="COMMAND",
        help="make it around this program, as in 'python ../agent.py', or a recipe's: claude-code, codex, opencode, …",
    )
    parser.add_argument(
        "--reader",
        dest="readers",
        action="append",
        default=[],
        metavar="READER",
        help="with --logs: a reader of your own, tried first: module:Class, or a mapping in YAML; may be repeated",
    )
    parser.add_argument(
        "--outcomes",
        action="append",
        default=[],
        metavar="FILE",
        help="with --logs: what was said of the conversations later, as for ingest; may be repeated",
    )
    parser.add_argument(
        "--base",
        metavar="MODEL",
        help="the model to train: smollm2, which comes from the package registry and learns on two cores, a folder or, with "
        "--logs, an id (default: the tiny base, a toy for its own worlds; with --logs, Qwen2.5-0.5B)",
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write a project; nothing is replaced.

    Raises:
        InputError: the name cannot be imported, or there is no base to begin with.
        DataError: the folder exists or cannot be written, or the log holds nothing to make a project of.
        InfrastructureError: SmolLM2 cannot be installed, or a source does not answer.
    """
    from tracewheel_projects import smollm2
    from tracewheel_projects.project import Project

    project = Project.at(options.project)
    for option, given in (("--reader", options.readers), ("--outcomes", options.outcomes)):
        if given and not options.logs:
            raise InputError(f"{option}: only with --logs FILE")
    if options.logs:
        from tracewheel_projects.from_log import described, log_project

        finding, base, files = log_project(project, options.logs, options.base, options.readers, options.outcomes, _say)
        kind, found = "logs", [line.replace("`", "") for line in described(finding)]
        problems = finding.problems
    else:
        from tracewheel_projects.program import AROUND_FIT, around_files, look_at_program
        from tracewheel_projects.project import SAMPLE_FIT, copied_base, sample_files, smollm2_base

        kind, found, problems = "sample" if options.harness is None else "harness", [], []
        fit = SAMPLE_FIT if kind == "sample" else AROUND_FIT
        base = smollm2_base(fit, _say) if options.base == smollm2.NAME else copied_base(options.base)
        texts = sample_files(project, base) if kind == "sample" else around_files(project, options.harness, base)
        files = project.write(texts, base.files)
    if base.fit:
        smollm2.convert(project.folder / "base", _say)
    if kind == "harness":
        found, problems = look_at_program(project, options.harness)
    return {"out": options.project, "kind": kind, "base": base.name, "files": files, "found": found, "problems": problems}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel_projects.project import SCRIPTS

    command = "tracewheel" if shutil.which("tracewheel") else shlex.quote(str(SCRIPTS / "tracewheel"))
    plan = f"{command} retrain profile.yaml --dry-run"
    steps = {"sample": "make demo", "logs": plan, "harness": f"{command} check profile.yaml"}
    return Card(
        f"New project in {result['out']}",
        [("files", str(len(result["files"]))), ("base", result["base"])],
        [Block("found", result["found"])] if result["found"] else [],
        look_at="; ".join(result["problems"]) or "README.md says what is where",
        tone="warning" if result["problems"] else "good",
        next=[f"cd {shlex.quote(result['out'])} && {steps[result['kind']]}"],
    )


COMMAND = Command(
    "init", "write a new project: a small complete one, one around a program, or one from a log file", add_options, run, card
)
