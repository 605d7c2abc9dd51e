"""The off-policy estimate against the truth, on 200 simulated policies of the tiny agent.

    tracewheel retrain configs/tiny.yaml --run-dir /tmp/run
    python off_policy.py /tmp/run --work /tmp/off-policy --out benchmarks/results/off_policy.json

One policy of the run logs: `SAMPLES` episodes of each of `TASKS` tasks. A challenger is a policy of the run, or lies between
the logging policy and one of them, or beyond it; two in five sample at another temperature. Its truth is the mean success of
`TRUTH` fresh episodes of each task. A log is a draw of tasks, as traffic is, with `EACH` episodes of each; a challenger gets
`LOGS` logs of each size. Reported by effective episodes: bias, error, coverage of the 95% interval, and what is refused.
The truth is itself measured: `covers truth` widens nothing, and `allowing for the truth` adds its variance.
"""

from __future__ import annotations

import argparse
import itertools
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
from tracewheel.learner.rescoring import score_tokens
from tracewheel.policy.adapter_check import WEIGHTS
from tracewheel.policy.adapters import ADAPTER, PolicyRef, policy_of
from tracewheel.policy.loading import PolicyWeights, policy_renderer
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric
from tracewheel_lab.logged_episodes import logged_episodes
from tracewheel_lab.off_policy import LoggedEpisodes, preview

SEED, POLICIES, TASKS, SAMPLES, EACH, TRUTH, LOGS = 19, 200, 64, 16, 8, 5, 10
SIZES = (32, 128)  # tasks in a log
BINS = (0.0, 10.0, 25.0, 50.0, 100.0, 200.0, math.inf)
NAMES = ("self_normalised", "doubly_robust")


class Agent:
    """The tiny agent with one policy after another."""

    def __init__(self, config: RetrainConfig, tasks: list[Task]) -> None:
        self.config, self.tasks = EngineSections.of(config), tasks
        self.rubric = Rubric(config.rubric, tasks, config.policy.tool_format)
        self.renderer = policy_renderer(config.policy)
        self.weights = PolicyWeights(config.policy)
        self.scored = PolicyWeights(config.policy)  # the engine changes how its own model attends

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


def measure(number: int, agent: Agent, logged: pd.DataFrame, adapters: tuple[Path, list[Path]], work: Path) -> None:
    """Write one challenger's truth and the log-weights of all logged episodes, unless they were written before."""
    kept = work / f"{number}.npz"
    if kept.is_file():
        return
    rng = random.Random(f"{SEED}-{number}")
    share = math.exp(rng.uniform(math.log(0.02), math.log(1.25)))
    temperature = rng.choice((1.0, 1.0, 1.0, rng.uniform(0.8, 1.0), rng.uniform(1.0, 1.2)))
    behaviour, others = adapters
    policy = between(behaviour, rng.choice(others), share, work / "adapters" / str(number), agent.config.policy.base)
    by_task = agent.play(policy, TRUTH, temperature, 1000 + number).groupby("task_id")["total"]
    scored = score_tokens(agent.scored.load(policy), logged, temperature=temperature)
    log = logged_episodes(logged, scored, with_turn_rewards=False)
    error = math.sqrt(float(by_task.var().mean()) / TRUTH / TASKS)
    np.savez(kept, log_weights=log.log_weights(), truth=float(by_task.mean().mean()), truth_error=error)


def estimates(number: int, logged: pd.DataFrame, work: Path) -> list[dict[str, Any]]:
    """The rows of one challenger: its estimates from all logs."""
    with np.load(work / f"{number}.npz") as kept:
        log_weights, truth, truth_error = kept["log_weights"], float(kept["truth"]), float(kept["truth_error"])
    stream = np.random.default_rng([SEED, number])
    rewards, families = logged["total"].to_numpy(float), logged["family"].to_numpy(str)
    rows = []
    for size in SIZES:
        for _ in range(LOGS):
            tasks = stream.integers(TASKS, size=size)
            samples = np.array([stream.choice(SAMPLES, EACH, replace=False) for _ in tasks])
            places = (tasks[:, None] * SAMPLES + samples).ravel()
            names = np.repeat(np.arange(size), EACH).astype(str)
            log = LoggedEpisodes([log_weights[[place]] for place in places], rewards[places], names, families[places])
            found = preview(log)
            row: dict[str, Any] = {"policy": number, "size": size, "truth": truth, "truth_error": truth_error}
            row |= {"effective": found.effective, "refused": bool(found.refusal)}
            row |= {"effective_tasks": found.effective_tasks, "largest_share": found.largest_share}
            for name in NAMES:
                each = found.estimates[name]
                row |= {name: each.value, f"{name}_low": each.interval.low, f"{name}_high": each.interval.high}
            rows.append(row)
    return rows


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
        "| tasks in the log | effective episodes | logs | policies | refused | estimator | bias | RMSE | half-width "
        "| covers truth | allowing for the truth |",
        "|---:|---|---:|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    found = []
    parts = [("all", low, high) for low, high in itertools.pairwise(BINS)] + [("answered", 0.0, math.inf)]
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
    parser.add_argument("--work", type=Path, required=True, help="where challengers are kept, so that it can be resumed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = load_config(Path(arguments.profile), [])
    rng = random.Random(SEED)
    tasks = [make_task(FAMILIES[number % len(FAMILIES)], 1 + number // len(FAMILIES) % 2, rng) for number in range(TASKS)]
    agent = Agent(config, tasks)
    adapters = policies_of(arguments.run, config.policy.base)
    behaviour = adapters[len(adapters) // 3]
    begun = time.process_time()
    logged = agent.play(policy_of(behaviour, config.policy.base), SAMPLES, 1.0, SEED)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.policies):
        measure(number, agent, logged, (behaviour, adapters), arguments.work)
    measured = time.process_time() - begun
    frame = pd.DataFrame([row for number in range(arguments.policies) for row in estimates(number, logged, arguments.work)])
    plain, text = table(frame)
    truths = frame.groupby("policy")["truth"].first()
    result = {
        "machine": measuring.machine(1),
        "cpu_s": round(measured),
        "policies": arguments.policies,
        "logged_success": float(logged["total"].mean()),
        "truth_range": [float(truths.min()), float(truths.max())],
        "truth_error": float(frame["truth_error"].mean()),
        "rows": plain,
    }
    measuring.emit(result, text, arguments.out)


if __name__ == "__main__":
    main()
