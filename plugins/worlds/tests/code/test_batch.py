"""A batch of episodes with attackers among them: the honest ones go and score as they would alone."""

import random
import shutil
from dataclasses import replace

import pytest

from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.core.kinds import kind_text
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric
from tracewheel_worlds.code.tasks import make_task

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap")
# For the attackers, one of which hangs; the others have the time that is usual.
HASTY = kind_text("code", {"sandbox": {"limits": {"seconds": 1.0}}})
VERIFIER = kind_text("unit_tests", {"limits": {"seconds": 4.0}})
ATTACKERS = {
    "hangs": "while True: pass",
    "forks": "import os\nwhile True: os.fork()",
    "floods": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 4])
def test_attackers_in_a_batch_change_no_other_episode(scripted_engine, renderer, call_text, threads):
    rng, count = random.Random(5), len(ATTACKERS)
    tasks = [make_task("function", 1, rng) for _ in range(count + 3)]
    tasks[:count] = [replace(task, environment=HASTY, verifier=VERIFIER) for task in tasks[:count]]

    def script(source):
        calls = [("write_file", {"path": "solution.py", "content": source})]
        calls += [("run", {"path": "solution.py", "stdin": ""}), ("submit", {})]
        return [call_text(tool, **args) for tool, args in calls]

    honest = [task.goal["solution"] for task in tasks]
    engine = scripted_engine(renderer, [script(source) for source in [*ATTACKERS.values(), *honest[count:]]])
    config = RolloutConfig(max_tokens=6000, max_turn_tokens=3000, tool_threads=threads)
    found = run_episodes(engine, renderer, config, RolloutPlan(tasks, samples=1, seed=0))
    rubric = Rubric(RubricConfig(), tasks)
    scores = [rubric.score(task, episode) for task, episode in zip(tasks, found, strict=True)]
    assert [episode.stop_reason for episode in found] == ["finished"] * len(tasks)
    assert [(score.status, score.total) for score in scores] == [("scored", 0.0)] * count + [("scored", 1.0)] * 3
    assert [episode.final_state["files"] for episode in found[count:]] == [{"solution.py": source} for source in honest[count:]]
    assert found[0].final_state["findings"] == ["timeout"] and found[2].final_state["findings"] == ["output"]
