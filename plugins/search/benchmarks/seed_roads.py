"""The roads of one seed: how each goes from the warm start to where its tokens end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from lost_worlds import WORLDS
from measuring import cpu_seconds
from stage_loop import curated_logs, stage_loop, warm_started

from plugins.prompts.benchmarks.edits import ChatEndpoint, edit
from tracewheel import (
    EvaluateSections,
    RetrainConfig,
    RolloutSections,
    SamplerSections,
    Score,
    ScoreSections,
    Trajectory,
    UpdateFiles,
    UpdateSections,
    decide_gate,
    digest_of,
    evaluate_split,
    load_config,
    load_tasks,
    make_sampler,
    observe_scores,
    policy_of,
    read_records,
    read_scores,
    score,
    update,
    write_records,
)
from tracewheel_prompts.optimising import Optimising
from tracewheel_prompts.players import LocalPlayer, curated_under, prompted
from tracewheel_prompts.prompt import Prompt
from tracewheel_prompts.settings import PromptSettings
from tracewheel_search.continuing import Player
from tracewheel_search.exploring import Schedule, explore
from tracewheel_search.hindsight import never_trained_on, relabelled
from tracewheel_search.pairs import SCORES, TRAJECTORIES, PairSettings, write_pairs
from tracewheel_search.replay import ReplaySettings, most_stale, replayed
from tracewheel_search.searching import Search, SearchSettings
from tracewheel_search.tool_bonus import with_bonus
from tracewheel_selfplay.self_play import SelfPlay, taught_to_propose

ROOT = Path(__file__).parents[3]
PROFILE, CHALLENGER = "configs/tiny.yaml", str(ROOT / "plugins/selfplay/configs/challenger.yaml")
START, ROUNDS, MOST_ROUNDS = "warm start", 3, 64
# Every road plays the tasks as they are, since a search plays them again. One gate: each verdict is a comparison of its own.
COMMON = [
    "threads=1", "rollout.exploration.environment_args={}", "training.tasks_per_iteration=16", "gate.gates_per_year=1",
    f"training.iterations={MOST_ROUNDS}",
]  # fmt: skip
LOST_WORLD = WORLDS["workspace"]
LOST_SETTINGS = [*LOST_WORLD.settings, "sampler.kind=uniform"]
EXPLORED = Schedule(start=0.2, over=8)
DPO = "kind: dpo, minibatches: 2, gradient_checkpointing: false"
LEARNERS = {
    "rejection sampling": ["learner.kind=rejection_sampling", "learner.kl=0"],
    "hindsight": [
        "learner.kind=rejection_sampling",
        "learner.kl=0",
        "learner.off_policy={proximal: recompute, correction: truncate}",
    ],
    "GRPO": ["learner.kind=grpo"],
    "GRPO, steps doubled": ["learner.kind=grpo", "learner.minibatches=8"],
    "GRPO with replay": [
        "learner.kind=grpo",
        "learner.minibatches=8",
        "learner.off_policy={proximal: recompute, correction: truncate, max_staleness: 4}",
    ],
    "GRPO, tool bonus": ["learner.kind=grpo"],
    "GRPO, epsilon-tool": ["learner.kind=grpo"],
    "trees, DPO": [f"learner={{{DPO}, learning_rate: 0.001, replay_path: data/base/replay.parquet}}"],
}


@dataclass
class Ended:
    """Where a road has ended: the state, the prompt it is played under (None: the environment's), and its figures."""

    state: Path
    tokens: int
    rounds: int
    prompt: Prompt | None = None
    figures: dict[str, Any] | None = None


class Roads:
    """The roads of one seed.

    Args:
        seed: Of the warm start and of all that is drawn.
        tokens: What a road may sample.
        settings: `a.b=value`, for all roads.
        challenger: The same for the challenger of self-play.
        work: Where the seed has a folder.
        profile: A file, from the repository's root.
        lost: Whether the roads play tasks that the warm start loses, those of `benchmarks/lost_tasks.py`.
    """

    def __init__(
        self,
        seed: int,
        tokens: int,
        settings: list[str],
        challenger: list[str],
        work: Path,
        profile: str = PROFILE,
        *,
        lost: bool = False,
    ) -> None:
        self.seed, self.tokens, self._challenger = seed, tokens, challenger
        self._settings = [*LOST_SETTINGS, *settings] if lost else settings
        self._profile = str(ROOT / profile)
        self.config = self.profile(())
        self.work = work / f"seed-{seed}"
        self.curated = curated_logs(self.config, work / "curated")
        self.start = warm_started(self.config, self.curated, self.work / "warm")
        if lost:
            self.curated = self.work / "lost"
            LOST_WORLD.write(self.curated, seed, wrong=0.0, verified=True)

    def profile(self, learner: list[str] | tuple[()]) -> RetrainConfig:
        """The profile with a learner."""
        return load_config(self._profile, [*COMMON, *learner, f"seed={self.seed}", *self._settings])

    def cell(self, road: str) -> dict[str, Any]:
        """Go a road, evaluate where it ends, and let the gate judge: a cell of the table."""
        began = cpu_seconds()
        folder = _new(self.work / road.replace(",", "").replace(" ", "-"))
        ended = ROADS[road](self, folder) if road != START else Ended(self.start, 0, 0)
        spent = cpu_seconds() - began
        start = self.work / "warm-start" / "held_out"
        changed = weights_of(ended.state) != weights_of(self.start) or ended.prompt is not None
        if changed or road == START:
            results = self.evaluated(ended, folder / "held_out")
        else:
            shutil.copytree(start, folder / "held_out")
            results = outcomes_in(start)
        cell: dict[str, Any] = {"tokens": ended.tokens, "rounds": ended.rounds, "cpu_s": round(spent, 1), "tasks": results}
        if road != START:
            gate = decide_gate(
                self.config.gate, folder / "held_out", start, _new(folder / "gate"), baseline_name=START, trained=changed
            ).to_record()
            cell["gate"] = {name: gate.get(name) for name in ("verdict", "reasons", "difference", "interval", "p_value")}
        return cell | ({"figures": ended.figures} if ended.figures else {})

    def evaluated(self, ended: Ended, out: Path) -> dict[str, list[Any]]:
        """Outcomes on the held-out tasks."""
        policy = policy_of(ended.state, self.config.policy.base)
        _new(out)
        if ended.prompt is None:
            evaluate_split(EvaluateSections.of(self.config), policy, self.curated, "held_out", out)
        else:
            LocalPlayer(self.config, policy, self.curated, 1, self.seed).evaluate(ended.prompt, "held_out", None, out)
        return outcomes_in(out)

    def loop(self, learner: str, folder: Path, prompt: Prompt | None = None, spent: int = 0) -> Ended:
        """Rounds of rollouts and updates."""
        config, curated = self.profile(LEARNERS[learner]), self.curated
        if prompt is not None:
            config = prompted(config, prompt)
            curated = shutil.copytree(self.curated, _new(folder / "curated"), dirs_exist_ok=True)
            curated_under(self.curated, config.environment.spec, curated)

        def sampled(rounds: int) -> int:
            return spent + sum(tokens_in(folder / f"{number:03d}") for number in range(1, rounds + 1))

        adapter, figures = stage_loop(
            config,
            curated,
            self.start,
            folder,
            learnt_from=LEARNT_FROM[learner](self, config) if learner in LEARNT_FROM else None,
            enough=lambda so_far: sampled(len(so_far)) >= self.tokens,
        )
        return Ended(adapter.parent, sampled(len(figures)), len(figures), prompt)

    def in_hindsight(self, config: RetrainConfig) -> Callable[[Path], Path]:
        """Adds the failures that solved another task to an iteration's episodes."""
        known = {task.id: task for task in load_tasks(self.curated, "train")}
        taken = never_trained_on(self.curated)
        player = Player(RolloutSections.of(config), policy_of(self.start, config.policy.base), 64)

        def joined(folder: Path) -> Path:
            played, of = episodes_in(folder)
            relabelled(player, ScoreSections.of(config), played, of, known, taken, folder / "hindsight")
            return folder / "hindsight"

        return joined

    def with_replay(self, config: RetrainConfig) -> Callable[[Path], Path]:
        """Adds earlier groups to an iteration's episodes, as many as it has itself."""
        bound, settings = most_stale(config), ReplaySettings(groups=config.training.tasks_per_iteration)

        def joined(folder: Path) -> Path:
            version = int(folder.name) - 1
            kept = range(max(1, version - bound), version + 1)  # folder N was sampled by version N - 1
            earlier = [episodes_in(folder.with_name(f"{number:03d}")) for number in kept]
            figures = replayed(episodes_in(folder), earlier, version, bound, settings, self.seed, folder / "replay")
            (folder / "replay" / "figures.json").write_text(json.dumps(figures))
            return folder / "replay"

        return joined

    def with_tool_bonus(self, config: RetrainConfig) -> Callable[[Path], Path]:
        """Rewards other tools than those of the group."""

        def credited(folder: Path) -> Path:
            played, of = episodes_in(folder)
            out = _new(folder / "bonus")
            write_records(out / TRAJECTORIES, played, Trajectory)
            write_records(out / SCORES, with_bonus(played, of, EXPLORED.at(int(folder.name))), Score)
            return out

        return credited

    def epsilon_tool(self, folder: Path) -> Ended:
        """GRPO on rollouts in which some turns are begun by force."""
        config = self.profile(LEARNERS["GRPO, epsilon-tool"])
        sampler, known = make_sampler(SamplerSections.of(config), self.curated), load_tasks(self.curated, "train")
        state, spent, number = self.start, 0, 0
        while spent < self.tokens and number < MOST_ROUNDS:
            number += 1
            out, policy = folder / f"{number:03d}", policy_of(state, config.policy.base)
            chosen = set(sampler.select(config.training.tasks_per_iteration, number))
            tasks = [task for task in known if task.id in chosen]
            sections = RolloutSections.of(config)
            spent += explore(sections, policy, tasks, EXPLORED.at(number), out, iteration=number)["generated_tokens"]
            score(ScoreSections.of(config), tasks, out / TRAJECTORIES, out)
            files = UpdateFiles([out / TRAJECTORIES], [out / SCORES], state, self.start / "adapter", out)
            update(UpdateSections.of(config), files, iteration=number)
            observe_scores(sampler, out / SCORES)
            state = out
        return Ended(state, spent, number)

    def prompt(self, parts: tuple[str, ...], folder: Path, tokens: int) -> Ended:
        """GEPA with the table of edits."""
        player = LocalPlayer(self.config, policy_of(self.start, self.config.policy.base), self.curated, 1, self.seed)
        fits = tokens // (4 * player.most_tokens)  # a quarter for the start on validation, at its longest
        with ChatEndpoint(edit) as table:
            settings = PromptSettings.model_validate(
                {
                    "reflection": {"endpoint": table.url, "model": "table-of-edits"}, "parts": parts, "tokens": tokens,
                    "reflections": 200, "iterations": 200, "seed": self.seed,
                    "validation_tasks": max(1, min(48, fits)), "minibatch": max(1, min(8, fits)),
                }
            )  # fmt: skip
            work = Optimising(settings, player, self.curated)
            prompt, report = work.run(folder / "journal.jsonl", folder / "gepa.log")
        figures = {"prompt": report["prompt"], "accepted": len(report["candidates"]) - 1, "stopped": report["stopped"]}
        return Ended(self.start, report["tokens"], report["iterations"], None if prompt == work.start else prompt, figures)

    def prompt_then_grpo(self, folder: Path) -> Ended:
        """Half of the tokens for the prompt, the rest under it."""
        first = self.prompt(("system", "tools"), folder, self.tokens // 2)
        ended = self.loop("GRPO", folder, first.prompt, first.tokens)
        return Ended(ended.state, ended.tokens, ended.rounds, first.prompt, first.figures)

    def trees(self, folder: Path) -> Ended:
        """Pairs of turns from tree search, and DPO on them, in a few rounds."""
        config = self.profile(LEARNERS["trees, DPO"])
        if self.config.learner.replay_path is None:  # no base of ours: the rate of its profile, no text to keep
            config = self.profile([f"learner={{{DPO}, learning_rate: {self.config.learner.learning_rate}}}"])
        sampler, known = make_sampler(SamplerSections.of(config), self.curated), load_tasks(self.curated, "train")
        state, spent, figures = self.start, 0, []
        for number in range(1, ROUNDS + 1):
            chosen = set(sampler.select(config.training.tasks_per_iteration, number))
            tasks = [task for task in known if task.id in chosen]
            out, after = _new(folder / f"{number:03d}"), _new(folder / f"{number:03d}-state")
            player = Player(RolloutSections.of(config), policy_of(state, config.policy.base), len(tasks))
            budget = max(1, (self.tokens - spent) // (ROUNDS + 1 - number))
            search = Search(config, player, tasks, SearchSettings(budget=budget, seed=self.seed * ROUNDS + number), out)
            spent += search.run()["sampled_tokens"]
            made = write_pairs(out / "pairs", search.trees, search.trajectories, PairSettings())
            figures.append(made)
            if made["pairs"]:
                files = UpdateFiles(
                    [out / "pairs" / TRAJECTORIES], [out / "pairs" / SCORES], state, self.start / "adapter", after
                )
                update(UpdateSections.of(config), files, iteration=number)
                state = after
        return Ended(state, spent, ROUNDS, figures={"pairs": [each["pairs"] for each in figures]})

    def self_play(self, folder: Path, *, taught: bool) -> Ended:
        """Challenger and solver, whose tokens count both; or proposals drawn at random, and the solver alone."""
        challenger = load_config(CHALLENGER, [f"seed={self.seed}", *self._challenger])
        config = self.profile(LEARNERS["GRPO"])
        proposer = taught_to_propose(challenger, config.environment.spec, _new(folder / "taught")) if taught else None
        play, state, rounds, spent = SelfPlay(config, self.curated, folder, proposer, challenger), self.start, [], 0
        while spent < self.tokens and len(rounds) < MOST_ROUNDS:
            state, figures = play.round(state, self.start, len(rounds) + 1)
            rounds.append({name: figures[name] for name in ("different", "refused", "success", "solver_tokens")})
            spent += figures["solver_tokens"] + figures.get("challenger_tokens", 0)
        return Ended(state, spent, len(rounds), figures={"rounds": rounds})


LEARNT_FROM = {
    "hindsight": Roads.in_hindsight,
    "GRPO with replay": Roads.with_replay,
    "GRPO, tool bonus": Roads.with_tool_bonus,
}
ROADS: dict[str, Callable[[Roads, Path], Ended]] = {
    "few-shot": lambda roads, folder: roads.prompt(("demonstrations",), folder, roads.tokens),
    "prompt": lambda roads, folder: roads.prompt(("system", "tools"), folder, roads.tokens),
    "rejection sampling": lambda roads, folder: roads.loop("rejection sampling", folder),
    "hindsight": lambda roads, folder: roads.loop("hindsight", folder),
    "GRPO": lambda roads, folder: roads.loop("GRPO", folder),
    "GRPO, steps doubled": lambda roads, folder: roads.loop("GRPO, steps doubled", folder),
    "GRPO with replay": lambda roads, folder: roads.loop("GRPO with replay", folder),
    "GRPO, tool bonus": lambda roads, folder: roads.loop("GRPO, tool bonus", folder),
    "GRPO, epsilon-tool": Roads.epsilon_tool,
    "trees, DPO": Roads.trees,
    "self-play": lambda roads, folder: roads.self_play(folder, taught=True),
    "self-play, random proposals": lambda roads, folder: roads.self_play(folder, taught=False),
    "prompt, then GRPO": Roads.prompt_then_grpo,
}


def episodes_in(folder: Path) -> tuple[list[Trajectory], list[Score]]:
    """The trajectories of a folder with their scores, in the same order."""
    scores = {each.trajectory_id: each for each in read_scores(folder / SCORES)}
    played = read_records(folder / TRAJECTORIES, Trajectory)
    return played, [scores[each.id] for each in played]


def tokens_in(folder: Path) -> int:
    """How many tokens the policy sampled for a folder of trajectories."""
    return sum(sum(each.action_mask) for each in read_records(folder / TRAJECTORIES, Trajectory))


def outcomes_in(folder: Path) -> dict[str, list[Any]]:
    """What an evaluation counted of each task."""
    rows = pd.read_parquet(folder / "results.parquet")
    return {name: rows[name].tolist() for name in ("task_id", "greedy", "sampled_successes", "sampled_attempts")}


def weights_of(state: Path) -> str:
    """Equal where nothing was learnt."""
    return digest_of(state / "adapter" / "adapter_model.safetensors")


def _new(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
