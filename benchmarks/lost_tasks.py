"""Where most tasks are lost: reinforcement learning and imitation of fresh successes, each with and without rescue.

    python benchmarks/lost_tasks.py

The workspace with 6 to 8 files, of which the logs have at most 4: the verified warm start loses most first groups. Known
solutions, the world's solver's in place of other users' logs, exist for 26 of 96 training tasks. All methods start from a
seed's warm start and stop after the iteration in which they have sampled `--tokens`; success is the last policy's on 48
held-out tasks of the same tiers, the mean of greedy and sampled, without a choice on validation. At equal CPU seconds: that of
the last policy which a method had, by its mean over seeds, when rejection sampling had ended. Writes
`results/lost_tasks.json`, with the outcome of each task, and `results/lost_tasks.md`; what the first holds is not played again.
With other `--tiers`, that is numbers of files, the first is `lost_tasks_TIERS.json`, and all such files make the last table.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import torch
from measuring import table
from methods import difference_of, figures_of, method_table
from stage_loop import curated_logs, stage_loop, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, SolutionSections, load_config
from tracewheel.core.types import Task
from tracewheel.environments.base import play_calls
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import make_task
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate_split
from tracewheel.learner.solutions import SOLUTIONS_FILE, find_solutions
from tracewheel.policy.adapters import PolicyRef
from tracewheel.sampling.lost_tasks import LostTasks
from tracewheel.scoring.score import SCORES_FILE
from tracewheel.scoring.verifiers import make_verifier

FAMILIES, TIERS = ("list", "content"), (6, 7, 8)
TRAIN, HELD_OUT, KNOWN = 96, 48, 26
SAMPLES = 24 * 8  # of an iteration
SECONDS = ("rollout_s", "update_s", "cpu_s")
SETTINGS = [
    "sampler.kind=uniform", "rollout.group_size=8", "training.tasks_per_iteration=24",
    "rollout.exploration.environment_args={}",
    "rollout.max_tokens=600", "threads=1",
]  # fmt: skip
EPOCHS = 24  # of imitation, where it comes first


@dataclass(frozen=True)
class Method:
    """How a run learns.

    Attributes:
        kind: The learner's.
        at_start: Epochs of imitation before anything else; None to rescue nothing.
        then: Whether solutions join later updates too.
        wrong: The share of the known solutions that are wrong.
        verified: Whether the verifier has seen them.
        fill: Imitate alone, for as long as rejection sampling took.
        rate: The learning rate.
    """

    kind: str = "rejection_sampling"
    at_start: int | None = None
    then: bool = True
    wrong: float = 0.0
    verified: bool = True
    fill: bool = False
    rate: float = 1e-3

    def settings(self, epochs: int) -> list[str]:
        """Of the profile."""
        rescue = f"{{rows: 24, sources: [logs, own], at_start: {epochs}}}"
        kl = 0.01 if self.kind == "grpo" else 0.0
        own = [f"learner.kind={self.kind}", f"learner.learning_rate={self.rate}", f"learner.kl={kl}"]
        return own if self.at_start is None else [*own, f"learner.lost_tasks={rescue}"]


BASE, FIRST, ALONE = "rejection sampling", "imitated first, then rejection sampling", "imitated alone"
METHODS = {
    BASE: Method(),
    "rejection sampling, solutions join": Method(at_start=0),
    FIRST: Method(at_start=EPOCHS, then=False),
    "GRPO": Method("grpo"),
    ALONE: Method(at_start=EPOCHS),  # the first update of FIRST
    "imitated first, solutions join": Method(at_start=EPOCHS),
    "imitated alone, equal CPU": Method(at_start=EPOCHS, fill=True),
    "half wrong: imitated first, solutions join": Method(at_start=EPOCHS, wrong=0.5),
    "half wrong, not verified: imitated first, solutions join": Method(at_start=EPOCHS, wrong=0.5, verified=False),
    "GRPO, solutions join": Method("grpo", at_start=0),
    "GRPO, imitated first, solutions join": Method("grpo", at_start=EPOCHS),
    **{f"{kind}, rate {rate:g}": Method(kind, rate=rate) for kind in ("rejection_sampling", "grpo") for rate in (3e-4, 3e-3)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tokens", type=int, default=110_000)
    parser.add_argument("--tiers", type=int, nargs="+", default=TIERS, help="numbers of files of the tasks")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-lost-tasks"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    arguments.tiers = tuple(arguments.tiers)
    known = arguments.out / results_file(arguments.tiers)
    results: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    for seed in arguments.seeds:
        for name in ("warm start", *arguments.methods):
            if str(seed) in results.get(name, {}):
                continue
            of_base = results.get(BASE, {}).get(str(seed))
            found = played(name, seed, arguments, of_base["iterations"] if of_base else [])
            results.setdefault(name, {})[str(seed)] = found
            print(f"seed {seed}, {name}: {rate_of(found['tasks']):.3f}", file=sys.stderr)
            arguments.out.mkdir(parents=True, exist_ok=True)
            known.write_text(json.dumps(results) + "\n")
    for name in arguments.methods:
        at_equal_cpu(name, results, arguments)
    known.write_text(json.dumps(results) + "\n")
    text = table_of(json.loads((arguments.out / results_file(TIERS)).read_text())) + boundary(arguments.out)
    (arguments.out / "lost_tasks.md").write_text(text)
    print(text)


def results_file(tiers: tuple[int, ...]) -> str:
    """The name of the file of results on tasks with so many files."""
    return "lost_tasks.json" if tiers == TIERS else f"lost_tasks_{'-'.join(map(str, tiers))}.json"


def played(name: str, seed: int, arguments: argparse.Namespace, of_base: list[dict[str, Any]]) -> dict[str, Any]:
    """One method on one seed: its outcomes on the held-out tasks, and each iteration's figures."""
    method = METHODS.get(name, Method())
    budget, epochs = sum(each["cpu_s"] for each in of_base), method.at_start or 0
    if method.fill:
        epochs = filling(
            json.loads((arguments.out / results_file(arguments.tiers)).read_text())[FIRST][str(seed)]["iterations"][0], budget
        )
    alone = method.fill or name == ALONE
    loop = ["training.iterations=16", *SETTINGS, *arguments.settings]
    config = load_config("configs/tiny.yaml", [f"seed={seed}", *loop, *method.settings(epochs)])
    torch.set_num_threads(config.threads)
    work, folder = places(name, seed, arguments)
    start = warm_started(config, curated_logs(config, arguments.work / "curated"), work / "warm")
    tasks = tasks_folder(folder, method)
    hard_tasks(tasks, seed, method, arguments.tiers)
    if name == "warm start":
        return {"tasks": outcomes(config, tasks, start / "adapter", folder.with_name(f"evaluated-{folder.name}"))}
    notes: dict[int, dict[str, Any]] = {}

    def enough(figures: list[dict[str, Any]]) -> bool:
        sampled = sum(each["generated_tokens"] for each in figures) * SAMPLES
        return sampled >= arguments.tokens or alone

    adapter, figures = stage_loop(config, tasks, start, folder, solutions=rescuer(config, tasks, method, notes), enough=enough)
    iterations = [
        {"tokens": each["generated_tokens"] * SAMPLES, **{key: each[key] for key in SECONDS}, **notes[number]}
        for number, each in enumerate(figures, 1)
    ]
    return {"tasks": outcomes(config, tasks, adapter, folder.with_name(f"evaluated-{folder.name}")), "iterations": iterations}


