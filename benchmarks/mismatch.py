"""How far sampler and trainer are apart: our engine, vLLM, an older policy, another model; and what a correction makes of it.

    .venv-vllm/bin/python benchmarks/mismatch.py --json benchmarks/results/mismatch.json # ten minutes on two busy cores

The policy is the warm start of `configs/tiny.yaml`. Each side samples `--samples` episodes of `--tasks` validation tasks and
the learner gives the same tokens its own log-probabilities. Figures are over all tokens that were sampled: the differences in
nats, the effective sample (sum w)^2 / (n sum w^2) of the ratios w, trainer over sampler, and the same of the weights that
`learner.off_policy` makes of them. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

PROFILE = "configs/tiny.yaml"


@dataclass(frozen=True)
class Side:
    """Who samples, in which precision, and whose log-probabilities are compared."""

    name: str
    engine: str = "vllm"
    dtype: str = "float32"
    sampler: str = "warm start"
    trainer: str = "warm start"


SIDES = (
    Side("transformers engine", engine="transformers"),
    Side("vLLM, float32"),
    Side("vLLM, bfloat16", dtype="bfloat16"),
    Side("vLLM, sampler one update behind", trainer="one update later"),
    Side("vLLM, sampler without the adapter", sampler="base"),
)
CORRECTIONS = {
    "token, cap 2": {"level": "token"},
    "geometric, cap 2": {"level": "geometric"},
    "sequence, cap 2": {"level": "sequence"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--prepared", type=Path, help="a folder with `curate` and `warm-start`, from an earlier call or by hand"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(Side(**arguments.measure["side"]), arguments.measure)))
        return
    result: dict[str, Any] = {
        "machine": machine(1),
        "seed": arguments.seed,
        "episodes": arguments.tasks * arguments.samples,
        "sides": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(arguments.prepared or folder)
        if not arguments.prepared:
            prepare(Path(folder))
        for side in SIDES:
            job = {
                "side": asdict(side),
                "folder": folder,
                "prepared": prepared,
                **{n: getattr(arguments, n) for n in ("tasks", "samples", "seed")},
            }
            result["sides"][side.name] = json.loads(child([__file__, "--measure", json.dumps(job)]).splitlines()[-1])
    emit(result, tables(result), arguments.json)


def prepare(folder: Path) -> None:
    """The tasks and the warm start of the profile."""
    for stage, *options in (
        ("ingest",),
        ("curate", "--traces", f"{folder}/ingest"),
        ("warm-start", "--curated", f"{folder}/curate"),
    ):
        words = ["stage", stage] if stage == "warm-start" else [stage]
        child(["-m", "flows.cli", *words, PROFILE, *options, "--out", f"{folder}/{stage}"])


def child(command: list[str]) -> str:
    done = subprocess.run([sys.executable, *command], env=environment(1), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def measured(side: Side, job: dict[str, Any]) -> dict[str, float]:
    """The figures of one side, in a process of its own."""
    import torch

    from tracewheel.config import OffPolicyConfig, RolloutSections, ScoreSections, UpdateSections, load_config
    from tracewheel.core.files import read_table
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.learner.learner import Learner
    from tracewheel.learner.losses.ratios import correction_shares, correction_weights
    from tracewheel.learner.mismatch import mismatch_of
    from tracewheel.learner.trajectory_table import TrajectoryTable
    from tracewheel.learner.update import update
    from tracewheel.learner.update_files import UpdateFiles
    from tracewheel.policy.adapters import PolicyRef, policy_of
    from tracewheel.rollout.rollout import RolloutPlan, rollout
    from tracewheel.scoring.score import score

    folder, prepared = Path(job["folder"]), Path(job["prepared"])
    start = prepared / "warm-start"
    config = load_config(PROFILE, [f"rollout.engine.kind={side.engine}", f"policy.dtype={side.dtype}", "threads=1"])
    tasks = load_tasks(prepared / "curate", "validation")[: job["tasks"]]
    policy = policy_of(start, config.policy.base)
    sampler = PolicyRef(config.policy.base, None, policy.version) if side.sampler == "base" else policy
    out = folder / side.name
    rollout(RolloutSections.of(config), sampler, RolloutPlan(tasks, job["samples"], job["seed"]), out)
    sampled, state = out / "trajectories.parquet", start
    if side.trainer == "one update later":
        score(ScoreSections.of(config), tasks, sampled, out / "scores")
        state = out / "updated"
        files = UpdateFiles([sampled], [out / "scores" / "scores.parquet"], start, start / "adapter", state)
        update(UpdateSections.of(config), files, iteration=1)
    learner = Learner(UpdateSections.of(config), state, start / "adapter")
    trajectories = TrajectoryTable(read_table(sampled))
    everything = [torch.ones(len(ids)) for ids in trajectories.frame["token_ids"]]
    trajectories = learner.passes.with_proximal(trajectories).with_per_token("current", everything)
    statistics = mismatch_of(trajectories)
    figures = {name.removeprefix("sampler_mismatch_"): value for name, value in statistics.figures().items()}
    figures["tokens"] = statistics.actions
    for name, settings in CORRECTIONS.items():
        off_policy = OffPolicyConfig(proximal="recompute", correction="truncate", **settings)
        weights, cut = [], 0
        columns = zip(
            *(trajectories.frame[c] for c in ("logprobs", "action_mask")), trajectories.per_token["proximal"], strict=True
        )
        for logprobs, mask, proximal in columns:
            acted, stored = torch.tensor(list(mask))[None], torch.tensor(list(logprobs), dtype=torch.float32)[None]
            row = correction_weights(off_policy, proximal[None, : acted.shape[1]], stored, acted)
            weights.append(row[acted.bool()])
            cut += correction_shares(off_policy, row, acted)[1]
        all_weights = torch.cat(weights).double()
        figures[f"{name}: effective sample"] = float(all_weights.sum() ** 2 / (len(all_weights) * all_weights.square().sum()))
        figures[f"{name}: cut share"] = cut / len(all_weights)
        figures[f"{name}: mean weight"] = float(all_weights.mean())
    return figures


def tables(result: dict[str, Any]) -> str:
    def number(value: float) -> str:
        return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3f}"

    columns = ["mean", "trimmed", "max", "effective_sample"]
    columns += [f"{name}: {what}" for name in CORRECTIONS for what in ("effective sample", "cut share")]
    rows = [[name, found["tokens"], *(number(found[column]) for column in columns)] for name, found in result["sides"].items()]
    return table(["sampler", "tokens", *columns], rows)


if __name__ == "__main__":
    main()
