"""`tracewheel forget`: take a user, a session or a trace out of everything that was made of the logs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, ConfigError, DataError, profile_of, profile_options

if TYPE_CHECKING:
    from tracewheel import RetrainConfig
    from tracewheel_forgetting.forgetting import Affected

MOST_SHOWN = 12
DONE, REFUSED = 0, 3  # exit codes of `tracewheel retrain`


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    for kind, what in (
        ("user", "as logged or as stored"),
        ("session", "as logged or as stored"),
        ("trace", "id of a stored trace"),
    ):
        parser.add_argument(
            f"--{kind}", dest=f"{kind}s", action="append", default=[], metavar="NAME", help=f"{what}; may be repeated"
        )
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--dry-run", action="store_true", help="only say what holds something of theirs (the default)")
    acts.add_argument("--yes", action="store_true", help="delete it, keep them out of later ingests, and prove it by a search")
    parser.add_argument(
        "--delete-adapters", action="store_true", help="delete adapters that learnt from them; by default they are marked"
    )
    parser.add_argument("--rewrite-logs", action="store_true", help="delete their lines from the logs (plain files of lines)")
    parser.add_argument("--retrain", action="store_true", help="then train without them, and show what it costs in success")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Say what holds something of theirs; with `--yes`, delete it.

    Raises:
        ConfigError: nobody is named, or an option needs `--yes`.
        DataError: nothing of theirs is found.
        InfrastructureError: a run holds the store, MLflow does not answer, or something is left.
    """
    for name in ("delete_adapters", "rewrite_logs", "retrain"):
        if getattr(options, name) and not options.yes:
            raise ConfigError(f"--{name.replace('_', '-')} changes something: give --yes, too")
    config = profile_of(options, "ingest.paths", "policy.base", prefect=True)
    from tracewheel_forgetting.forgetting import forget as forget_all
    from tracewheel_forgetting.forgetting import look_for
    from tracewheel_forgetting.theirs import Wanted

    wanted = Wanted.of(options.users, options.sessions, options.traces, config.ingest.redaction)
    affected = look_for(config, wanted)
    if not (affected.theirs or affected.search.found or affected.mlflow.traces or affected.in_dvc):
        raise DataError(
            f"nothing of {', '.join(wanted.names)} is in the logs, in {config.work_dir} or in MLflow; check the name"
        )
    found = affected.to_record(Path(config.work_dir))
    if not options.yes:
        return {"found": found, "show": _found_text(found)}
    with tempfile.TemporaryDirectory(prefix="tracewheel-forget-") as place:
        before = _champion(config, affected, Path(place)) if options.retrain else None
        result: dict[str, Any] = {
            "found": found,
            "done": forget_all(config, affected, delete_adapters=options.delete_adapters, rewrite_logs=options.rewrite_logs),
        }
        if options.retrain:
            result |= _retrained(options, config, before)
    return {**result, "show": _done_text(result)}


def _champion(config: RetrainConfig, affected: Affected, place: Path) -> Path | None:
    """A copy of the champion that learnt from them, to compare with; None without one."""
    from tracewheel import tracking_client
    from tracewheel_forgetting.forgetting import tell
    from tracewheel_forgetting.in_mlflow import fetch_weights

    if (version := affected.mlflow.champion) is None:
        return None
    with tracking_client(config, "forget", tell) as client:
        return fetch_weights(client, config, version, place)


