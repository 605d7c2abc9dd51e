"""Measures what a tiny policy learns on ten pages of MiniWoB++, on several seeds, and on two pages that nothing taught it.

    python plugins/web/benchmarks/learning.py --seeds 0 1 2

Makes the base (`tracewheel stage base-policy`) and the logs (`python -m tracewheel_web.miniwob.logs`) where they are not there
yet, curates the logs once by replaying them in the browser, and for each seed: the warm start on verified episodes, GRPO with
episodes in the browser, the choice among the policies on validation tasks, and then, once, the held-out tasks and those of the
pages held out. All differences are against that warm start, task by task, with the gate's figure (half greedy, half sampled).
Results are kept by seed in `results/learning.json`; `--show` writes the table again from them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

from tracewheel import (
    CurateSections,
    EvaluateSections,
    PolicyRef,
    RetrainConfig,
    RolloutSections,
    SamplerSections,
    ScoreSections,
    UpdateFiles,
    UpdateSections,
    WarmStartSections,
    curate,
    decide_gate,
    evaluate_split,
    ingest,
    load_config,
    load_tasks,
    make_sampler,
    observe_scores,
    policy_of,
    read_table,
    roll_out,
    score,
    update,
    warm_start,
)
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate
from tracewheel.evaluation.family_differences import paired_differences
from tracewheel.sampling.seeds import evaluation_seed
from tracewheel_projects import load_base_config, train_base_policy
from tracewheel_web.miniwob.environment import MiniwobArgs, MiniwobEnvironment
from tracewheel_web.miniwob.logs import HELD_OUT_PAGES

HERE = Path(__file__).parent
PROFILE, BASE_PROFILE = "plugins/web/configs/miniwob_learning.yaml", "plugins/web/configs/miniwob_base.yaml"
OF_HELD_OUT_PAGE = 15  # tasks
LOGS_SEED = "1"  # those of seed 0 were looked at when the base and the settings were chosen
START = "warm start"
SPLITS = {"held_out": "held-out tasks", "held_out_pages": "held-out pages"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/miniwob-learning"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as threads=1")
    parser.add_argument("--show", action="store_true", help="from what is stored, without any run")
    arguments = parser.parse_args()
    known = HERE / "results" / "learning.json"
    results = json.loads(known.read_text()) if known.exists() else {}
    for seed in () if arguments.show else arguments.seeds:
        config = load_config(PROFILE, [*arguments.set, f"seed={seed}"])
        found = Seed(config, arguments.work).run()
        # Read again: another process may have run another seed.
        results = (json.loads(known.read_text()) if known.exists() else {}) | {str(seed): found}
        known.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    table = table_of(results)
    (HERE / "results" / "learning.md").write_text(table)
    print(table)


class Seed:
    """The loop of one seed; stages that are done already are not done again."""

    def __init__(self, config: RetrainConfig, work: Path) -> None:
        self.config, self.work = config, work
        self.curated, self.own = work / "curated", work / f"seed-{config.seed}"

    def run(self) -> dict[str, Any]:
        """The figures of all policies and the verdict."""
        began = time.monotonic()
        self.prepare()
        prepared = time.monotonic()
        sections = WarmStartSections.of(self.config)
        state = self.made("warm_start", lambda out: warm_start(sections, self.curated, out, "verified"))
        policies = {START: policy_of(state, self.config.policy.base), **self.improve(state)}
        chosen = max(policies, key=lambda name: self.figure(name, policies[name], "validation"))
        learnt = time.monotonic()
        compared = {START: policies[START], "after RL": policies[chosen]}
        rates = {split: {name: self.rates(name, one, split) for name, one in compared.items()} for split in SPLITS}
        differences = {split: self.differences(split) for split in SPLITS}
        folders = self.own / "held_out" / "after RL", self.own / "held_out" / START
        gate = self.own / "gate"
        shutil.rmtree(gate, ignore_errors=True)
        gate.mkdir()
        verdict = decide_gate(self.config.gate, *folders, gate, baseline_name=START, trained=chosen != START)
        seconds = {"logs and base": prepared - began, "learning": learnt - prepared, "evaluation": time.monotonic() - learnt}
        return {
            "chosen": chosen,
            "rates": rates,
            "differences": differences,
            "verdict": verdict.verdict,
            "said": verdict.says or verdict.reasons[0],
            "tokens": self.tokens(),
            "seconds": {name: round(value) for name, value in seconds.items()},
        }

    def prepare(self) -> None:
        """Base, logs, traces and tasks, which all seeds share."""
        base, (logs, *_) = Path(self.config.policy.base), self.config.ingest.paths
        if not base.exists():
            make_base(base)
        if not Path(logs).exists():
            make_logs = [sys.executable, "-m", "tracewheel_web.miniwob.logs", "--seed", LOGS_SEED, "--out", logs]
            subprocess.run(make_logs, check=True)
        ingested = self.made("ingested", lambda out: ingest(self.config.ingest, out), self.work)
        self.made("curated", lambda out: curate(CurateSections.of(self.config), ingested, out), self.work)

    def improve(self, start: Path) -> dict[str, PolicyRef]:
        """The policies of reinforcement learning that validation looks at."""
        training, tasks, state = self.config.training, load_tasks(self.curated, "train"), start
        sampler, policies = make_sampler(SamplerSections.of(self.config), self.curated), {}
        for iteration in range(1, training.iterations + 1):
            name = f"iterations/{iteration:03d}"
            policy = policy_of(state, self.config.policy.base)
            chosen = sampler.select(training.tasks_per_iteration, iteration)
            played = self.made(
                f"{name}/rollout",
                lambda out, policy=policy, chosen=chosen, iteration=iteration: roll_out(
                    RolloutSections.of(self.config), policy, self.curated, chosen, out, iteration=iteration
                ),
            )
            trajectories = played / "trajectories.parquet"
            scored = self.made(
                f"{name}/score",
                lambda out, of=trajectories: score(ScoreSections.of(self.config), tasks, of, out),
            )
            observe_scores(sampler, scored / "scores.parquet")

            def learn(out: Path, state: Path = state, played: Path = played, scored: Path = scored, at: int = iteration) -> Any:
                files = UpdateFiles.of_folders([played], [scored], state=state, reference=start, out=out)
                return update(UpdateSections.of(self.config), files, iteration=at)

            state = self.made(f"{name}/update", learn)
            totals = read_table(scored / "scores.parquet", ["total"])["total"]
            say(f"seed {self.config.seed}, iteration {iteration}: success in training {totals.mean():.3f}")
            if iteration % training.validate_every == 0 or iteration == training.iterations:
                policies[f"iteration {iteration}"] = policy_of(state, self.config.policy.base)
        return policies

    def figure(self, name: str, policy: PolicyRef, split: str) -> float:
        """The mean of greedy and sampled success."""
        rates = self.rates(name, policy, split)
        return (rates["greedy"] + rates["sampled"]) / 2

    def rates(self, name: str, policy: PolicyRef, split: str) -> dict[str, float]:
        """Greedy and sampled success on a split, or on the pages held out."""
        folder = self.made(f"{split}/{name}", lambda out: self.evaluate(policy, split, out))
        table = pd.read_parquet(folder / RESULTS_FILE)
        sampled = table["sampled_successes"].sum() / table["sampled_attempts"].sum()
        say(f"seed {self.config.seed}: {name} on {split}: greedy {table['greedy'].mean():.3f}, sampled {sampled:.3f}")
        return {"greedy": float(table["greedy"].mean()), "sampled": float(sampled), "tasks": len(table)}

    def evaluate(self, policy: PolicyRef, split: str, out: Path) -> dict[str, Any]:
        sections = EvaluateSections.of(self.config)
        if split != "held_out_pages":
            return evaluate_split(sections, policy, self.curated, split, out)
        maker = MiniwobEnvironment(MiniwobArgs(pages=HELD_OUT_PAGES))
        try:
            tasks = maker.make_tasks(OF_HELD_OUT_PAGE * len(HELD_OUT_PAGES), seed=1)
        finally:
            maker.close()
        seed = evaluation_seed(self.config.seed, "held_out")
        return evaluate(sections, policy, tasks, out, samples=self.config.evaluation.samples, seed=seed, held_out=True)

    def differences(self, split: str) -> list[dict[str, Any]]:
        """The gate's figure after RL minus that of the warm start, of all tasks and by page."""
        after, before = (pd.read_parquet(self.own / split / name / RESULTS_FILE) for name in ("after RL", START))
        found: list[dict[str, Any]] = paired_differences(after, before, greedy_weight=self.config.gate.greedy_weight)["rows"]
        return [{key: row[key] for key in ("family", "tasks", "difference", "interval")} for row in found]

    def tokens(self) -> dict[str, float]:
        """Tokens of a held-out episode, all and sampled, and its turns."""
        columns = ["token_ids", "action_mask", "turns"]
        table = pd.read_parquet(self.own / "held_out" / "after RL" / "greedy" / "trajectories.parquet", columns=columns)
        return {
            "all": float(table["token_ids"].map(len).mean()),
            "sampled": float(table["action_mask"].map(sum).mean()),
            "calls": float(table["turns"].map(lambda turns: len(json.loads(turns))).mean()),
        }

    def made(self, name: str, make: Any, below: Path | None = None) -> Path:
        """The folder of a stage, made as a whole or not at all."""
        folder = (below or self.own) / name
        if not folder.exists():
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make(unfinished)
            unfinished.rename(folder)
        return folder


