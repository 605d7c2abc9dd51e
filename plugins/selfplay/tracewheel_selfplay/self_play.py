"""Challenger and solver: one policy proposes tasks, another learns on them; the task's own verifier decides.

Sources: R-Zero (Huang et al. 2025) and Absolute Zero (Zhao et al. 2025). Beside them: the proposer speaks the generator's
language and writes no code; what is kept for the gate is refused by its fingerprint.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from tracewheel import (
    DataError,
    RetrainConfig,
    TaskMaker,
    WarmStartSections,
    canonical_json,
    give,
    kind_text,
    load_tasks,
    make_environment,
    play_calls,
    read_scores,
    success_of,
    warm_start,
    write_json,
)
from tracewheel_selfplay.learnable import identities, why_not, worth_of
from tracewheel_selfplay.proposals import SEEDS, maker_of, proposal_tasks, task_of
from tracewheel_selfplay.rounds import learn, mark, new, play, tokens_of, trajectories_of

TABLE_FILE = "worth.json"
OUTSIDE = ("validation", "held_out", "harder", "reserve")  # splits whose tasks are never played
REQUESTS, DEMONSTRATIONS = 4, 200
PROPOSAL_TOKENS, TURN_TOKENS = 800, 96  # what a proposal needs at least, with its tool and with a plain tokenizer


def taught_to_propose(config: RetrainConfig, environment: str, out: Path) -> Path:
    """A warm start on random proposals, so that any task of the environment is proposed. Returns the state's folder."""
    give(environment)
    maker, rng, rows = maker_of(environment), random.Random(config.seed), []
    tasks = proposal_tasks(environment, "exact_match", REQUESTS)
    give(tasks[0].environment)
    speaker = make_environment(tasks[0].environment)
    for number in range(DEMONSTRATIONS):
        task = tasks[number % len(tasks)]
        proposal = {"family": rng.choice(maker.families), "tier": rng.choice(maker.tiers), "seed": rng.randrange(SEEDS)}
        messages = play_calls(speaker, task, [("propose_task", proposal)])
        rows.append(
            {
                "trace_id": f"proposal-{number}", "task_id": task.id, "split": "train", "failure": "", "success": 1.0,
                "messages": json.dumps(messages), "tools": json.dumps(speaker.tools()),
            }
        )  # fmt: skip
    curated = new(out / "curated")
    pd.DataFrame([task.to_record() | {"split": "train"} for task in tasks]).to_parquet(curated / "tasks.parquet", index=False)
    pd.DataFrame(rows).to_parquet(curated / "episodes.parquet", index=False)
    state = new(out / "challenger")
    warm_start(WarmStartSections.of(config), curated, state, "all")
    return state