def places(name: str, seed: int, arguments: argparse.Namespace) -> tuple[Path, Path]:
    """The folder of a seed, and that of a method's iterations in it."""
    work = arguments.work / f"seed-{seed}"
    own = work if arguments.tiers == TIERS else work / "-".join(map(str, arguments.tiers))
    return work, own / (FIRST if name == ALONE else name).translate({ord(mark): "-" for mark in " :,"})


def tasks_folder(folder: Path, method: Method) -> Path:
    """The folder of the tasks beside that of a method's iterations."""
    return folder.with_name(f"tasks-{method.wrong:g}-{method.verified}")


def at_equal_cpu(name: str, results: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Evaluate a method's policy after the iterations for which rejection sampling's CPU seconds suffice, means over seeds.

    Means, because a busy machine makes the same work cost more in one seed than in another.
    """
    loops = {seed: found["iterations"] for seed, found in results[name].items()}
    budget = fmean(sum(each["cpu_s"] for each in found["iterations"]) for found in results.get(BASE, {}).values())
    longest = max(map(len, loops.values()))
    costs = [fmean(loop[place]["cpu_s"] for loop in loops.values() if place < len(loop)) for place in range(longest)]
    fits = sum(spent <= budget for spent in accumulate(costs))
    for seed, loop in loops.items():
        found = results[name][seed]
        if name == BASE or fits >= len(loop):
            found.pop("at_equal_cpu", None)
        elif found.get("at_equal_cpu", {}).get("iterations") != fits:
            work, folder = places(name, int(seed), arguments)
            adapter = (folder / f"{fits:03d}" if fits else work / "warm") / "adapter"
            config = load_config("configs/tiny.yaml", [f"seed={seed}", *SETTINGS])
            tasks = tasks_folder(folder, METHODS[name])
            found["at_equal_cpu"] = {
                "iterations": fits, **outcomes(config, tasks, adapter, folder.with_name(f"evaluated-{folder.name}-{fits}")),
            }  # fmt: skip


def filling(first: dict[str, Any], budget: float) -> int:
    """The epochs of imitation that take as many CPU seconds as a budget leaves after the first rollouts."""
    share = first["update_s"] / (first["rollout_s"] + first["update_s"])
    update = share * first["cpu_s"]
    return max(EPOCHS, round(EPOCHS * (budget - (first["cpu_s"] - update)) / update))


def hard_tasks(folder: Path, seed: int, method: Method, tiers: tuple[int, ...]) -> None:
    """Write training tasks, of which some have a known solution, and held-out ones, as a curation would.

    A wrong solution leaves the last file where it was.
    """
    rng = random.Random(f"lost-tasks-{seed}")
    made: dict[str, Task] = {}
    while len(made) < TRAIN + HELD_OUT:
        task = make_task(FAMILIES[len(made) % 2], tiers[len(made) // 2 % len(tiers)], rng)
        made.setdefault(task.fingerprint, task)
    tasks = list(made.values())
    known = random.Random(seed).sample(range(TRAIN), KNOWN)
    wrong = set(known[: round(method.wrong * KNOWN)])
    rows = []
    for number, task in enumerate(tasks[:TRAIN]):
        calls = solution(task) if number in known else solution(task)[:1]
        if number in wrong:
            calls.pop(max(place for place, (name, _) in enumerate(calls) if name == "move_file"))
        environment = WorkspaceEnvironment()
        messages = play_calls(environment, task, calls)
        success, _ = make_verifier(task.verifier).verify(task, environment.snapshot())
        assert success == float(number in known and number not in wrong)
        rows.append(
            {
                "trace_id": f"trace-{number}", "task_id": task.id, "split": "train", "failure": "",
                "success": success if method.verified else float(number in known),
                "messages": json.dumps(messages), "tools": json.dumps(TOOLS),
            }
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    splits = ["train"] * TRAIN + ["held_out"] * HELD_OUT
    records = [task.to_record() | {"split": split} for task, split in zip(tasks, splits, strict=True)]
    pd.DataFrame(records).to_parquet(folder / "tasks.parquet", index=False)
    pd.DataFrame(rows).to_parquet(folder / "episodes.parquet", index=False)


def rescuer(
    config: RetrainConfig, curated: Path, method: Method, notes: dict[int, dict[str, Any]]
) -> Callable[[int, Path], Path | None]:
    """Finds solutions as a run does, without a teacher; notes the lost groups of each iteration and the sources."""
    assert config.learner.kind != "dpo"
    settings = config.learner.lost_tasks
    table = pd.read_parquet(curated / "tasks.parquet").query("split == 'train'")
    kin = {str(row.id): (str(row.family), int(row.tier)) for row in table.itertuples()}
    lost, folders = LostTasks(settings.after_groups if settings else 1, kin), dict[int, Path]()

    def see(iteration: int, folder: Path) -> Path | None:
        lost.observe(iteration, [folder / SCORES_FILE])
        folders[iteration] = folder
        notes[iteration] = {"lost_groups": lost.share, "lost_tasks": len(lost.ids), "shown": {}}
        if not settings or not lost.ids or (iteration > 1 and not method.then):
            return None
        own = [(folders[number],) * 2 for number in sorted({lost.won_in[i] for i in lost.ids if i in lost.won_in})]
        out = folder / "solutions"
        sources = find_solutions(SolutionSections.of(config), curated, lost.ids, out, own=own)["sources"]
        notes[iteration]["shown"] = dict(Counter(sources.values()))
        return out / SOLUTIONS_FILE if sources else None

    return see


def outcomes(config: RetrainConfig, curated: Path, adapter: Path, out: Path) -> dict[str, list[Any]]:
    """Greedy and sampled outcomes of a policy, by task."""
    out.mkdir(parents=True, exist_ok=True)
    evaluate_split(EvaluateSections.of(config), PolicyRef(config.policy.base, str(adapter), 0), curated, "held_out", out)
    rows = pd.read_parquet(out / RESULTS_FILE)
    return {name: rows[name].tolist() for name in ("task_id", "greedy", "sampled_successes", "sampled_attempts")}


def rate_of(found: dict[str, list[Any]]) -> float:
    """The mean of greedy and sampled success."""
    return float(figures_of([pd.DataFrame(found)]).mean())


def table_of(results: dict[str, Any]) -> str:
    """Markdown: what was done, success by seed and what it cost, and each method minus rejection sampling."""
    seeds = sorted({seed for by_seed in results.values() for seed in by_seed}, key=int)
    rates = {name: {seed: rate_of(found["tasks"]) for seed, found in of.items()} for name, of in results.items()}
    equal = {
        name: {seed: rate_of(found.get("at_equal_cpu", found["tasks"])) for seed, found in of.items()}
        for name, of in results.items()
    }
    rows = []
    for name, of in results.items():
        loops = [found["iterations"] for found in of.values() if found.get("iterations")]
        means = [fmean(sum(each[key] for each in loop) for loop in loops) if loops else 0.0 for key in ("tokens", "cpu_s")]
        lost = [f"{fmean(loop[place]['lost_groups'] for loop in loops):.2f}" if loops else "-" for place in (0, -1)]
        each = (f"{rates[name][seed]:.3f}" if seed in of else "-" for seed in seeds)
        cost = [f"{means[0] / 1000:.0f}k", f"{means[1]:.0f}"] if loops else ["-", "-"]
        rows.append([name, *each, f"{fmean(rates[name].values()):.3f}", f"{fmean(equal[name].values()):.3f}", *cost, *lost])
    head = ["method", *(f"seed {seed}" for seed in seeds), "mean", "at equal CPU", "tokens", "CPU s", "lost first", "lost last"]
    about = str(__doc__).split("\n\n", 2)[2].strip()
    text = f"# Lost tasks\n\nWritten by `benchmarks/lost_tasks.py`. {about}\n\n{table(head, rows)}"
    for title, of in (("equal sampled tokens", rates), ("equal CPU seconds", equal)):
        differences = {}
        for name in of:
            both = sorted(of[name].keys() & of.get(BASE, {}).keys())
            if name != BASE and len(both) > 1:
                differences[f"{name}, at {title}"] = difference_of([of[name][s] for s in both], [of[BASE][s] for s in both])
        text += f"\n\nMinus {BASE}, {title}, in points:\n\n{method_table(differences)}" if differences else ""
    return f"{text}\n"


def boundary(out: Path) -> str:
    """Markdown: GRPO beside rejection sampling by the share of first groups that are lost, over the files of all tiers."""
    rows, names = [], ("warm start", BASE, "GRPO")
    found: dict[str, dict[str, list[float]]] = {}  # rates of `names` by the file's tiers and by seed
    for path in sorted(out.glob("lost_tasks*.json")):
        results = json.loads(path.read_text())
        seeds = sorted(results.get(BASE, {}).keys() & results.get("GRPO", {}).keys(), key=int)
        if len(seeds) < 2:
            continue
        lost = fmean(results[name][seed]["iterations"][0]["lost_groups"] for name in names[1:] for seed in seeds)
        tiers = path.stem.removeprefix("lost_tasks").lstrip("_") or "-".join(map(str, TIERS))
        found[tiers] = {seed: [rate_of(results[name][seed]["tasks"]) for name in names] for seed in seeds}
        rows.append([f"{lost:.2f}", tiers, *_beside(list(found[tiers].values()))])
    if not rows:
        return ""
    # A seed's settings share its warm start, so that their mean is one figure.
    common = set.intersection(*(set(by_seed) for by_seed in found.values()))
    rows.sort()
    if len(found) > 1 and len(common) > 1:
        means = [[fmean(by_seed[seed][place] for by_seed in found.values()) for place in range(3)] for seed in sorted(common)]
        rows.append(["", "mean of these", *_beside(means)])
    head = ["first groups lost", "files", "seeds", *names, "difference", "in points"]
    title = "GRPO minus rejection sampling, by the share of first groups that are lost"
    return f"\n{title}:\n\n{table(head, rows)}\n"


def _beside(rates: list[list[float]]) -> list[str]:
    """Seeds, means, and GRPO minus rejection sampling: rates of the warm start and both, by seed."""
    start, base, grpo = zip(*rates, strict=True)
    found = difference_of(grpo, base)
    return [str(len(rates)), *(f"{fmean(each):.3f}" for each in (start, base, grpo)), f"{found.mean:+.1f}", found.says]


if __name__ == "__main__":
    main()
