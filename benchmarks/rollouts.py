"""Multi-turn rollouts: ours, TRL's GRPOTrainer, and plain batched `generate`, on the same scripted episodes.

    python benchmarks/rollouts.py                    # turns 2 to 32, groups 4 to 16, 16 to 256 episodes at once
    python benchmarks/rollouts.py --quick            # 8 turns, and how our cost grows with turns
    python benchmarks/rollouts.py --threads 2 --turns 8 --groups 8 --concurrencies 64

Each side is a process of its own on `--threads` threads; repetitions are interleaved, medians count.
CPU seconds are those of the process and its children. Each side is described at its function in
`rollouts_sides.py`; TRL runs in each of `TRL_SETTINGS` once, and in the cheapest from then on.
Prints JSON and tables; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table
from rollouts_workload import Workload, write_policy

SIDES = Path(__file__).parent / "rollouts_sides.py"
# GRPOTrainer's ways to generate without a GPU: its default, transformers' continuous batching, a static cache.
# With its own choice of cache and batch sizes continuous batching took six times as long here.
CONTINUOUS_BATCHING = {"num_blocks": 512, "page_size": 32, "max_batch_tokens": 2048, "max_requests_per_batch": 256}
TRL_SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "continuous batching": {
        "use_transformers_continuous_batching": True,
        "transformers_continuous_batching_config": CONTINUOUS_BATCHING,
    },
    "static cache": {"cache_implementation": "static"},
}
QUICK_REPETITIONS, QUICK_TURNS = 3, (4, 16)
LABELS = {
    "ours": "Tracewheel, transformers",
    "ours_vllm": "Tracewheel, vLLM",
    "trl": "TRL GRPOTrainer",
    "continuous_batching": "transformers, continuous batching",
    "prefill_each_turn": "plain generate, prefill each turn",
    "prefill_uncounted": "plain generate, its prefill not counted",
    "one_go": "plain generate, one go without observations",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--groups", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--concurrencies", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--observation", type=int, default=8, help="tokens of text that come back after a call")
    parser.add_argument("--sides", nargs="+", choices=list(LABELS), default=list(LABELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--enough", type=float, default=60.0, help="wall seconds of one side at one point, after two repetitions"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = measure(arguments)
    emit(result, tables(result), arguments.json)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every point of the sweeps, and the figures derived from them."""
    middle = Workload(observation=arguments.observation)
    sides = [side for side in arguments.sides if side != "ours_vllm" or (find_spec("vllm") and not arguments.quick)]
    result: dict[str, Any] = {"machine": machine(arguments.threads), "middle": asdict(middle)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_policy(Path("data/base"), folder)
        if "trl" in sides and not arguments.quick:
            result["trl_settings"] = _trl_settings(folder, middle, arguments)
        best = min(result.get("trl_settings", {"default": 0.0}).items(), key=lambda pair: pair[1] or math.inf)[0]
        result["trl_setting"] = best
        running = {side: Side(side, folder, arguments.threads, TRL_SETTINGS[best]) for side in sides}
        try:
            if arguments.quick:
                arguments.repetitions = min(arguments.repetitions, QUICK_REPETITIONS)
                result["turns"] = [_point(running, middle, arguments)]
                ours = {"ours": running["ours"]}
                grown = [_point(ours, replace(middle, turns=turns), arguments) for turns in QUICK_TURNS]
                result["turns"] = sorted([*result["turns"], *grown], key=lambda point: point["workload"]["turns"])
            else:
                result["turns"] = [_point(running, replace(middle, turns=turns), arguments) for turns in arguments.turns]
                result["groups"] = [
                    _point(running, replace(middle, group=group), arguments)
                    for group in arguments.groups
                    if group != middle.group
                ]
                result["concurrencies"] = [
                    _point(running, replace(middle, concurrency=episodes), arguments)
                    for episodes in arguments.concurrencies
                    if episodes != middle.concurrency
                ]
        finally:
            for side in running.values():
                side.end()
    result["ratios"] = ratios(result["turns"], middle)
    result["exponents"] = {side: exponent(result["turns"], side) for side in sides}
    return result


class Side:
    """One side's process, which answers a workload with the figures of one rollout."""

    def __init__(self, side: str, folder: Path, threads: int, trl_setting: dict[str, Any]) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "ours": {"kind": "transformers"},
            "ours_vllm": {"kind": "vllm"},
            "trl": trl_setting,
            "continuous_batching": CONTINUOUS_BATCHING,
        }
        command = [sys.executable, str(SIDES), side, str(folder), str(threads), json.dumps(kinds.get(side, {}))]
        self.name = side
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `end`)
        self._process = subprocess.Popen(
            command,
            env=environment(threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def roll(self, workload: Workload) -> dict[str, float]:
        """One rollout.

        Raises:
            RuntimeError: the process ended; the message has the end of its output.
        """
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(asdict(workload)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"{self.name}: {self._errors.read()[-2000:]}")
        figures: dict[str, float] = json.loads(line)
        return figures

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def _trl_settings(folder: Path, workload: Workload, arguments: argparse.Namespace) -> dict[str, float | None]:
    """CPU seconds of TRL's generation in each setting, median of three; None where it fails."""
    found: dict[str, float | None] = {}
    for name, setting in TRL_SETTINGS.items():
        side = Side("trl", folder, arguments.threads, setting)
        try:
            found[name] = statistics.median(side.roll(workload)["cpu_s"] for _ in range(3))
        except RuntimeError as error:
            print(f"TRL, {name}: {error}", file=sys.stderr)
            found[name] = None
        finally:
            side.end()
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def _point(running: dict[str, Side], workload: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    """All sides on one workload, in turns; the median of each."""
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in running}
    for number in range(arguments.repetitions):
        for name, side in running.items():
            spent = sum(run["wall_s"] for run in runs[name])
            if number < 2 or spent < arguments.enough:
                runs[name].append(side.roll(workload))
    point: dict[str, Any] = {"workload": asdict(workload), "sides": {}}
    for name, repetitions in runs.items():
        middle = {key: statistics.median(run[key] for run in repetitions) for key in ("cpu_s", "wall_s")}
        episodes, generated = repetitions[0]["episodes"], repetitions[0]["generated"]
        point["sides"][name] = {
            **middle,
            "repetitions": len(repetitions),
            "generated": generated,
            "episodes_per_cpu_s": episodes / middle["cpu_s"],
            "episodes_per_s": episodes / middle["wall_s"],
            "tokens_per_cpu_s": generated / middle["cpu_s"],
            "tokens_per_s": generated / middle["wall_s"],
        }
    print(json.dumps(point), file=sys.stderr, flush=True)
    return point


def ratios(points: list[dict[str, Any]], middle: Workload) -> dict[str, float]:
    """Ours over each other side at the middle workload, in episodes and generated tokens per CPU second."""
    sides = next((point["sides"] for point in points if point["workload"] == asdict(middle)), {})
    ours = sides.get("ours")
    if ours is None:
        return {}
    return {
        f"ours/{name}, {what}": round(ours[key] / side[key], 3)
        for name, side in sides.items()
        if name != "ours"
        for what, key in (("episodes per CPU second", "episodes_per_cpu_s"), ("tokens per CPU second", "tokens_per_cpu_s"))
    }


def exponent(points: list[dict[str, Any]], side: str) -> float | None:
    """The power of the turns by which an episode's CPU seconds grow: least squares in logarithms."""
    known = [(math.log(each["workload"]["turns"]), each["sides"].get(side)) for each in points]
    pairs = [(x, -math.log(figures["episodes_per_cpu_s"])) for x, figures in known if figures]
    if len({x for x, _ in pairs}) < 2:
        return None
    centre_x, centre_y = (statistics.mean(values) for values in zip(*pairs, strict=True))
    return round(sum((x - centre_x) * (y - centre_y) for x, y in pairs) / sum((x - centre_x) ** 2 for x, _ in pairs), 3)


def tables(result: dict[str, Any]) -> str:
    """Episodes and tokens per CPU second and per second, a table for each sweep."""
    parts = []
    for sweep, key in (("turns", "turns"), ("groups", "group"), ("concurrencies", "concurrency")):
        points = result.get(sweep) or []
        for point in points:
            rows = [
                [LABELS[name], *(side[figure] for figure in _FIGURES), 1000 / side["episodes_per_cpu_s"]]
                for name, side in point["sides"].items()
            ]
            parts += [f"{key} {point['workload'][key]}", table(["side", *_FIGURES.values(), "CPU ms an episode"], rows)]
    parts.append("Power of the turns: " + ", ".join(f"{LABELS[side]} {power}" for side, power in result["exponents"].items()))
    parts.append("Ratios: " + ", ".join(f"{name} {ratio}" for name, ratio in result["ratios"].items()))
    return "\n\n".join(parts)


_FIGURES = {
    "episodes_per_cpu_s": "episodes/CPU s",
    "episodes_per_s": "episodes/s",
    "tokens_per_cpu_s": "tokens/CPU s",
    "tokens_per_s": "tokens/s",
}


if __name__ == "__main__":
    main()
