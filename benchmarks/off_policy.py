"""The off-policy estimate against the truth, on 200 simulated policies of the tiny agent.

    tracewheel retrain configs/tiny.yaml --run-dir /tmp/run
    python benchmarks/off_policy.py /tmp/run --out docs/off_policy.json

One policy of the run logs: `SAMPLES` episodes of each of `TASKS` tasks. A challenger is a policy of the run, or lies between
the logging policy and one of them, or beyond it; two in five sample at another temperature. Its truth is the mean success of
`TRUTH` fresh episodes of each task. A log is a draw of tasks with their episodes, as traffic is; each challenger gets `LOGS` logs
of each size. Reported by effective episodes: bias, error, how often the 95% interval covers the truth, and what is refused.
The truth is itself measured: `covers truth` widens nothing, and `allowing for the truth` adds its variance.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from tracewheel.config import EngineSections, RetrainConfig
from tracewheel.config.loading import load_config
from tracewheel.core.types import Task
from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.evaluation.off_policy import Limits, LoggedEpisodes, preview
from tracewheel.evaluation.rescoring import logged_episodes, score_tokens
from tracewheel.policy.adapter_check import WEIGHTS
from tracewheel.policy.adapters import ADAPTER, PolicyRef, policy_of
from tracewheel.policy.loading import PolicyWeights, policy_renderer
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric

SEED, POLICIES, TASKS, SAMPLES, TRUTH, LOGS = 19, 200, 128, 8, 4, 5
SIZES = (32, 128)  # tasks in a log
BINS = (0.0, 10.0, 25.0, 50.0, 100.0, 200.0, math.inf)
KEPT_ALL = Limits(effective=0.0, effective_tasks=0.0, largest_share=1.0)
NAMES = ("self_normalised", "doubly_robust")


class Agent:
    """The tiny agent with one policy after another."""

    def __init__(self, config: RetrainConfig, tasks: list[Task]) -> None:
        self.config, self.tasks = EngineSections.of(config), tasks
        self.rubric = Rubric(config.rubric, tasks, config.policy.tool_format)
        self.renderer = policy_renderer(config.policy)
        self.weights = PolicyWeights(config.policy)

    def play(self, policy: PolicyRef, samples: int, temperature: float, seed: int) -> pd.DataFrame:
        """Episodes of all tasks, with their success as `total`."""
        settings = self.config.rollout.model_copy(update={"temperature": temperature})
        engine = TransformersEngine(
            self.weights.load, policy, self.renderer.end_of_turn_ids, Sampling(temperature), 256, settings.max_tokens
        )
        found = run_episodes(engine, self.renderer, settings, RolloutPlan(self.tasks, samples=samples, seed=seed))
        task_of = {task.id: task for task in self.tasks}
        rows = []
        for episode in found:
            score = self.rubric.score(task_of[episode.task_id], episode)
            rows.append({**episode.to_record(), "total": score.breakdown["success"], "family": score.family})
        return pd.DataFrame(rows)


def policies_of(run: Path, base: str) -> list[Path]:
    """The adapters of a run, the warm start first."""
    found = [*(run / "store").glob("warm_start-*"), *(run / "store").glob("update-*")]
    return [
        Path(str(policy_of(state, base).adapter)) for state in sorted(found, key=lambda state: policy_of(state, base).version)
    ]


def between(start: Path, end: Path, share: float, out: Path, base: str) -> PolicyRef:
    """The adapter at `share` of the way from one to another; beyond it where `share` is above 1."""
    adapter = out / ADAPTER
    adapter.mkdir(parents=True, exist_ok=True)
    for name in ("adapter_config.json", "adapter.json"):
        (adapter / name).write_text((end / name).read_text())
    first, last = load_file(start / WEIGHTS), load_file(end / WEIGHTS)
    save_file({name: torch.lerp(first[name], last[name], share) for name in last}, adapter / WEIGHTS, metadata={"format": "pt"})
    return PolicyRef(base, str(adapter), 1)


def draws(log: LoggedEpisodes, size: int, stream: np.random.Generator) -> LoggedEpisodes:
    """A log of `size` tasks drawn with replacement, each with its episodes."""
    chosen = stream.integers(TASKS, size=size)
    places = (chosen[:, None] * SAMPLES + np.arange(SAMPLES)).ravel()
    names = np.repeat(np.arange(size), SAMPLES).astype(str)
    return LoggedEpisodes([log.log_ratios[place] for place in places], log.rewards[places], names, log.families[places])


def challenge(
    number: int, agent: Agent, logged: pd.DataFrame, behaviour: Path, others: list[Path], work: Path
) -> list[dict[str, Any]]:
    """The rows of one challenger: its truth, and its estimates from all logs."""
    rng, stream = random.Random(f"{SEED}-{number}"), np.random.default_rng([SEED, number])
    share, temperature = (
        math.exp(rng.uniform(math.log(0.02), math.log(1.25))),
        rng.choice((1.0, 1.0, 1.0, rng.uniform(0.8, 1.0), rng.uniform(1.0, 1.2))),
    )
    policy = between(behaviour, rng.choice(others), share, work / str(number), agent.config.policy.base)
    played = agent.play(policy, TRUTH, temperature, 1000 + number)
    by_task = played.groupby("task_id")["total"]
    truth = float(played["total"].mean())
    truth_error = math.sqrt(float(by_task.var().mean()) / TRUTH / TASKS)
    scored = score_tokens(agent.weights.load(policy), logged, temperature=temperature)
    log = logged_episodes(logged, scored, with_turn_rewards=False)
    rows = []
    for size in SIZES:
        for _ in range(LOGS):
            for clip in (None, math.sqrt(size * SAMPLES)):
                found = preview(draws(log, size, stream), Limits(**{**vars(KEPT_ALL), "clip": clip}))
                refused = bool(_judged(found))
                row = {"policy": number, "size": size, "clip": clip is not None, "truth": truth, "refused": refused}
                row |= {"truth_error": truth_error, "effective": found.effective, "logged": found.logged}
                row |= {"effective_tasks": found.effective_tasks, "largest_share": found.largest_share}
                for name in NAMES:
                    each = found.estimates[name]
                    row |= {name: each.value, f"{name}_low": each.interval.low, f"{name}_high": each.interval.high}
                rows.append(row)
    return rows


def _judged(found: Any) -> bool:
    limits = Limits()
    return bool(
        found.effective < limits.effective
        or found.effective_tasks < limits.effective_tasks
        or found.largest_share > limits.largest_share
    )


def figures(rows: pd.DataFrame, name: str) -> dict[str, float]:
    """Bias, error and coverage of an estimator over rows."""
    error = rows[name] - rows["truth"]
    half = (rows[f"{name}_high"] - rows[f"{name}_low"]) / 2
    allowed = np.sqrt(half**2 + (1.96 * rows["truth_error"]) ** 2)
    means = error.groupby(rows["policy"]).mean()
    return {
        "bias": float(error.mean()),
        "bias_error": float(means.std() / math.sqrt(max(len(means), 1))),
        "rmse": float(np.sqrt((error**2).mean())),
        "half_width": float(half.mean()),
        "coverage": float((error.abs() <= half).mean()),
        "coverage_allowing": float((error.abs() <= allowed).mean()),
    }


def table(rows: pd.DataFrame) -> tuple[list[dict[str, Any]], str]:
    """Figures by size of log and effective episodes, and as Markdown."""
    lines = [
        "| tasks in the log | effective episodes | logs | policies | refused | estimator | bias | RMSE | half-width | covers truth "
        "| allowing for the truth |",
        "|---:|---|---:|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    found = []
    parts = [("all", low, high) for low, high in zip(BINS, BINS[1:], strict=False)] + [("answered", 0.0, math.inf)]
    for size in SIZES:
        for kind, low, high in parts:
            part = rows[(rows["size"] == size) & (rows["effective"] >= low) & (rows["effective"] < high)]
            if kind == "answered":
                part = part[~part["refused"]]
            if not len(part):
                continue
            label = "all that are not refused" if kind == "answered" else f"{low:g} to {high:g}"
            for name in NAMES:
                each = figures(part, name)
                own = {"size": size, "effective": label, "logs": len(part), "policies": int(part["policy"].nunique())}
                found.append({**own, "refused": float(part["refused"].mean()), "estimator": name, **each})
                lines.append(
                    f"| {size} | {label} | {len(part)} | {own['policies']} | {part['refused'].mean():.0%} | {name} "
                    f"| {each['bias']:+.4f} ± {1.96 * each['bias_error']:.4f} | {each['rmse']:.3f} | {each['half_width']:.3f} "
                    f"| {each['coverage']:.1%} | {each['coverage_allowing']:.1%} |"
                )
    return found, "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--policies", type=int, default=POLICIES)
    parser.add_argument("--work", type=Path, default=Path("/tmp/off-policy"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = load_config(Path(arguments.profile), [])
    rng = random.Random(SEED)
    tasks = [make_task(FAMILIES[number % len(FAMILIES)], 1 + number // len(FAMILIES) % 3, rng) for number in range(TASKS)]
    agent = Agent(config, tasks)
    adapters = policies_of(arguments.run, config.policy.base)
    behaviour = adapters[len(adapters) // 3]
    begun = time.process_time()
    logged = agent.play(policy_of(behaviour, config.policy.base), SAMPLES, 1.0, SEED)
    rows: list[dict[str, Any]] = []
    for number in range(arguments.policies):
        rows += challenge(number, agent, logged, behaviour, adapters, arguments.work)
        if number % 20 == 19:
            print(f"{number + 1} policies, {time.process_time() - begun:.0f} CPU s", flush=True)
    frame = pd.DataFrame(rows)
    arguments.work.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(arguments.work / "rows.parquet")
    plain, text = table(frame[~frame["clip"]])
    clipped, clipped_text = table(frame[frame["clip"]])
    truths = frame.groupby("policy")["truth"].first()
    result = {
        "machine": measuring.machine(1),
        "cpu_s": round(time.process_time() - begun),
        "policies": arguments.policies,
        "logged_success": float(logged["total"].mean()),
        "truth_range": [float(truths.min()), float(truths.max())],
        "truth_error": float(frame["truth_error"].mean()),
        "unclipped": plain,
        "clipped": clipped,
    }
    measuring.emit(result, f"{text}\n\nWeights cut at the square root of the episodes:\n\n{clipped_text}", arguments.out)


if __name__ == "__main__":
    main()
