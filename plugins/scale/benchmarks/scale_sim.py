"""What a cluster would do: throughput, utilisation and cost from 1 to 1,000 GPUs, and where each bottleneck appears.

    python scale_sim.py --out benchmarks/results/scale_sim.json --plot benchmarks/results/scale.png
    python scale_sim.py --model 32B --full --set gpu.update_share=0.4 network.node=25e9
    python scale_sim.py --grow                # the batch grows with the cluster

Rates come from `scale_rates.json`, each with its source; rates that could not be measured are marked as assumed. Episodes are
played one by one (`scale_events.py`), because the tail of a synchronous batch comes from their lengths and tools.
The bottleneck is the part that, twice as fast, would raise the throughput the most.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from measuring import emit, table
from scale_cluster import MODELS, Costs, Model, Pools, Rates
from scale_modes import MODES, Plant, Tally, simulate
from scale_workload import Workload

RATES = Path(__file__).with_name("scale_rates.json")
GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1000)
LEARNER_SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4)
WORTH = 1.05  # a gain below this is none


def plant_of(costs: Costs, pools: Pools, workload: Workload) -> Plant:
    """The durations of the events on a cluster."""
    rates, model = costs.rates, costs.model
    weighted = workload.mean_tokens[2]
    replicas = pools.generation // model.tensor_parallel
    sessions = costs.sessions(weighted)
    first_s, each_s = costs.decode(weighted / 2)  # a sequence is half as long on average as it is at its end
    share = -(-workload.episodes // max(1, replicas))
    return Plant(
        replicas=replicas,
        # No more places than there are episodes to fill them, and as many as the memory holds.
        sessions=min(sessions, 4 * share),
        batch=int(rates["gpu.batch"]),
        first_s=first_s,
        each_s=each_s,
        prefill_s=costs.prefill_s(),
        turn_s=0.0,
        cores=pools.cores,
        core_turn_s=(workload.cpu_s + rates["worker.turn_s"]) / rates.times("cores") - workload.cpu_s,
        tool_share=1 / rates.times("tools"),
        update_s=lambda tokens: costs.update_s(tokens, pools.learner),
        driver_s=lambda tokens: costs.driver_s(workload.episodes, 0, tokens, pools.learner),
        publish_s=costs.publish_s(pools.generation),
        swap_s=costs.swap_s(),
        queue_s=rates["driver.queue_s"] / rates.times("driver"),
    )


def splits(gpus: int, mode: str, model: Model, cores: int) -> Iterator[Pools]:
    """Ways to divide the GPUs: in sync all do both in turn, else some generate and some learn."""
    if mode == "sync":
        yield Pools(gpus, gpus, cores, shared=True)
        return
    learners = sorted({max(1, round(gpus * share)) for share in LEARNER_SHARES})
    for learner in learners:
        generation = (gpus - learner) // model.tensor_parallel * model.tensor_parallel
        if generation:
            yield Pools(generation, gpus - generation, cores)


def figures(tally: Tally, costs: Costs, pools: Pools, plant: Plant) -> dict[str, Any]:
    """Throughput, utilisation and cost of a simulated run."""
    hours = tally.seconds / 3600
    cost = hours * (pools.gpus * costs.rates["price.gpu_hour"] + pools.cores * costs.rates["price.core_hour"])
    return {
        "generation_gpus": pools.generation,
        "learner_gpus": pools.learner,
        "cores": pools.cores,
        "iteration_s": tally.seconds / tally.iterations,
        "episodes_per_s": tally.episodes / tally.seconds,
        "sampled_tokens_per_s": tally.sampled / tally.seconds,
        "trained_tokens_per_s": tally.tokens / tally.seconds,
        "utilisation": {
            "generation": tally.engine_busy_s / (tally.seconds * plant.replicas),
            "learner": tally.learner_busy_s / tally.seconds,
            "cores": tally.core_busy_s / (tally.seconds * pools.cores),
            "driver": tally.driver_busy_s / tally.seconds,
        },
        "usd_per_iteration": cost / tally.iterations,
        "usd_per_1000_episodes": 1000 * cost / tally.episodes,
        "last_half_of_batch_s": tally.tail_s / tally.iterations,
        "staleness_mean": sum(tally.staleness) / max(1, len(tally.staleness)),
        "staleness_max": max(tally.staleness, default=0),
        "stale_groups": tally.stale_groups,
    }


def run(costs: Costs, pools: Pools, mode: str, workload: Workload, options: dict[str, Any]) -> tuple[Tally, Plant]:
    plant = plant_of(costs, pools, workload)
    return simulate(mode, plant, workload, **options), plant


def point(costs: Costs, gpus: int, mode: str, workload: Workload, options: dict[str, Any]) -> dict[str, Any]:
    """One size of cluster in one mode: the best division of its GPUs, and what would make it faster."""
    cores = round(gpus * costs.rates["cores.per_gpu"])
    best: tuple[float, Pools, Tally, Plant] | None = None
    for pools in splits(gpus, mode, costs.model, cores):
        if pools.generation < costs.model.tensor_parallel or not costs.sessions(workload.mean_tokens[2]):
            continue
        tally, plant = run(costs, pools, mode, workload, options)
        rate = tally.episodes / tally.seconds
        if best is None or rate > best[0]:
            best = (rate, pools, tally, plant)
    shown = {"gpus": gpus, "mode": mode, "episodes": workload.episodes}
    if best is None:
        return shown | {"does_not_fit": True}
    rate, pools, tally, plant = best
    gains = {}
    for part in Rates.PARTS:
        quicker = replace(costs, rates=costs.rates.with_faster(part, 2.0))
        other, _ = run(quicker, pools, mode, workload, options)
        gains[part] = other.episodes / other.seconds / rate
    part = max(gains, key=lambda name: gains[name])
    return (
        shown
        | figures(tally, costs, pools, plant)
        | {"gains": gains, "bottleneck": part if gains[part] > WORTH else "none alone"}
    )


def sweep(
    costs: Costs, workload: Workload, options: dict[str, Any], *, gpus: list[int], grow: int, jobs: int
) -> list[dict[str, Any]]:
    """All sizes and modes. With `grow`, an iteration has at least so many episodes a GPU."""
    asked = []
    for count in gpus:
        tasks = max(workload.tasks, -(-grow * count // workload.group))
        asked += [(costs, count, mode, replace(workload, tasks=tasks), options) for mode in MODES]
    with Pool(jobs) as pool:
        return pool.starmap(point, asked, chunksize=1)


def shown_table(points: list[dict[str, Any]]) -> str:
    head = [
        "GPUs",
        "mode",
        "generate + learn",
        "s an iteration",
        "episodes/s",
        "trained tokens/s",
        "generation",
        "learner",
        "cores",
    ]
    rows = []
    for each in points:
        if "does_not_fit" in each:
            rows.append([str(each["gpus"]), each["mode"], "too few GPUs"] + [""] * 8)
            continue
        use = {name: f"{100 * each['utilisation'][name]:.0f}%" for name in ("generation", "learner", "cores")}
        split = "all, in turn" if each["mode"] == "sync" else f"{each['generation_gpus']} + {each['learner_gpus']}"
        rates = [each["iteration_s"], each["episodes_per_s"], each["trained_tokens_per_s"]]
        gain = f"{each['bottleneck']} ({max(each['gains'].values()):.2f})"
        rows.append([str(each["gpus"]), each["mode"], split, *rates, *use.values(), each["usd_per_1000_episodes"], gain])
    return table([*head, "USD per 1,000 episodes", "bottleneck (gain when twice as fast)"], rows)


def plot(points: list[dict[str, Any]], title: str, path: Path) -> None:
    """Episodes/s and cost against GPUs, with the bottleneck of each point."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5))
    for mode, colour in zip(MODES, ("tab:grey", "tab:blue"), strict=True):
        rows = [each for each in points if each["mode"] == mode and "does_not_fit" not in each]
        gpus = [each["gpus"] for each in rows]
        left.plot(gpus, [each["episodes_per_s"] for each in rows], marker="o", color=colour, label=mode)
        right.plot(gpus, [each["usd_per_1000_episodes"] for each in rows], marker="o", color=colour, label=mode)
        last = ""
        for each in rows:
            if each["bottleneck"] != last:
                last = each["bottleneck"]
                place = (each["gpus"], each["episodes_per_s"])
                offset = (0, 8) if mode == "async" else (0, -14)
                left.annotate(last, place, textcoords="offset points", xytext=offset, fontsize=7, color=colour, ha="center")
    for axes, label in ((left, "episodes/s (with what limits it)"), (right, "USD per 1,000 episodes")):
        axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel=label)
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="7B")
    parser.add_argument("--full", action="store_true", help="train every weight instead of an adapter")
    parser.add_argument("--gpus", type=int, nargs="+", default=list(GPUS))
    parser.add_argument("--tasks", type=int, default=128, help="groups an iteration")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--turns", type=float, default=8)
    parser.add_argument("--tool-s", type=float, default=1.0, help="mean seconds of a tool call")
    parser.add_argument(
        "--grow", type=int, nargs="?", const=32, default=0, help="at least so many episodes a GPU in an iteration"
    )
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=5, help="simulated iterations, two of them for warm-up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rates", type=Path, default=RATES)
    parser.add_argument("--set", nargs="*", default=[], metavar="RATE=VALUE", help="other values for rates")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="where the JSON goes; the table goes next to it")
    parser.add_argument("--plot", type=Path, help="where the plot goes")
    options = parser.parse_args()
    changes = {name: float(value) for name, _, value in (each.partition("=") for each in options.set)}
    costs = Costs(Rates.read(options.rates, changes), MODELS[options.model], options.full)
    workload = Workload(options.tasks, options.group, replace(Workload().turns, mean=options.turns))
    workload = replace(workload, tool_s=replace(workload.tool_s, mean=options.tool_s))
    settings = {"iterations": options.iterations, "staleness": options.staleness, "seed": options.seed}
    points = sweep(costs, workload, settings, gpus=options.gpus, grow=options.grow, jobs=options.jobs)
    result = {
        "model": asdict(costs.model),
        "weights": "full" if options.full else "lora",
        "workload": {key: value for key, value in asdict(workload).items() if key != "recorded"},
        "settings": settings | {"grow": options.grow, "changed": changes},
        "rates": json.loads(options.rates.read_text()),
        "points": points,
    }
    emit(result, shown_table(points), options.out)
    if options.plot:
        batch = "a batch that grows" if options.grow else f"{workload.episodes} episodes an iteration"
        plot(points, f"{costs.model.name}, {result['weights']}, {batch} (predicted)", options.plot)


if __name__ == "__main__":
    main()
