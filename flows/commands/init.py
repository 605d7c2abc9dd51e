"""`tracewheel init`: a new project: a complete small one, one around a program, or one from a log file."""

from __future__ import annotations

import argparse
from typing import Any


def add_init_command(commands: Any, exit_codes: str) -> None:
    """The command line of `init`."""
    summary = "write a new project: a small complete one, one around a program, or one from a log file"
    parser = commands.add_parser("init", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.init:init")
    parser.add_argument("project", metavar="DIR", help="folder to make; its name is the project's, as in my-agent")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--logs", metavar="FILE", help="make the project from this log file or folder")
    kinds.add_argument("--harness", metavar="COMMAND", help="make it around this program, as in 'python ../agent.py'")
    parser.add_argument(
        "--base", metavar="MODEL", help="the model to train (default: the tiny base; with --logs, Qwen2.5-0.5B)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def init(options: argparse.Namespace) -> dict[str, Any]:
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
    from tracewheel.projects.around_program import around_files
    from tracewheel.projects.sample_project import sample_files
    from tracewheel.projects.tiny_base import tiny_base

    base = tiny_base(options.base)
    texts = sample_files(project) if options.harness is None else around_files(project, options.harness)
    files = project.write(texts, {f"base/{name}": file for name, file in base.items()})
    kind = "sample" if options.harness is None else "harness"
    return {"out": options.project, "kind": kind, "files": files, "found": [], "problems": []}
