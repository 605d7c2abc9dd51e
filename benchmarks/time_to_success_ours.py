"""Our side of benchmarks/time_to_success.py: the loop's stages in order, sampler included.

As in a run, each rollout loads the base anew and merges the adapter, within the measured time, and the learner stays loaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from measuring import Meter
from time_to_success_sides import Race

from tracewheel.config import RolloutSections, SamplerSections, ScoreSections, UpdateSections
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import policy_of, weights_folder
from tracewheel.rollout.rollout import RolloutPlan, rollout
from tracewheel.sampling.curriculum import make_sampler
from tracewheel.sampling.sampler import observe_scores
from tracewheel.sampling.seeds import rollout_seed
from tracewheel.scoring.score import SCORES_FILE, score


def main() -> None:
    race = Race(Path(sys.argv[1]), json.loads(sys.argv[2]))
    config, state, stages = race.config, race.state, {"rollout": 0.0, "score": 0.0, "update": 0.0}
    reference = weights_folder(race.state)
    with tempfile.TemporaryDirectory() as name:
        work, iteration, episodes = Path(name), 0, 0
        over = race.evaluate(reference, 0)
        race.clock.start()
        sampler = make_sampler(SamplerSections.of(config), race.curated)
        # Without the profile's noise in training, which the other side does not have.
        tasks = {task.id: task for task in load_tasks(race.curated, "train")}
        while not over:
            iteration += 1
            out = work / str(iteration)
            out.mkdir()
            chosen = [tasks[task_id] for task_id in sampler.select(config.training.tasks_per_iteration, iteration)]
            with Meter() as meter:
                rollout(
                    RolloutSections.of(config),
                    policy_of(state, config.policy.base),
                    RolloutPlan(
                        chosen,
                        samples=config.rollout.group_size,
                        seed=rollout_seed(config.seed, iteration),
                    ),
                    out,
                )
            stages["rollout"] += meter.cpu_s
            with Meter() as meter:
                score(ScoreSections.of(config), chosen, out / "trajectories.parquet", out)
                observe_scores(sampler, out / SCORES_FILE)
            stages["score"] += meter.cpu_s
            with Meter() as meter:
                trajectories, scores, new = out / "trajectories.parquet", out / SCORES_FILE, out / "state"
                new.mkdir()
                files = UpdateFiles([trajectories], [scores], state, reference, new)
                update(UpdateSections.of(config), files, iteration=iteration)
            stages["update"] += meter.cpu_s
            before, episodes = episodes, episodes + len(chosen) * config.rollout.group_size
            state = new
            if race.is_due(before, episodes):
                race.clock.stop()
                over = race.evaluate(weights_folder(state), episodes)
                race.clock.start()
        race.clock.stop()
    print(race.result(stages=stages))


if __name__ == "__main__":
    main()
