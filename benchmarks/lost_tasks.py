"""Where most tasks are lost: reinforcement learning and imitation of fresh successes, each with and without rescue.

    python benchmarks/lost_tasks.py

The workspace with 6 to 8 files, of which the logs have at most 4: the verified warm start loses most first groups. Known
solutions, the world's solver's in place of other users' logs, exist for 26 of 96 training tasks. All methods start from a
seed's warm start and stop after the iteration in which they have sampled `--tokens`; success is the last policy's on 48
held-out tasks of the same tiers, the mean of greedy and sampled, without a choice on validation. At equal CPU seconds: that of
the last policy which a method had, by its mean over seeds, when rejection sampling had ended. Writes
`results/lost_tasks.json`, with the outcome of each task, and `results/lost_tasks.md`; what the first holds is not played again
(rows were played on several days and processors; the budget of CPU seconds is that of a row's day).
With other `--tiers`, that is numbers of files, the first is `lost_tasks_TIERS.json`, and all such files make a table. So
do the files of another `--world`, `lost_tasks_WORLD.json`:

- `assistant`: tasks of tier 4, which neither logs nor base have; 96 held-out tasks with names that no training task has;
- `order_desk`: SmolLM2, requests for which two orders are to be changed; held-out tasks in words and with names that no
  training task has. It needs what `make demo-smollm2` prepares.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import torch
from lost_worlds import WORLDS, World
from measuring import table
from methods import compared, figures_of, method_table
from stage_loop import curated_logs, stage_loop, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, SolutionSections, load_config
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate_split
from tracewheel.learner.solutions import SOLUTIONS_FILE, find_solutions
from tracewheel.policy.adapters import PolicyRef
from tracewheel.sampling.lost_tasks import LostTasks
from tracewheel.scoring.score import SCORES_FILE

TIERS = WORLDS["workspace"].tiers
SAMPLES = 24 * 8  # of an iteration
SECONDS = ("rollout_s", "update_s", "cpu_s")
SETTINGS = ["sampler.kind=uniform", "rollout.group_size=8", "training.tasks_per_iteration=24", "training.iterations=32"]
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
        rate: The learning rate, in the world's.
    """

    kind: str = "rejection_sampling"
    at_start: int | None = None
    then: bool = True
    wrong: float = 0.0
    verified: bool = True
    fill: bool = False
    rate: float = 1.0

    def settings(self, world: World, epochs: int) -> list[str]:
        """Of the profile."""
        rescue = f"{{rows: 24, sources: [logs, own], at_start: {epochs}}}"
        kl = 0.01 if self.kind == "grpo" else 0.0
        own = [f"learner.kind={self.kind}", f"learner.learning_rate={self.rate * world.rate}", f"learner.kl={kl}"]
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
    **{
        f"{kind}, rate {rate:g}": Method(kind, rate=rate / 1e-3)
        for kind in ("rejection_sampling", "grpo")
        for rate in (3e-4, 3e-3)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tokens", type=int, default=110_000)
    parser.add_argument("--world", choices=WORLDS, default="workspace")
    parser.add_argument("--tiers", type=int, nargs="+", help="numbers of files of the tasks")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-lost-tasks"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    arguments.of = WORLDS[arguments.world]
    arguments.of = replace(arguments.of, tiers=tuple(arguments.tiers or arguments.of.tiers))
    known = arguments.out / results_file(arguments)
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
    text = table_of(json.loads((arguments.out / "lost_tasks.json").read_text())) + boundary(arguments.out)
    for world in sorted(WORLDS.keys() - {"workspace"}):
        of_world = arguments.out / f"lost_tasks_{world}.json"
        if of_world.exists():
            text += f"\nWorld `{world}`:\n\n{rates_of(json.loads(of_world.read_text()))}\n"
    (arguments.out / "lost_tasks.md").write_text(text)
    print(text)


def results_file(arguments: argparse.Namespace) -> str:
    """The name of the file of results on these tasks."""
    if arguments.world != "workspace":
        return f"lost_tasks_{arguments.world}.json"
    return "lost_tasks.json" if arguments.of.tiers == TIERS else f"lost_tasks_{'-'.join(map(str, arguments.of.tiers))}.json"


def played(name: str, seed: int, arguments: argparse.Namespace, of_base: list[dict[str, Any]]) -> dict[str, Any]:
    """One method on one seed: its outcomes on the held-out tasks, and each iteration's figures."""
    method = METHODS.get(name, Method())
    budget, epochs = sum(each["cpu_s"] for each in of_base), method.at_start or 0
    if method.fill:
        epochs = filling(
            json.loads((arguments.out / results_file(arguments)).read_text())[FIRST][str(seed)]["iterations"][0], budget
        )
    alone = method.fill or name == ALONE
    config = config_of(arguments, seed, method.settings(arguments.of, epochs))
    torch.set_num_threads(config.threads)
    work, folder = places(name, seed, arguments)
    start = warm_started(config, curated_logs(config, work.parent / "curated"), work / "warm")
    tasks = tasks_folder(folder, method)
    arguments.of.write(tasks, seed, wrong=method.wrong, verified=method.verified)
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


def config_of(arguments: argparse.Namespace, seed: int, own: list[str]) -> RetrainConfig:
    """The world's profile with the settings of all methods, and a method's own."""
    return load_config(arguments.of.profile, [f"seed={seed}", *arguments.of.settings, *SETTINGS, *arguments.settings, *own])


def places(name: str, seed: int, arguments: argparse.Namespace) -> tuple[Path, Path]:
    """The folder of a seed, and that of a method's iterations in it."""
    of = arguments.work if arguments.world == "workspace" else arguments.work / arguments.world
    work, tiers = of / f"seed-{seed}", arguments.of.tiers
    own = work if tiers == WORLDS[arguments.world].tiers else work / "-".join(map(str, tiers))
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
            config = config_of(arguments, int(seed), [])
            tasks = tasks_folder(folder, METHODS[name])
            found["at_equal_cpu"] = {
                "iterations": fits, **outcomes(config, tasks, adapter, folder.with_name(f"evaluated-{folder.name}-{fits}")),
            }  # fmt: skip


def filling(first: dict[str, Any], budget: float) -> int:
    """The epochs of imitation that take as many CPU seconds as a budget leaves after the first rollouts."""
    share = first["update_s"] / (first["rollout_s"] + first["update_s"])
    update = share * first["cpu_s"]
    return max(EPOCHS, round(EPOCHS * (budget - (first["cpu_s"] - update)) / update))


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
    return float(figures_of(pd.DataFrame(found)).mean())


def table_of(results: dict[str, Any]) -> str:
    """Markdown: what was done, success by seed and what it cost, and each method minus rejection sampling."""
    about = str(__doc__).split("\n\n", 2)[2].strip()
    return f"# Lost tasks\n\nWritten by `benchmarks/lost_tasks.py`. {about}\n\n{rates_of(results)}\n"


def rates_of(results: dict[str, Any]) -> str:
    """Markdown: success by seed and what it cost, and each method minus rejection sampling."""
    seeds = sorted({seed for by_seed in results.values() for seed in by_seed}, key=int)
    last = {name: {seed: found["tasks"] for seed, found in of.items()} for name, of in results.items()}
    then = {
        name: {seed: found.get("at_equal_cpu", found["tasks"]) for seed, found in of.items()} for name, of in results.items()
    }
    rates, equal = ({name: {s: rate_of(each[s]) for s in each} for name, each in of.items()} for of in (last, then))
    rows = []
    for name, of in results.items():
        loops = [found["iterations"] for found in of.values() if found.get("iterations")]
        means = [fmean(sum(each[key] for each in loop) for loop in loops) if loops else 0.0 for key in ("tokens", "cpu_s")]
        lost = [f"{fmean(loop[place]['lost_groups'] for loop in loops):.2f}" if loops else "-" for place in (0, -1)]
        each = (f"{rates[name][seed]:.3f}" if seed in of else "-" for seed in seeds)
        cost = [f"{means[0] / 1000:.0f}k", f"{means[1]:.0f}"] if loops else ["-", "-"]
        rows.append([name, *each, f"{fmean(rates[name].values()):.3f}", f"{fmean(equal[name].values()):.3f}", *cost, *lost])
    head = ["method", *(f"seed {seed}" for seed in seeds), "mean", "at equal CPU", "tokens", "CPU s", "lost first", "lost last"]
    text = table(head, rows)
    for title, of in (("equal sampled tokens", last), ("equal CPU seconds", then)):
        differences = {}
        for name in of:
            both = sorted(of[name].keys() & of.get(BASE, {}).keys())
            if name != BASE and len(both) > 1:
                pair = ([pd.DataFrame(of[which][seed]) for seed in both] for which in (name, BASE))
                differences[f"{name}, at {title}"] = compared(*pair)
        text += f"\n\nMinus {BASE}, {title}, in points:\n\n{method_table(differences)}" if differences else ""
    return text


def boundary(out: Path) -> str:
    """Markdown: GRPO beside rejection sampling by the share of first groups that are lost, over the files of all tiers."""
    rows, names = [], ("warm start", BASE, "GRPO")
    found: dict[str, dict[str, list[pd.DataFrame]]] = {}  # outcomes of `names` by the file's tiers and by seed
    for path in [out / "lost_tasks.json", *sorted(out.glob("lost_tasks_[0-9]*.json"))]:
        results = json.loads(path.read_text())
        seeds = sorted(results.get(BASE, {}).keys() & results.get("GRPO", {}).keys(), key=int)
        if len(seeds) < 2:
            continue
        lost = fmean(results[name][seed]["iterations"][0]["lost_groups"] for name in names[1:] for seed in seeds)
        tiers = path.stem.removeprefix("lost_tasks").lstrip("_") or "-".join(map(str, TIERS))
        found[tiers] = {seed: [pd.DataFrame(results[name][seed]["tasks"]) for name in names] for seed in seeds}
        rows.append([f"{lost:.2f}", tiers, *_beside(list(found[tiers].values()))])
    if not rows:
        return ""
    # A seed's settings share its warm start, so that their mean is one figure.
    common = set.intersection(*(set(by_seed) for by_seed in found.values()))
    rows.sort()
    if len(found) > 1 and len(common) > 1:
        together = [[pd.concat(of) for of in zip(*(by[seed] for by in found.values()), strict=True)] for seed in sorted(common)]
        rows.append(["", "mean of these", *_beside(together)])
    head = ["first groups lost", "files", "seeds", *names, "difference", "in points"]
    title = "GRPO minus rejection sampling, by the share of first groups that are lost"
    return f"\n{title}:\n\n{table(head, rows)}\n"


def _beside(by_seed: list[list[pd.DataFrame]]) -> list[str]:
    """Seeds, means, and GRPO minus rejection sampling: outcomes of the warm start and both, by seed."""
    start, base, grpo = (list(each) for each in zip(*by_seed, strict=True))
    found = compared(grpo, base)
    means = (f"{fmean(figures_of(one).mean() for one in each):.3f}" for each in (start, base, grpo))
    return [str(len(by_seed)), *means, f"{found.mean:+.1f}", found.says]


if __name__ == "__main__":
    main()
