"""The command `tracewheel`. Nothing heavy is imported before the command line is parsed."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from flows.commands.approve import add_approve_command
from flows.commands.audit import add_audit_command
from flows.commands.backtest_plan import add_backtest_command
from flows.commands.check_template import add_check_template_command
from flows.commands.command import Command, find_commands
from flows.commands.compare import add_compare_command
from flows.commands.dashboard import add_dashboard_command
from flows.commands.data import add_data_commands
from flows.commands.describe import add_describe_command
from flows.commands.dvc import add_dvc_commands
from flows.commands.export import add_export_command
from flows.commands.forget import add_forget_command
from flows.commands.gateway import add_gateway_options
from flows.commands.gc import add_gc_command
from flows.commands.ingest import add_ingest_command
from flows.commands.judges import add_judge_commands
from flows.commands.labels import add_labels_command
from flows.commands.lineage import add_lineage_command
from flows.commands.make_tasks import add_make_tasks_command
from flows.commands.outputs import check_out
from flows.commands.reproduce import add_reproduce_command
from flows.commands.sandbox import add_sandbox_command, allow_unsafe_local
from flows.console.encoding import clean, print_in_any_encoding
from flows.console.printing import print_error, print_result
from flows.deploy.options import add_deploy_options
from tracewheel import __version__
from tracewheel.core import stopping
from tracewheel.core.errors import (
    DoubtfulData,
    GateRefused,
    InputError,
    NotReproduced,
    TracewheelError,
    UnhealthyRun,
    UntrainableBase,
    WeakGrader,
)
from tracewheel.core.machine import UNSAFE_LOCAL
from tracewheel.core.processes import end_with_spawner
from tracewheel.learner.backends.processes import is_first, started

DONE, FAILED, BAD_INPUT, REFUSED, UNHEALTHY, WITHIN, PARTED, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 6, 130, 143
EXIT_CODES = (
    "exit codes: 0 done, 2 bad input or config, 3 gate refused, 4 the doctor or the audit found something severe, "
    "5 a run made again is equal within tolerance, 6 it parts, "
    "130 interrupted, 143 stopped by SIGTERM, 1 anything else"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. Results go to standard output, all else to standard error.

    Args:
        arguments: Those of the command line by default; then the process is the command's, and signals end it in order.
    """
    options = None
    listens = arguments is None and not started()  # torchrun ends its processes itself
    try:
        if listens:
            stopping.listen()
        options = build_parser().parse_args(arguments)
        return _carry_out(options)
    except stopping.Stopped as stop:
        print(f"tracewheel: {clean(str(stop))}", file=sys.stderr)
        if options and options.json:
            print_error(str(stop), "Stopped", stop.request.exit_code)
        return stop.request.exit_code
    finally:
        if listens:
            stopping.done()  # from here to the process's last moment


