"""The tables and the plot of `smollm2.py`, from the outcomes that it has stored by seed, policy and split."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from measuring import points, table, together
from methods import compared, method_table

from tracewheel.core.errors import DataError
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.order_desk.tasks import wanted
from tracewheel.environments.order_desk.wording import is_paraphrase
from tracewheel.evaluation.family_differences import paired_differences

SPLITS = ("held_out", "harder")
WARM_START, AS_IT_IS, REPLAY = "warm_start", "as it is", "replay of demonstrations"
BFLOAT16_SAMPLER = "bfloat16 sampler"
# Seeds of the episodes.
OTHER_LUCK = {
    "as it is, other episodes": 1000,
    "as it is, other episodes again": 2000,
    "no action mask, other episodes": 1000,
}
NO_MASK = ("no action mask", "no action mask, other episodes")
ON_TWO_CORES = "as it is, on two cores"  # the tenth policy of `make demo-smollm2`, whose run is seed 0's
MASK = (AS_IT_IS, ON_TWO_CORES, *(name for name in OTHER_LUCK if name not in NO_MASK))
# What each ablation changes in the profile; some change the loop itself, and one reads a file.
ABLATIONS: dict[str, list[str]] = {
    **{name: [] for name in (*MASK, *NO_MASK) if name != ON_TWO_CORES},
    "groups of 4, 64 tasks": ["rollout.group_size=4", "training.tasks_per_iteration=64"],
    "groups of 16, 16 tasks": ["rollout.group_size=16", "training.tasks_per_iteration=16"],
    "uniform tasks": ["sampler.kind=uniform"],
    "tasks that tell nothing of each other": ["sampler.pooling=0"],
    "rank 1": ["warm_start.lora={rank: 1, alpha: 2, targets: all-linear}"],
    "rank 1, alpha 32": ["warm_start.lora={rank: 1, alpha: 32, targets: all-linear}"],
    "mean over sequences": ["learner.aggregation=sequence"],
    "KL 0.01": ["learner.kl.weight=0.01"],
    "KL 0.1": ["learner.kl.weight=0.1"],
    REPLAY: ["learner.replay_rows=8"],
    "steps on single trajectories": ["learner.minibatch_of=trajectories"],
    "bfloat16": ["policy.dtype=bfloat16"],
    BFLOAT16_SAMPLER: [],
}
LABELS = {
    "base": "base",
    "all_logs": "warm start, all logs",
    "warm_start": "warm start, verified logs",
    "longer": "warm start, verified logs, longer",
    "rejection_sampling": "rejection sampling",
    "dpo": "DPO",
    "rl": "GRPO",
}
FIGURES = {"greedy": 1.0, "sampled": 0.0, "gate's": 0.5}  # weight of greedy success


def report(seeds: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The tables in Markdown."""
    columns = [f"seed {seed}" for seed in seeds]
    known = [name for name in LABELS if any(name in found for found in seeds.values())]
    for split, title in zip(SPLITS, ("the 200 held-out tasks", "the 100 tasks of the harder tier"), strict=True):
        rows = [
            [LABELS[name], *(_rates(found[name]["tasks"][split]) if name in found else "–" for found in seeds.values())]
            for name in known
        ]
        yield f"Success on {title}, greedy / sampled:\n\n{table(['policy', *columns], rows)}\n"
    gains = [
        [f"{LABELS[name]}, {figure}", *(_gain(found, name, weight) for found in seeds.values())]
        for name in known
        for figure, weight in FIGURES.items()
        if name != "rl"
    ]
    said = (
        "GRPO minus each policy without it on the held-out tasks, in points, with 95% intervals over tasks, for these adapters:"
    )
    yield f"{said}\n\n{table(['policy', *columns], gains)}\n"
    yield from over_seeds(seeds)
    said = "The same by family, in the gate's figure (half greedy, half sampled):"
    yield f"{said}\n\n{table(['policy', 'family', *columns], [*_families(seeds, known)])}\n"
    said = "Held-out success by whether a training desk words it so, and by the orders to change, greedy / sampled (tasks):"
    yield f"{said}\n\n{table(['policy', 'words', 'orders', *columns], [*_by_kind(seeds, known)])}\n"
    head = ["GRPO, from nothing", "minutes", "peak GB", "warm start", "rollouts", "updates", "evaluations", "date", "doctor"]
    yield table(head, [_cost(seed, found["rl"]) for seed, found in seeds.items() if "rl" in found]) + "\n"