def make_base(out: Path) -> None:
    """What `tracewheel stage base-policy` does, but Muon's iteration in float32.

    Processors without bfloat16 emulate it, and torch's iteration in it is over half of a step of so small a model.
    """
    import torch
    from torch.optim import _muon

    def orthogonal(grad: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> torch.Tensor:
        a, b, c = coefficients
        tall = grad.size(0) > grad.size(1)
        x = (grad.T if tall else grad).float()
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            square = x @ x.T
            x = a * x + (b * square + c * square @ square) @ x
        return x.T if tall else x

    _muon._zeropower_via_newtonschulz = orthogonal
    unfinished = out.with_name(f"{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    train_base_policy(load_base_config(BASE_PROFILE), unfinished)
    unfinished.rename(out)


def table_of(results: dict[str, Any]) -> str:
    """Markdown: success of each policy, and the differences, a column for each seed."""
    seeds = sorted(results)
    head = ["| | " + " | ".join(f"seed {seed}" for seed in seeds) + " |", "|---|" + "---:|" * len(seeds)]
    lines = ["Success, greedy / sampled:", "", *head]
    for split, label in SPLITS.items():
        for name in (START, "after RL"):
            cells = [results[seed]["rates"][split][name] for seed in seeds]
            count = cells[0]["tasks"]
            row = " | ".join(f"{cell['greedy']:.3f} / {cell['sampled']:.3f}" for cell in cells)
            lines.append(f"| {count} {label}, {name} | {row} |")
    lines += ["", f"After RL minus the verified {START}, the gate's figure in points (95% interval), paired:", "", *head]
    for split, label in SPLITS.items():
        for place, first in enumerate(results[seeds[0]]["differences"][split]):
            rows = [results[seed]["differences"][split][place] for seed in seeds]
            ends = [[100 * end for end in (row["difference"], *row["interval"])] for row in rows]
            cells = [f"{middle:+.1f} ({low:+.1f} to {high:+.1f})" for middle, low, high in ends]
            lines.append(f"| {label if place == 0 else first['family']} ({first['tasks']}) | {' | '.join(cells)} |")
    lines += [f"| gate | {' | '.join(results[seed]['verdict'] for seed in seeds)} |"]
    for name, label in (("all", "tokens an episode"), ("sampled", "of them sampled"), ("calls", "calls an episode")):
        lines.append(f"| {label} | {' | '.join(format(results[seed]['tokens'][name], '.1f') for seed in seeds)} |")
    minutes = [f"{results[seed]['seconds']['learning'] / 60:.0f}" for seed in seeds]
    lines.append(f"| minutes of learning | {' | '.join(minutes)} |")
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
