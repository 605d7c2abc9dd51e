"""The whole loop in one file: from logged traces to the gate's verdict, by calling the stages one after the other.

    python examples/loop.py configs/tiny-short.yaml --out runs/loop

A stage is one plain function: it takes its sections of the profile and the folders that it reads, writes a folder, and
returns its figures. `tracewheel retrain` calls the same functions in the same order, so both write the same bytes. What it
adds is all around them: a store that resumes a killed run and reuses what has not changed, Prefect, MLflow, rollouts that
overlap updates, the guard, the champion, and the record of a run. What is left out here:

- `training.iterations` is the only budget; dynamic sampling plays no second round.
- The learning rate is a number.
- There is no champion to start from: the policy to beat is the best one without reinforcement learning.

The folder that it writes:

    ingested/            traces.parquet, quarantine.jsonl, report.json
    curated/             tasks.parquet (with their split), episodes.parquet, sets/
    warm_start/KIND/     adapter/ of supervised fine-tuning on the logged episodes
    iterations/NNN/      rollout/ (trajectories), score/ (rewards), update/ (the next adapter)
    validation/POLICY/   by which the best policy is chosen
    held_out/POLICY/     by which the gate compares it with the policy to beat
    gate/gate.json       the verdict, with its reasons
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tracewheel import (
    CurateSections,
    EvaluateSections,
    PolicyRef,
    RetrainConfig,
    RolloutSections,
    SamplerSections,
    ScoreSections,
    UpdateFiles,
    UpdateSections,
    WarmStartSections,
    curate,
    decide_gate,
    evaluate_split,
    ingest,
    load_config,
    load_tasks,
    make_sampler,
    observe_scores,
    policy_of,
    roll_out,
    score,
    update,
    warm_start,
)

# What the warm start imitates, and the name of the policy that it gives.
WARM_STARTS = {"all": "warm_start", "verified": "warm_start_verified"}


START = "start"  # the policy that reinforcement learning begins with


class Candidate(NamedTuple):
    """A policy, and how it did on the validation split."""

    policy: PolicyRef
    success: float


class Loop:
    """The stages of one run, each with its folder.

    Args:
        config: The profile.
        out: The folder to write; it must not hold an earlier run.
    """

    def __init__(self, config: RetrainConfig, out: Path) -> None:
        self.config = config
        self.out = out
        self.curated = out / "curated"

    def run(self) -> dict[str, Any]:
        """From the logs to the verdict of the gate."""
        self.make_tasks()
        policies = {"base": PolicyRef(self.config.policy.base)}
        starts = {demonstrations: self.imitate(demonstrations) for demonstrations in WARM_STARTS}
        policies |= {WARM_STARTS[kind]: policy_of(state, self.config.policy.base) for kind, state in starts.items()}
        without_rl = {name: self.validate(name, policy) for name, policy in policies.items()}
        baseline = best(without_rl)
        start = starts[self.config.warm_start.demonstrations]
        candidates = self.improve(start, without_rl[WARM_STARTS[self.config.warm_start.demonstrations]])
        challenger = best(candidates)
        say(f"{challenger} is the best of {', '.join(candidates)}; to beat: {baseline}")
        return self.judge(candidates[challenger].policy, policies[baseline], baseline, trained=challenger != START)

    def make_tasks(self) -> None:
        """Read the logs, and make tasks whose outcome can be verified."""
        read = ingest(self.config.ingest, new(self.out / "ingested"))
        say(f"ingest: {read['kept']} of {read['read']} records are distinct traces")
        curate(CurateSections.of(self.config), self.out / "ingested", new(self.curated))
        say("curate: " + ", ".join(f"{len(load_tasks(self.curated, split))} {split}" for split in ("train", "held_out")))

    def imitate(self, demonstrations: str) -> Path:
        """A warm start; returns its folder, which is a state that an update goes on from."""
        state = new(self.out / "warm_start" / demonstrations)
        figures = warm_start(WarmStartSections.of(self.config), self.curated, state, demonstrations)
        say(f"warm start on {demonstrations} demonstrations: {figures['demonstrations']:.0f} episodes")
        return state

    def improve(self, start: Path, before: Candidate) -> dict[str, Candidate]:
        """Sample tasks, roll out, score, update; every few iterations, validate. Returns the candidates, the start first."""
        training = self.config.training
        tasks = load_tasks(self.curated, "train")
        sampler = make_sampler(SamplerSections.of(self.config), self.curated)
        candidates, state = {START: before}, start
        for iteration in range(1, training.iterations + 1):
            folder = self.out / "iterations" / f"{iteration:03d}"
            rolled_out, scored, updated = (new(folder / name) for name in ("rollout", "score", "update"))
            chosen = sampler.select(training.tasks_per_iteration, iteration)
            roll_out(
                RolloutSections.of(self.config),
                policy_of(state, self.config.policy.base),
                self.curated,
                chosen,
                rolled_out,
                iteration=iteration,
                variants=sampler.variants(chosen),
                greedy_baseline=self.config.greedy_baseline,
            )
            rewards = score(ScoreSections.of(self.config), tasks, rolled_out / "trajectories.parquet", scored)
            observe_scores(sampler, scored / "scores.parquet")  # what is mastered is chosen less often
            sampler.evolve(self.curated)  # `sampler.kind: self_evolving` makes variants of what keeps failing
            files = UpdateFiles.of_folders([rolled_out], [scored], state=state, reference=start, out=updated)
            figures = update(UpdateSections.of(self.config), files, iteration=iteration)
            state = updated
            say(f"iteration {iteration}: success {shown(rewards['success'])}, KL {figures.get('kl', 0.0):.4f}")
            if iteration % training.validate_every == 0 or iteration == training.iterations:
                name = f"rl-{iteration}"
                candidates[name] = self.validate(name, policy_of(state, self.config.policy.base))
        return candidates

    def validate(self, name: str, policy: PolicyRef) -> Candidate:
        """Success on the validation split, greedy and sampled."""
        return Candidate(policy, self.evaluate(name, policy, "validation"))

    def judge(self, challenger: PolicyRef, baseline: PolicyRef, name: str, *, trained: bool) -> dict[str, Any]:
        """Evaluate both on held-out tasks, once, and let the gate decide."""
        held_out = self.out / "held_out"
        for each, policy in (("rl", challenger), (name, baseline)):
            self.evaluate(each, policy, "held_out")
        folders = held_out / "rl", held_out / name, new(self.out / "gate")
        verdict = decide_gate(self.config.gate, *folders, baseline_name=name, trained=trained)
        say(f"gate: {verdict.verdict}: {verdict.says or verdict.reasons[0]}")
        return verdict.to_record()

    def evaluate(self, name: str, policy: PolicyRef, split: str) -> float:
        """The mean of greedy and sampled success on a split; an episode without a score counts for neither."""
        found = evaluate_split(EvaluateSections.of(self.config), policy, self.curated, split, new(self.out / split / name))
        rates = [found[mode]["rate"] for mode in ("greedy", "sampled")]
        say(f"{name} on {split}: greedy {shown(rates[0])}, sampled {shown(rates[1])}")
        return 0.0 if None in rates else sum(rates) / len(rates)


def best(candidates: Mapping[str, Candidate]) -> str:
    """The name of the candidate with the most success; ties go to the earliest."""
    return max(candidates, key=lambda name: candidates[name].success)


def new(folder: Path) -> Path:
    """An empty folder; one that is there already is an error, as stages write over nothing."""
    folder.mkdir(parents=True)
    return folder


def shown(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.3f}"


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="From logged traces to the gate's verdict, in one file.")
    parser.add_argument("profile", help="a YAML profile, as configs/tiny-short.yaml")
    parser.add_argument("--out", type=Path, default=Path("runs/loop"), help="folder to write; must not exist")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override a setting")
    options = parser.parse_args()
    config = load_config(options.profile, options.overrides)
    config.require_run()
    Loop(config, options.out).run()


if __name__ == "__main__":
    main()