def _carry_out(options: argparse.Namespace) -> int:
    print_in_any_encoding()
    try:
        # Standard output is for the result alone; libraries print to it, too.
        with contextlib.redirect_stdout(sys.stderr):
            is_new = isinstance(options.command, Command)
            options.command.check_out(options) if is_new else check_out(options)
            if getattr(options, "unsafe_local", False):
                os.environ[UNSAFE_LOCAL] = "1"  # and so for the worker processes
            module, _, name = ("", "", "") if is_new else options.command.partition(":")
            result = options.command.run(options) if is_new else getattr(importlib.import_module(module), name)(options)
    except DoubtfulData as doubt:
        if doubt.result is None:
            return _fail(options, doubt)
        print_result(options, doubt.result)
        print(f"tracewheel: {clean(str(doubt))}", file=sys.stderr)
        return BAD_INPUT
    except GateRefused as refusal:
        print_result(options, refusal.args[1])
        print(f"tracewheel: gate refused: {refusal.args[0]}", file=sys.stderr)
        return REFUSED
    except UnhealthyRun as finding:
        print_result(options, finding.args[1])
        print(f"tracewheel: doctor: {finding}", file=sys.stderr)
        return UNHEALTHY
    except WeakGrader as finding:
        print_result(options, finding.args[1])
        print(f"tracewheel: audit: {clean(str(finding))}", file=sys.stderr)
        return UNHEALTHY
    except NotReproduced as finding:
        print_result(options, finding.result)
        print(f"tracewheel: {clean(str(finding))}", file=sys.stderr)
        return WITHIN if finding.within else PARTED
    except UntrainableBase as refusal:
        if refusal.shown is None:
            return _fail(options, refusal)
        print_result(options, refusal.shown)
        print(f"tracewheel: {refusal}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("tracewheel: interrupted; the same command resumes from the last complete stage", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if options.debug:
            raise
        return _fail(options, error)
    if is_first():
        print_result(options, result)
    return DONE


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tracewheel", description="Turns the logged traces of an LLM agent into a better agent.", epilog=EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=f"tracewheel {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    for command in find_commands():
        command.add_to(commands, command.name, EXIT_CODES)
    add_describe_command(commands, EXIT_CODES)

    retrain = _command(
        commands, "retrain", "flows.commands.whole_runs:retrain", "the whole loop, from traces to a promoted adapter"
    )
    retrain.add_argument("--dry-run", action="store_true", help="print the plan: stages, what is stored, sizes, estimated time")
    retrain.add_argument("--fresh", action="store_true", help="begin on the logs as they are now, even if a run is incomplete")
    _allow_leak(retrain)

    add_ingest_command(commands, EXIT_CODES)

    stage = _command(commands, "curate", "flows.commands.single:curate", "make tasks, splits and verified episodes of traces")
    stage.add_argument("--traces", required=True, metavar="DIR", help="output of ingest")
    stage.add_argument(
        "--earlier", metavar="DIR", help="an earlier curate's output or a run's folder: resume its splits, pass rates"
    )
    stage.add_argument("--splits", metavar="FILE", help="record of splits to carry: read where it exists, and written")
    stage.add_argument(
        "--reuse", metavar="DIR", help="replays of earlier curations, reused and added to; the output is the same"
    )
    stage.add_argument("--splits-lost", action="store_true", help="an earlier record is lost: rebuild it from the logs")
    _allow_leak(stage)
    _allow(
        stage,
        "--allow-drift",
        "curation.allow_drift=true",
        "exit with 0 although under half of the episodes agree with their log",
    )
    _out(stage)

    stage = _command(
        commands, "base-policy", "flows.commands.single:base_policy", "train the tiny base policy from random weights"
    )
    _out(stage)

    stage = _command(commands, "warm-start", "flows.commands.single:warm_start", "supervised fine-tuning on logged episodes")
    _curated(stage)
    stage.add_argument("--demonstrations", choices=("verified", "all", "replay", "none"), help="default: the profile's setting")
    _allow_leak(stage)
    _out(stage)

    stage = _command(
        commands, "teach", "flows.commands.teach:teach", "a stronger model's verified solutions of the training tasks"
    )
    _curated(stage)
    stage.add_argument("--tasks", type=int, metavar="N", help="only the first N training tasks")
    _out(stage)

    stage = _command(commands, "rollout", "flows.commands.single:rollout", "sample trajectories of training tasks")
    _allow_leak(stage)
    _curated(stage)
    _policy(stage)
    stage.add_argument("--iteration", type=int, default=1, help="decides the tasks and the seed (default 1)")
    stage.add_argument(
        "--scores-of",
        metavar="PATTERN",
        help="folder of an earlier iteration's scores, {} in place of its number, for the sampler",
    )
    _out(stage)

    stage = _command(commands, "score", "flows.commands.single:score", "score stored trajectories; needs no new rollout")
    _curated(stage)
    stage.add_argument("--trajectories", required=True, metavar="FILE", help="trajectories.parquet of a rollout")
    stage.add_argument("--split", default="train", help="split the tasks are in (default train)")
    stage.add_argument("--compare", metavar="FILE", help="scores.parquet of an earlier scoring: what changed, by family")
    _out(stage)

    stage = _command(commands, "update", "flows.commands.single:update", "one policy update on scored trajectories")
    stage.add_argument("--trajectories", required=True, metavar="FILE", help="trajectories.parquet of a rollout")
    stage.add_argument("--scores", required=True, metavar="FILE", help="scores.parquet of a scoring")
    stage.add_argument("--state", required=True, metavar="DIR", help="output of the previous update or of the warm start")
    stage.add_argument("--reference", required=True, metavar="DIR", help="adapter that KL is measured to")
    stage.add_argument("--iteration", type=int, default=1)
    _out(stage)

    stage = _command(
        commands, "improve", "flows.commands.loop_command:improve", "the reinforcement-learning loop from a warm start"
    )
    _curated(stage)
    stage.add_argument("--start", required=True, metavar="DIR", help="output of warm-start, or of an update")
    _allow_leak(stage)
    _out(stage)

    stage = _command(commands, "evaluate", "flows.commands.single:evaluate", "greedy and sampled success on a split")
    _curated(stage)
    _policy(stage)
    stage.add_argument("--split", default="held_out", help="validation, held_out, harder or train (default held_out)")
    stage.add_argument("--samples", type=int, help="sampled episodes per task (default: the profile's setting)")
    stage.add_argument("--best-of", nargs="+", metavar="DIR=DIR", help="evaluation=state pairs; the best evaluation's policy")
    _out(stage)

    add_audit_command(
        _command(
            commands, "audit", "flows.commands.audit:audit", "how often graders accept wrong episodes and refuse right ones"
        )
    )

    stage = _command(
        commands, "baseline", "flows.commands.baseline:baseline", "evaluate a model behind an OpenAI-compatible endpoint"
    )
    _curated(stage)
    stage.add_argument("--endpoint", metavar="URL", help="its address, up to /v1 (default: the profile's baseline.endpoint)")
    stage.add_argument(
        "--model", metavar="NAME", help="the model's name at the endpoint (default: the profile's baseline.model)"
    )
    stage.add_argument("--split", default="held_out", help="validation, held_out, harder or train (default held_out)")
    stage.add_argument("--tasks", type=int, metavar="N", help="only the first N tasks")
    stage.add_argument(
        "--samples", type=int, metavar="N", help="sampled episodes per task; 0: only greedy ones (default: the profile's)"
    )
    stage.add_argument("--sampled-only", action="store_true", help="play no greedy episodes")
    _out(stage)

    stage = _command(
        commands, "gateway", "flows.commands.gateway:gateway", "the policy behind the APIs of OpenAI and Anthropic"
    )
    add_gateway_options(stage)

    promote = _command(
        commands, "promote", "flows.commands.whole_runs:promote", "let the gate decide, and register the champion"
    )
    promote.add_argument("--challenger", metavar="DIR", help="an evaluation to judge, instead of the profile's run")
    promote.add_argument("--baseline", nargs="+", metavar="NAME=DIR", help="evaluations to compare with")
    promote.add_argument("--validation", nargs="+", metavar="NAME=DIR", help="of several baselines, the best of these is taken")
    promote.add_argument("--adapter", metavar="DIR", help="adapter to register when the gate promotes it")
    promote.add_argument("--verdict-only", action="store_true", help="write the verdict and change nothing; never exits with 3")
    promote.add_argument("--out", metavar="DIR", help="where to write gate.json")

    back = _command(
        commands, "rollback", "flows.commands.whole_runs:rollback", "restore the champion that the present one replaced"
    )
    back.add_argument("--to", metavar="VERSION", help="restore this version, which was champion (default: the one before)")
    back.add_argument("--why", metavar="TEXT", help="the reason, kept with the version that is rolled back")

    add_approve_command(commands, EXIT_CODES)

    report = _command(commands, "report", "flows.commands.whole_runs:report", "write the report of a complete run again")
    report.add_argument("--out", metavar="FILE", help="where to write it (default: in the run's record)")

    _command(commands, "status", "flows.commands.whole_runs:status", "runs, their verdicts, and the champion")

    _command(commands, "sync", "flows.commands.sync:sync", "deliver to MLflow what waits since it was away")

    doctor = _command(commands, "doctor", "flows.commands.doctor:doctor", "look for the known failure modes in a run's records")
    doctor.add_argument("--run", metavar="RUN_ID", help="which run of the work folder (default: the profile's)")

    add_dashboard_command(commands, EXIT_CODES)
    add_judge_commands(commands, EXIT_CODES)
    add_labels_command(commands, EXIT_CODES)
    add_compare_command(commands, EXIT_CODES)
    add_reproduce_command(commands, EXIT_CODES)

    batches = _command(
        commands, "batches", "flows.commands.batches:batches", "the batches of new logs: which are held, why; let one in"
    )
    which = batches.add_mutually_exclusive_group()
    which.add_argument("--show", metavar="ID", help="a batch with its evidence, and the runs that learnt from it")
    which.add_argument("--release", metavar="ID", help="let a held batch in; the next run learns from it")
    which.add_argument("--hold", metavar="ID", help="leave a batch out from now on, or confirm that it is left out")
    batches.add_argument("--why", metavar="TEXT", help="the reason of a decision, kept with it")

    add_lineage_command(commands, _command)
    add_gc_command(commands, _command)
    add_forget_command(commands, _command)
    add_backtest_command(commands, _command)
    add_check_template_command(commands, EXIT_CODES)
    add_sandbox_command(commands, EXIT_CODES)
    add_export_command(commands, EXIT_CODES)
    add_make_tasks_command(commands, EXIT_CODES)
    add_data_commands(commands, EXIT_CODES)
    add_dvc_commands(commands, EXIT_CODES)

    serve = _command(commands, "serve", "flows.commands.serve:serve", "answer programs with the champion, and log what is said")
    serve.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8788, help="default 8788; 0 takes a free one")
    serve.add_argument("--key", help="what programs must show, at least 16 characters (default: one is made and printed)")
    serve.add_argument("--log", metavar="DIR", help="where conversations are logged (default: serving/logs in the work folder)")
    serve.add_argument(
        "--idle", type=float, default=600.0, metavar="S", help="a conversation ends after S silent seconds (600)"
    )
    serve.add_argument("--watch", type=float, default=10.0, metavar="S", help="look for a promotion every S seconds (10)")
    serve.add_argument("--challenger", metavar="DIR", help="a second policy: output of warm-start or an update, or an adapter")
    serve.add_argument("--share", type=float, default=0.1, help="the challenger's share of the conversations (0.1)")
    serve.add_argument("--live", action="store_true", help="send the challenger's replies; else it answers in the shadow")

    add_deploy_options(_command(commands, "deploy", "flows.commands.deploy:deploy", "serve the retrain flow on a schedule"))
    return parser


def _command(commands: Any, name: str, target: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=f"{summary}.", epilog=EXIT_CODES)
    parser.set_defaults(command=target)
    parser.add_argument("config", metavar="CONFIG", help="YAML profile")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")
    parser.add_argument("--run-dir", metavar="DIR", help="where everything goes, instead of the profile's work_dir")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")
    allow_unsafe_local(parser)
    return parser


def _curated(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")


def _allow_leak(parser: argparse.ArgumentParser) -> None:
    _allow(parser, "--allow-leak", "curation.allow_leak=true", "continue although the splits leak; the run is marked")


def _allow(parser: argparse.ArgumentParser, option: str, setting: str, says: str) -> None:
    parser.add_argument(option, dest="overrides", action="append_const", const=setting, help=says)


def _policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", help="output of a warm start or an update (default: the base alone)")


def _out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def _fail(options: argparse.Namespace, error: Exception) -> int:
    known = isinstance(error, TracewheelError)
    message = str(error) if known else f"unexpected {type(error).__name__}: {error} (--debug shows where)"
    print(f"tracewheel: error: {clean(message)}", file=sys.stderr)
    code = BAD_INPUT if isinstance(error, InputError) else FAILED
    if options.json:
        print_error(message, type(error).__name__, code)
    return code


end_with_spawner()
if __name__ == "__main__":
    sys.exit(main())