class SelfPlay:
    """The loop of challenger and solver.

    Args:
        config: The solver's profile: environment, rubric and learner.
        curated: The output of curate; its tasks outside training are never played.
        out: Where each round has a folder.
        proposer: The challenger's first state; None for proposals drawn at random, a control without a challenger.
        challenger: Its profile, if it learns by other settings than the solver.
    """

    def __init__(
        self,
        config: RetrainConfig,
        curated: Path,
        out: Path,
        proposer: Path | None,
        challenger: RetrainConfig | None = None,
    ) -> None:
        self.config, self.curated, self.out, self.challenger = config, curated, out, challenger or config
        self.environment = give(config.environment.spec)
        self.maker: TaskMaker = maker_of(self.environment)
        self.kept_apart = frozenset().union(*(identities(task) for split in OUTSIDE for task in load_tasks(curated, split)))
        self.proposer = self.first_proposer = proposer
        self.rng = random.Random(config.seed)

    def run(self, start: Path, tokens: int | None = None) -> dict[str, Any]:
        """Play until the iterations are over, or the solver has sampled so many tokens.

        Returns:
            `rounds`: what was proposed, refused, how often solved, and the tokens of both; `state`, the solver's last.
        """
        state, rounds = start, list[dict[str, Any]]()
        for iteration in range(1, self.config.training.iterations + 1):
            state, figures = self.round(state, start, iteration)
            rounds.append(figures)
            if tokens and sum(each["solver_tokens"] for each in rounds) >= tokens:
                break
        return {"rounds": rounds, "state": str(state), "challenger": self.proposer and str(self.proposer)}

    def round(self, state: Path, start: Path, iteration: int) -> tuple[Path, dict[str, Any]]:
        """One round of both. Returns the solver's next state and the figures."""
        folder, config = self.out / f"{iteration:03d}", self.config
        table = new(folder) / TABLE_FILE
        requests = proposal_tasks(self.environment, give(kind_text("learnable", {"table": str(table)})), REQUESTS)
        proposals, asked = self.proposals(requests, folder, iteration)
        known = {canonical_json(each): each for each in proposals}
        made = {text: task_of(self.maker, each) for text, each in known.items()}
        refused = {text: why for text, task in made.items() if (why := why_not(task, self.kept_apart))}
        tasks = {text: task for text, task in made.items() if task and text not in refused}
        by_id = {task.id: task for task in tasks.values()}
        outcomes: dict[str, list[bool]] = {}
        solver_tokens, rate = 0, None
        if by_id:
            played = play(config, state, self.curated, list(by_id.values()), folder / "rollout", iteration)
            scored = mark(config, list(by_id.values()), played, folder / "score")
            found = [each for each in read_scores(scored) if each.total is not None]
            for text, task in tasks.items():
                outcomes[text] = [bool(success_of(each)) for each in found if each.task_id == task.id]
            learn(config, played, scored, state, start, folder / "update", iteration)
            state, solver_tokens = folder / "update", tokens_of(played)
            rate = sum(bool(success_of(each)) for each in found) / max(1, len(found))
        write_json(table, worth_of(proposals, refused, outcomes))
        rewards = self.reward(requests, asked, folder, iteration) if asked else {}
        clusters = Counter(f"{each['family']} {each['tier']}" for each in proposals)
        return state, {
            "proposed": len(proposals), "different": len(known), "clusters": dict(clusters),
            "refused": dict(Counter(refused.values())), "success": rate, "solver_tokens": solver_tokens, **rewards,
        }  # fmt: skip

    def proposals(self, requests: list[Any], folder: Path, iteration: int) -> tuple[list[dict[str, Any]], Path | None]:
        """What is proposed, and the challenger's trajectories; drawn at random where there is no challenger."""
        wanted = self.config.training.tasks_per_iteration
        if self.proposer is None:
            draw = self.rng
            made = [
                {
                    "family": draw.choice(self.maker.families),
                    "tier": draw.choice(self.maker.tiers),
                    "seed": draw.randrange(SEEDS),
                }
                for _ in range(wanted)
            ]
            return made, None
        size = max(2, wanted // REQUESTS)
        rollout = self.challenger.rollout
        own = {
            "group_size": size,
            "exploration": type(rollout.exploration)(),  # what it sets is the solver's world's
            "max_tokens": max(rollout.max_tokens, PROPOSAL_TOKENS),
            "max_turn_tokens": max(rollout.max_turn_tokens, TURN_TOKENS),
        }
        config = self.challenger.model_copy(update={"rollout": rollout.model_copy(update=own)})
        asked = play(config, self.proposer, self.curated, requests, folder / "proposals", iteration)
        episodes = trajectories_of(asked)
        if not any(map(sum, (each.action_mask for each in episodes))):
            raise DataError(f"{asked}: the challenger sampled nothing: {episodes[0].detail or episodes[0].stop_reason}")
        return [proposal for each in episodes if (proposal := each.final_state.get("proposal"))], asked

    def reward(self, requests: list[Any], asked: Path, folder: Path, iteration: int) -> dict[str, Any]:
        """Score the challenger's proposals by what came of them, and update it."""
        assert self.proposer is not None and self.first_proposer is not None
        config = self.challenger
        scored = mark(config, requests, asked, folder / "worth")
        learn(config, asked, scored, self.proposer, self.first_proposer, folder / "challenger", iteration)
        self.proposer = folder / "challenger"
        totals = [each.total for each in read_scores(scored) if each.total is not None]
        return {
            "learnability": sum(totals) / max(1, len(totals)),
            "challenger_tokens": tokens_of(asked),
            "malformed": sum(not each.final_state.get("proposal") for each in trajectories_of(asked)),
        }