def over_seeds(seeds: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The methods over seeds, in the gate's figure on the held-out tasks."""
    everywhere = [name for name in LABELS if all(name in found for found in seeds.values())]
    if len(seeds) < 2:
        return
    results = {name: [pd.DataFrame(found[name]["tasks"][SPLITS[0]]) for found in seeds.values()] for name in everywhere}
    pairs = [("rl", name) for name in everywhere if name != "rl"]
    pairs += [(name, WARM_START) for name in ("rejection_sampling", "dpo") if name in everywhere]
    found = {
        f"{LABELS[one]} minus {LABELS[other]}": compared(results[one], results[other])
        for one, other in pairs
        if {one, other} <= set(everywhere)
    }
    said = "The methods over seeds, in the gate's figure on the held-out tasks (95% intervals, 80% power; `methods.py`):"
    yield f"{said}\n\n{method_table(found)}\n"


def ablation_report(seeds: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Each ablation beside the loop as it is on the same kind of machine, where that ran."""
    for seed, found in seeds.items():
        rows = []
        for name in sorted(found, key=[WARM_START, AS_IT_IS, ON_TWO_CORES, *ABLATIONS].index):
            updates, last = found[name]["updates"], (found[name]["updates"] or [{}])[-1]
            cells = []
            beside = _as_it_is(found, name)
            for split in SPLITS:
                cells.append(_rates(found[name]["tasks"][split]))
                cells.append(_gain(found, beside, 0.5, better=name, split=split) if name != beside else "")
            shares = [f"{1 - sum(each['zero_variance_share'] for each in updates) / len(updates):.0%}"] if updates else [""]
            rows.append([LABELS.get(name, name), found[name]["device"], *cells, *shares, last.get("grad_norm")])
        against = "minus as it is, points"
        head = [f"seed {seed}", "on", "held-out", against, "harder tier", against, "mixed groups", "gradient norm"]
        yield table(head, rows) + "\n"
        yield from _worth_of_mask(found)


def _worth_of_mask(found: dict[str, Any]) -> Iterator[str]:
    """All loops without the action mask together, beside all those as it is: one of each is as much luck as mask."""
    with_mask, without = ([name for name in names if name in found] for names in (MASK, NO_MASK))
    if not with_mask or not without:
        return
    by_split = []
    for split in SPLITS:
        after, before = (
            together([pd.DataFrame(found[name]["tasks"][split]) for name in each]) for each in (without, with_mask)
        )
        by_split.append({row["family"]: points(row) for row in paired_differences(after, before, greedy_weight=0.5)["rows"]})
    said = f"The loops without the action mask together ({len(without)}) minus those as it is ({len(with_mask)}), in points:"
    rows = [[family, *(rows[family] for rows in by_split)] for family in by_split[0]]
    yield f"{said}\n\n{table(['family', 'held-out', 'harder tier'], rows)}\n"


def _as_it_is(found: dict[str, Any], name: str) -> str:
    """Which run of the loop as it is an ablation is compared with; the one on two cores itself with the other."""
    on_cpu = found[name]["device"] == "cpu" and name != ON_TWO_CORES and ON_TWO_CORES in found
    return ON_TWO_CORES if on_cpu else AS_IT_IS


def _cost(seed: str, found: dict[str, Any]) -> list[Any]:
    minutes = [found["seconds"][stage] / 60 for stage in ("warm_start", "rollout", "update", "evaluate")]
    doctor = ", ".join(f"{item['check']} ({item['severity']})" for item in found["doctor"])
    return [f"seed {seed}", found["wall_s"] / 60, found["peak_gb"], *minutes, found["machine"]["date"], doctor or "healthy"]


def _rates(tasks: dict[str, list[Any]] | pd.DataFrame) -> str:
    frame = pd.DataFrame(tasks)
    sampled = frame["sampled_successes"].sum() / max(frame["sampled_attempts"].sum(), 1)
    return f"{frame['greedy'].mean():.3f} / {sampled:.3f}"


def _gain(found: dict[str, Any], name: str, weight: float, better: str = "rl", split: str = SPLITS[0]) -> str:
    """By how much another policy, RL unless named, is better than the policy `name`."""
    if name not in found or better not in found:
        return "–"
    return points(_differences(found, name, weight, better, split)[0])


def _differences(
    found: dict[str, Any], name: str, weight: float, better: str = "rl", split: str = SPLITS[0]
) -> list[dict[str, Any]]:
    """The paired differences on a split, the first of all families, then by family."""
    after, before = (pd.DataFrame(found[key]["tasks"][split]) for key in (better, name))
    return list(paired_differences(after, before, greedy_weight=weight)["rows"])


def _families(seeds: dict[str, dict[str, Any]], policies: list[str]) -> Iterator[list[str]]:
    for name in policies:
        by_family: dict[str, dict[str, str]] = {}
        for seed, found in seeds.items():
            if name in found and name not in ("base", "rl"):
                for row in _differences(found, name, 0.5):
                    by_family.setdefault(row["family"], {})[seed] = points(row)
        yield from ([LABELS[name], family, *(cells.get(seed, "–") for seed in seeds)] for family, cells in by_family.items())


def _by_kind(seeds: dict[str, dict[str, Any]], policies: list[str]) -> Iterator[list[str]]:
    kinds = kinds_of_tasks()
    for name in policies:
        tasks = [pd.DataFrame(found[name]["tasks"]["held_out"]) if name in found else None for found in seeds.values()]
        if any(not kinds.keys() >= set(each["task_id"]) for each in tasks if each is not None):
            raise SystemExit("the results are of an earlier desk, and their tables stay as they are: run the policies again")
        for words, orders in sorted(set(kinds.values())):
            cells = []
            for each in tasks:
                mine = each if each is None else each[[kinds[task] == (words, orders) for task in each["task_id"]]]
                cells.append("–" if mine is None else f"{_rates(mine)} ({len(mine)})")
            yield [LABELS[name], words, orders, *cells]


def kinds_of_tasks() -> dict[str, tuple[str, str]]:
    """For each task of both worlds' logs, whether training words requests so, and how many orders its solution changes."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # the repository, for `data`
    from data.order_desk_logs import log_lines

    desk, found = OrderDeskEnvironment(), {}
    for line in [*log_lines(), *log_lines(noisy=True)]:
        with suppress(ValueError, LookupError, TypeError, DataError):  # a few lines are malformed
            record = json.loads(line)
            prompt = next(message["content"] for message in record["messages"] if message["role"] == "user")
            task = desk.task_from_log(prompt, record["environment"])
            changed = len(wanted(task.initial_state, task.goal))
            found[task.id] = ("other" if is_paraphrase(prompt) else "known", "1" if changed == 1 else "2 or 3")
    return found


def plot(seeds: dict[str, dict[str, Any]], path: Path) -> None:
    """Validation over the iterations, and held-out success of every policy with its seeds as points."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (curves, bars) = plt.subplots(1, 2, figsize=(11, 4.2))
    names = [name for name in LABELS if any(name in found for found in seeds.values())]
    for number, (seed, found) in enumerate(seeds.items()):
        validation = found["rl"]["validation"]
        steps = sorted(map(int, validation))
        for mode, style in (("greedy", "-"), ("sampled", "--")):
            curves.plot(
                steps, [validation[str(step)][mode] for step in steps], style, color=f"C{number}", label=f"seed {seed}, {mode}"
            )
        for mode, marker in (("greedy", "o"), ("sampled", "x")):
            rates = [
                _rates(found[name]["tasks"]["held_out"]).split(" / ")[mode == "sampled"] if name in found else "nan"
                for name in names
            ]
            bars.plot(
                [place + 0.12 * number for place in range(len(names))],
                [*map(float, rates)],
                marker,
                color=f"C{number}",
                label=f"seed {seed}, {mode}",
            )
    curves.xaxis.get_major_locator().set_params(integer=True)
    curves.set(xlabel="iteration", ylabel="success", title="validation tasks", ylim=(0, 1))
    bars.set(title="200 held-out tasks", ylim=(0, 1))
    bars.set_xticks(range(len(names)), [LABELS[name] for name in names], rotation=25, ha="right", fontsize=8)
    for axis in (curves, bars):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="lower right", ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
