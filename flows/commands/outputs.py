"""What each command writes into its `--out`, so that nothing else is ever replaced; see `tracewheel.core.out_folder`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tracewheel.core.errors import DataError
from tracewheel.core.out_folder import Writes, check_out_folder
from tracewheel.traces.ingested_folder import INGESTED

POLICY = ("adapter/*", "model/*")
UPDATE = (
    *POLICY, "metrics.json", "learner.json", "optimizer.pt", "optimizer/*", "critic*",
    "buffer.parquet",
)  # fmt: skip
TRAJECTORIES = ("trajectories.parquet", "greedy.parquet", "variants.parquet")
MODES = ("greedy/*", "sampled/*", "*/held_back/*", "*/training/*")
DVC_STAGES = ("ingest", "curate", "warm_start", "improve", "evaluate", "gate", "figures")
ITERATION = tuple(f"[0-9]*/{stage}/*" for stage in ("rollout*", "score*", "update", "validation"))

# By the command's function. Names are repeated here because the command line imports nothing heavy; a test compares them
# with what a finished run and the commands have written.
OUTPUTS = {
    "flows.commands.ingest:ingest": INGESTED,
    "flows.commands.single:curate": Writes(
        ("tasks.parquet", "episodes.parquet", "report.json"),
        ("*.parquet", "sets/*.parquet", "evidence.json", "quality.html", "quality.json"),
    ),
    "flows.commands.single:base_policy": Writes(
        ("base.json", "config.json"), ("*.safetensors", "*.json", "chat_template.jinja", "replay.parquet")
    ),
    "flows.commands.single:warm_start": Writes(("metrics.json",), UPDATE),
    "flows.commands.teach:teach": Writes(("episodes.parquet", "metrics.json"), ("attempts.parquet",)),
    "flows.commands.single:rollout": Writes(("trajectories.parquet", "metrics.json"), TRAJECTORIES),
    "flows.commands.single:score": Writes(("scores.parquet", "metrics.json")),
    "flows.commands.single:update": Writes(("metrics.json",), UPDATE),
    "flows.commands.loop_command:improve": Writes(
        ("improvement.json", "best"), ("best/*", *ITERATION, *(f"*/{part}" for part in ITERATION))
    ),
    "flows.commands.single:evaluate": Writes(("evaluation.json", "results.parquet"), MODES),
    "flows.commands.audit:audit": Writes(("audit.json", "audit.html")),
    "flows.commands.baseline:baseline": Writes(
        ("evaluation.json", "results.parquet"), (*MODES, "attempts.parquet", "trajectories.parquet")
    ),
    "flows.commands.backtest:backtest": Writes(
        ("plan.json",), ("branches/*", "reference/*", "store/*", "mlflow/*", "backtest.*", "costs.json")
    ),
    "flows.commands.export:export": Writes(
        ("README.md", "export.json"),
        ("*.safetensors", "*.json", "*.gguf", "tokenizer*", "chat_template*", "vocab.*", "merges.txt", "spiece.model"),
    ),
    "flows.commands.whole_runs:promote": Writes(("gate.json",)),
    "flows.commands.dvc:keys": Writes(tuple(f"{stage}.json" for stage in DVC_STAGES)),
    "flows.commands.dvc:figures": Writes(("metrics.json", "learning.csv", "training.csv", "tiers.csv", "families.csv")),
    "flows.commands.data:record": Writes(("calls.parquet", "recording.json")),
    "flows.commands.data:report": Writes(("quality.html", "quality.json")),
}
# Their `--out` is a file.
FILE_OF = {
    **dict.fromkeys(
        (
            "flows.commands.whole_runs:report",
            "flows.commands.lineage:lineage",
            "flows.commands.compare:compare",
            "flows.commands.reproduce:reproduce",
        ),
        ("page", (".html", ".htm")),
    ),
    "flows.commands.make_tasks:make_tasks": ("log", (".jsonl",)),
    "flows.commands.judges:calibrate_judge": ("figures", (".json",)),
}
FILES = ("show", "splits")  # options that name a file to write


def check_out(options: argparse.Namespace) -> None:
    """Check the command's `--out` before anything is computed.

    Raises:
        DataError: it cannot be written, or holds what the command did not write; or another option names a folder as a file.
    """
    for option in FILES:
        file = getattr(options, option, None)
        if isinstance(file, str) and Path(file).is_dir():
            raise DataError(f"--{option} {file}: is a folder; give the name of a file")
    out = getattr(options, "out", None)
    if out is None:
        return
    if options.command in FILE_OF:
        _check_file(Path(out), *FILE_OF[options.command])
        return
    check_out_folder(Path(out), OUTPUTS[options.command], by=name_of(options.command))


def name_of(command: str) -> str:
    """A command as it is typed, by its function."""
    module, _, name = command.partition(":")
    group = module.rpartition(".")[2]
    return f"{f'{group} ' if group in ('data', 'dvc') else ''}{name}".replace("_", "-")


def _check_file(path: Path, what: str, endings: tuple[str, ...]) -> None:
    if path.is_dir():
        raise DataError(
            f"--out {path}: is a folder; give the name of the {what} to write, as in {path / f'{what}{endings[0]}'}"
        )
    if path.is_file() and path.suffix not in endings:
        raise DataError(f"--out {path}: exists and is no {what}; give another name, as in {path.with_suffix(endings[0])}")
