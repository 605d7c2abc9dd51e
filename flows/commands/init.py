"""`tracewheel init`: a new project: a complete small one, one around a program, or one from a log file."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from flows.commands.command import Command
from flows.console.look import Block, Card


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", metavar="DIR", help="folder to make; its name is the project's, as in my-agent")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--logs", metavar="FILE", help="make the project from this log file or folder")
    kinds.add_argument("--harness", metavar="COMMAND", help="make it around this program, as in 'python ../agent.py'")
    parser.add_argument(
        "--base", metavar="MODEL", help="the model to train (default: the tiny base; with --logs, Qwen2.5-0.5B)"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write a project; nothing is replaced.

    Raises:
        InputError: the name cannot be imported, or there is no base to begin with.
        DataError: the folder exists or cannot be written, or the log holds nothing to make a project of.
    """
    from tracewheel.projects.project import Project

    project = Project.at(options.project)
    if options.logs:
        from tracewheel.projects.from_log import described, log_project

        finding, files = log_project(project, options.logs, options.base)
        about = {"found": [line.replace("`", "") for line in described(finding)], "problems": finding.problems}
        return {"out": options.project, "kind": "logs", "files": files, **about}
    from tracewheel.projects.project import around_files, sample_files, tiny_base

    base = tiny_base(options.base)
    texts = sample_files(project) if options.harness is None else around_files(project, options.harness)
    files = project.write(texts, {f"base/{name}": file for name, file in base.items()})
    kind = "sample" if options.harness is None else "harness"
    return {"out": options.project, "kind": kind, "files": files, "found": [], "problems": []}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel.projects.project import SCRIPTS

    command = "tracewheel" if shutil.which("tracewheel") else shlex.quote(str(SCRIPTS / "tracewheel"))
    plan = f"{command} retrain profile.yaml --dry-run"
    steps = {"sample": "make demo", "logs": plan, "harness": plan}
    return Card(
        f"New project in {result['out']}",
        [("files", str(len(result["files"])))],
        [Block("found", result["found"])] if result["found"] else [],
        look_at="; ".join(result["problems"]) or "README.md says what is where",
        tone="warning" if result["problems"] else "good",
        next=[f"cd {shlex.quote(result['out'])} && {steps[result['kind']]}"],
    )


COMMAND = Command(
    "init", "write a new project: a small complete one, one around a program, or one from a log file", add_options, run, card
)