def _retrained(options: argparse.Namespace, config: RetrainConfig, before: Path | None) -> dict[str, Any]:
    """Train without them; the gate's verdict, and the paired difference to the champion before.

    Raises:
        InfrastructureError: the run failed; it has said why.
    """
    from tracewheel import FinishedRun, InfrastructureError, run_named
    from tracewheel_forgetting.effect import effect_of

    words = [options.config, *(word for setting in options.overrides for word in ("--set", setting))]
    words += ["--run-dir", options.run_dir] if options.run_dir else []
    words += ["--unsafe-local"] if options.unsafe_local else []
    command = [sys.executable, "-m", "flows.cli", "retrain", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.terminate()  # it ends where the same command goes on
            raise
    if process.returncode not in (DONE, REFUSED):
        raise InfrastructureError(f"they are forgotten, but `tracewheel retrain` ended with exit code {process.returncode}")
    summary = json.loads(said)
    run = FinishedRun(run_named(summary["run_id"], config.work_dir))
    effect = effect_of(config, run, before) if before else None
    return {"run": run.run_id, "verdict": summary["gate"]["verdict"], "effect": effect}


def _found_text(found: dict[str, Any]) -> str:
    lines = [
        f"traces      {len(found['traces'])} stored, {found['quarantined']} records in quarantine, "
        f"{found['outcomes']} outcomes that were said later",
        f"logs        {_some(found['log_lines'])}",
    ]
    for run_id, run in found["runs"].items():
        learnt = "its adapter learnt from them" if run["learnt"] else "its adapter did not learn from them"
        lines.append(
            f"run         {run_id}: {', '.join(run['splits']) or 'in no set'}; {learnt}; {run['entries']} stored results"
        )
    lines.append(f"files       {_some(found['files'])}")
    mlflow = found["mlflow"]
    lines.append(f"MLflow      {len(mlflow['traces'])} traces, artifacts: {_some(mlflow['artifacts'])}")
    champion = f"; version {mlflow['champion']} is champion" if mlflow["champion"] else ""
    copies = f"; {len(mlflow['adapters'])} artifacts of runs" if mlflow["adapters"] else ""
    lines.append(f"adapters    model versions: {_some(mlflow['versions'])}{champion}{copies}")
    lines += _dvc_lines(found["dvc"])
    lines.append(
        "next: the same with --yes deletes all this, and keeps them out of later ingests (--rewrite-logs: out of the logs, too)"
    )
    return "\n".join(lines) + "\n"


def _dvc_lines(dvc: dict[str, list[str]]) -> list[str]:
    """What DVC holds, and what to do about it: a cache may serve other commits and projects, so it is left to its owner."""
    lines = []
    if dvc["files"]:
        lines += [
            f"DVC         {len(dvc['files'])} files of its outputs, cache and local remotes: {_some(dvc['files'])}",
            "            forget leaves these, and what was made of them. After --yes, `dvc repro --force --downstream ingest`",
            "            makes the outputs without them; commit dvc.lock; `dvc gc --workspace --cloud` deletes the others",
        ]
    if dvc["not_searched"]:
        lines.append(f"DVC         remotes that were not searched: {_some(dvc['not_searched'])}")
    return lines


def _some(values: list[str]) -> str:
    shown = ", ".join(values[:MOST_SHOWN]) or "none"
    return shown + (f" and {len(values) - MOST_SHOWN} more (--json shows all)" if len(values) > MOST_SHOWN else "")


def _done_text(result: dict[str, Any]) -> str:
    done, found = result["done"], result["found"]
    proof = done["proof"]
    versions = ", ".join(f"{version} {what}" for version, what in done["model_versions"].items()) or "none"
    lines = [
        f"deleted     {done['entries_deleted']} stored results, {done['mlflow_traces_deleted']} MLflow traces; "
        f"{len(done['files_cleaned'])} files cleaned",
        f"adapters    model versions: {versions}",
        f"proof       {proof['searched_for']} names and texts of theirs: none is left in {proof['files']} files "
        f"({proof['bytes'] / 1e6:.1f} MB), databases included",
    ]
    if found["log_lines"] and not done["log_lines_deleted"]:
        lines.append(
            f"logs        {_some(found['log_lines'])} still hold them; ingest leaves them out (--rewrite-logs deletes them)"
        )
    elif done["log_lines_deleted"]:
        lines.append(f"logs        {done['log_lines_deleted']} lines deleted")
    lines += _dvc_lines(found["dvc"])
    if done["candidate"]:
        lines.append(f"candidate   {done['candidate'].removeprefix('candidate ')}")
    if effect := result.get("effect"):
        low, high = effect["interval"]
        lines.append(
            f"effect      success {100 * effect['difference']:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}, "
            f"{effect['confidence']:.0%}) on {effect['tasks']} held-out tasks, without them against before"
        )
    if "run" in result:
        lines.append(f"run         {result['run']}: {result['verdict']}")
    else:
        lines.append("next: tracewheel retrain trains without them; --retrain would have shown what it costs")
    return "\n".join(lines) + "\n"


COMMAND = Command("forget", "take a user, a session or a trace out of everything made of the logs", add_options, run)
