"""Trees beside groups, the process model's calibration, and credit of turns, on the tiny workspace at equal sampled tokens.

    python plugins/search/benchmarks/compare.py pairs --work /tmp/search --seeds 0 1 2
    python plugins/search/benchmarks/compare.py process --work /tmp/search
    python plugins/search/benchmarks/compare.py process-long --work /tmp/search
    python plugins/search/benchmarks/compare.py credit --work /tmp/search --seeds 0 1 2
    python plugins/search/benchmarks/compare.py table

All arms of a study start from one warm start and play the same tasks in the same rounds. In each round the arm of groups
samples 8 episodes of each task; what it sampled is the budget of the others. Every finished arm is a line of
`results/outcomes.jsonl`, with the success of each held-out task, and is not computed again. `table` writes `results/search.md`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tracewheel import (
    CurateSections,
    EvaluateSections,
    RetrainConfig,
    RolloutSections,
    Score,
    ScoreSections,
    Task,
    Trajectory,
    UpdateFiles,
    UpdateSections,
    WarmStartSections,
    curate,
    evaluate_split,
    ingest,
    load_config,
    load_tasks,
    policy_of,
    read_records,
    read_scores,
    roll_out,
    score,
    success_of,
    update,
    warm_start,
    write_records,
)
from tracewheel_search.continuing import Player
from tracewheel_search.pairs import SCORES, TRAJECTORIES, PairSettings, write_pairs
from tracewheel_search.process_model import HiddenStates, ProcessModel, steps_of, train
from tracewheel_search.searching import Search, SearchSettings, tree_of_group
from tracewheel_search.step_values import StepSettings, step_values
from tracewheel_search.turn_credit import credited

RESULTS = Path(__file__).parent / "results"
OUTCOMES = RESULTS / "outcomes.jsonl"
ROUNDS, TASKS = 3, 16
LONG = 3  # the tier from which a solution has six turns or more
ARMS = {"pairs": ("groups", "trees", "group_turns"), "credit": ("trajectory", "process_model")}
REPLAY = "gradient_checkpointing: false, replay_path: data/base/replay.parquet"
DPO = [f"learner={{kind: dpo, learning_rate: 0.001, minibatches: 2, {REPLAY}}}"]
# Every arm plays the tasks as they are: noise of a rollout would make its episodes others than those that are played again.
PLAIN = ["threads=1", "rollout.exploration.environment_args={}"]
GRADIENT = ["learner.kind=grpo", "learner.minibatches=2", "learner.advantage.scale=false"]


class Study:
    """The folders that all arms share, and how a round is played.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self.config = load_config("configs/tiny.yaml", [*PLAIN, "evaluation.samples=1", "evaluation.pass_at=[1]"])
        self.curated, self.start = work / "curated", work / "warm"
        if not (self.start / "adapter").is_dir():
            ingest(self.config.ingest, _made(work / "ingested"))
            curate(CurateSections.of(self.config), work / "ingested", _made(self.curated))
            warm_start(WarmStartSections.of(self.config), self.curated, _made(self.start), "all")
        self.tasks = load_tasks(self.curated, "train")

    def arm(self, study: str, arm: str, seed: int) -> dict[str, Any]:
        """Train an arm for some rounds; returns its outcome."""
        began = time.process_time()
        state, rounds = self.start, []
        choices = DPO if study == "pairs" else GRADIENT + ([] if arm == "trajectory" else TURN_CREDIT)
        config = load_config("configs/tiny.yaml", [*PLAIN, f"seed={seed}", *choices])
        allowed = [task for task in self.tasks if study == "pairs" or task.tier >= LONG]
        model: ProcessModel | None = None
        for number in range(1, ROUNDS + 1):
            tasks = random.Random(f"{study}-{seed}-{number}").sample(allowed, TASKS)
            out = _made(self.work / f"{study}-{arm}-{seed}-{number}")
            budget = self.budget(study, seed, number)
            if arm in ("groups", "group_turns", "trajectory"):
                figures = self.groups(config, state, tasks, number, out)
                if arm == "group_turns":
                    out, figures = self.group_turns(out, figures)
            elif arm == "trees":
                out, figures = self.trees(config, state, tasks, number, out, budget)
            else:
                figures, model = self.process(config, state, tasks, number, out, budget, model)
            after = _made(self.work / f"{study}-{arm}-{seed}-{number}-state")
            files = UpdateFiles([out / TRAJECTORIES], [out / SCORES], state, self.start / "adapter", after)
            learnt = update(UpdateSections.of(config), files, iteration=number)
            kept = {
                name: learnt[name] for name in ("pairs", "steps", "kept_rows", "loss", "preference_accuracy") if name in learnt
            }
            rounds.append({**figures, **kept})
            state = after
            if arm in ("groups", "trajectory"):
                (self.work / f"budget-{study}-{seed}-{number}.json").write_text(json.dumps(figures["sampled_tokens"]))
            print(f"{study} {arm} seed {seed} round {number}: {rounds[-1]}", flush=True)
        tokens = sum(each["sampled_tokens"] for each in rounds)
        found = {"study": study, "arm": arm, "seed": seed, "rounds": rounds, "sampled_tokens": tokens}
        found["cpu_seconds"] = round(time.process_time() - began, 1)
        return {**found, **self.held_out(state, f"{study}-{arm}-{seed}")}

    def budget(self, study: str, seed: int, number: int) -> int:
        """The tokens that the arm of groups sampled in a round."""
        file = self.work / f"budget-{study}-{seed}-{number}.json"
        return int(json.loads(file.read_text())) if file.is_file() else 0

    def groups(self, config: RetrainConfig, state: Path, tasks: list[Task], number: int, out: Path) -> dict[str, Any]:
        """Groups of 8 episodes, scored."""
        policy = policy_of(state, config.policy.base)
        ids = [task.id for task in tasks]
        figures = roll_out(RolloutSections.of(config), policy, self.curated, ids, out, iteration=number)
        scored = score(ScoreSections.of(config), self.tasks, out / TRAJECTORIES, out)
        return {"sampled_tokens": figures["generated_tokens"], "success": scored["success"]}

    def group_turns(self, out: Path, figures: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
        """Pairs of turns from groups whose episodes parted."""
        trajectories, scores = read_records(out / TRAJECTORIES, Trajectory), read_scores(out / SCORES)
        trees = {}
        for name in sorted({each.task_id for each in trajectories}):
            own = [(each, success_of(item)) for each, item in zip(trajectories, scores, strict=True) if each.task_id == name]
            trees[name] = tree_of_group([each for each, _ in own], [value for _, value in own])
        known = {each.id: each for each in trajectories}
        made = write_pairs(out / "pairs", trees, known, PairSettings(visits=1))
        return out / "pairs", {**figures, "pair_margin": made["margin"], "pair_turn": made["turn"]}

    def trees(
        self, config: RetrainConfig, state: Path, tasks: list[Task], number: int, out: Path, budget: int
    ) -> tuple[Path, dict[str, Any]]:
        """Pairs of turns from tree search."""
        player = Player(RolloutSections.of(config), policy_of(state, config.policy.base), TASKS)
        search = Search(config, player, tasks, SearchSettings(budget=budget, seed=number), out)
        found = search.run()
        made = write_pairs(out / "pairs", search.trees, search.trajectories, PairSettings())
        return out / "pairs", {
            "sampled_tokens": found["sampled_tokens"],
            "success": found["mean_value"],
            "simulations": found["simulations"],
            "pair_margin": made["margin"],
            "pair_turn": made["turn"],
        }

    def process(
        self,
        config: RetrainConfig,
        state: Path,
        tasks: list[Task],
        number: int,
        out: Path,
        budget: int,
        model: ProcessModel | None,
    ) -> tuple[dict[str, Any], ProcessModel]:
        """Groups whose turns get the change of the process model's values; the first round pays for the model's tries."""
        policy = policy_of(state, config.policy.base)
        hidden = HiddenStates(config, policy)
        if model is None:
            figures = self.groups(config, state, tasks[: TASKS // 2], number, out)
            left = max(1, budget - figures["sampled_tokens"])
            values, tried = self.tries(config, policy, out, StepSettings(budget=left, continuations=2), out / "tries")
            features = {each.id: hidden.of(each) for each in read_records(out / TRAJECTORIES, Trajectory)}
            model, told = train(steps_of(values, features), number)
            figures["sampled_tokens"] += tried["sampled_tokens"]
            figures |= {
                "steps_tried": tried["steps"],
                "brier": told["brier"],
                "brier_by_turn_alone": told["brier_by_turn_alone"],
            }
        else:
            figures = self.groups(config, state, tasks, number, out)
        trajectories = read_records(out / TRAJECTORIES, Trajectory)
        values = {each.id: dict(enumerate(model.values(hidden.of(each)).tolist())) for each in trajectories if each.turns}
        scores = credited(read_scores(out / SCORES), values, {each.id: len(each.turns) for each in trajectories})
        write_records(out / SCORES, scores, Score)
        return figures, model

    def tries(self, config: RetrainConfig, policy: Any, out: Path, settings: StepSettings, scratch: Path) -> tuple[Any, Any]:
        """The values of the steps of the episodes in a folder."""
        trajectories, scores = read_records(out / TRAJECTORIES, Trajectory), read_scores(out / SCORES)
        episodes = [(each, success_of(item)) for each, item in zip(trajectories, scores, strict=True)]
        random.Random(0).shuffle(episodes)  # or the budget would go to the first tasks
        player = Player(RolloutSections.of(config), policy, 128)
        return step_values(config, player, {task.id: task for task in self.tasks}, episodes, settings, scratch)

    def held_out(self, state: Path, name: str) -> dict[str, Any]:
        """Success on the held-out tasks, greedy and sampled, each task's mean, and that of the long ones."""
        out = _made(self.work / f"{name}-held-out")
        evaluate_split(
            EvaluateSections.of(self.config), policy_of(state, self.config.policy.base), self.curated, "held_out", out
        )
        by_task: dict[str, list[float]] = {}
        for file in sorted(out.rglob(SCORES)):
            for item in read_scores(file):
                if item.total is not None:
                    by_task.setdefault(item.task_id, []).append(success_of(item))
        means = {task: sum(values) / len(values) for task, values in sorted(by_task.items())}
        long = {task.id for task in load_tasks(self.curated, "held_out") if task.tier >= LONG}
        rates = [value for task, value in means.items() if task in long]
        return {"held_out": sum(means.values()) / len(means), "held_out_long": sum(rates) / len(rates), "tasks": means}

    def calibration(self, study: str) -> dict[str, Any]:
        """The process model of the warm start's policy, tested on other tasks; `process-long`: long ones, twice the tries."""
        began, long = time.process_time(), study == "process-long"
        config = self.config
        policy = policy_of(self.start, config.policy.base)
        out = self.work / study
        if not (out / SCORES).is_file():
            allowed = [task for task in self.tasks if task.tier >= LONG or not long]
            self.groups(config, self.start, allowed[:48], 1, _made(out))
        values, tried = self.tries(config, policy, out, StepSettings(budget=80_000 if long else 40_000), out / "tries")
        write = {each.trajectory: each for each in values}
        hidden = HiddenStates(config, policy)
        known = [each for each in read_records(out / TRAJECTORIES, Trajectory) if each.id in write]
        _, figures = train(steps_of(values, {each.id: hidden.of(each) for each in known}), 0)
        rows = [asdict(each) for each in values if each.tried]
        file = RESULTS / ("step_values_long.jsonl" if long else "step_values.jsonl")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        seconds = round(time.process_time() - began, 1)
        return {"study": study, "arm": "", "seed": 0, **tried, **figures, "cpu_seconds": seconds}


TURN_CREDIT = ["learner.credit.kind=turn", "learner.credit.discount=0"]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def outcomes() -> list[dict[str, Any]]:
    """What was computed so far."""
    return [json.loads(line) for line in OUTCOMES.read_text().splitlines()] if OUTCOMES.is_file() else []


def note(outcome: dict[str, Any]) -> None:
    """Keep an outcome."""
    RESULTS.mkdir(exist_ok=True)
    with OUTCOMES.open("a") as file:
        file.write(json.dumps(outcome, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("start", "pairs", "process", "process-long", "credit", "table"))
    parser.add_argument("--work", type=Path, default=Path("runs/search"), help="folder for what is computed")
    parser.add_argument(
        "--arms", nargs="+", default=sum(ARMS.values(), ()), help="only these, the first of a study before others"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    if options.study == "table":
        from tables import write_table

        write_table(outcomes(), RESULTS / "search.md")
        return
    study, done = Study(options.work), {(each["study"], each["arm"], each["seed"]) for each in outcomes()}
    if options.study not in ARMS:
        if (options.study, "", 0) not in done:
            started = {"study": "start", "arm": "", "seed": 0}
            found = study.held_out(study.start, "start") if options.study == "start" else study.calibration(options.study)
            note(started | found)
        return
    for seed in options.seeds:
        for arm in ARMS[options.study]:
            if arm in options.arms and (options.study, arm, seed) not in done:
                note(study.arm(options.study, arm, seed))


if __name__ == "__main__":
    main()
