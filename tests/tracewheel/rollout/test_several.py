"""Tasks of several environments in one batch: each episode has its own environment's prompt and tools."""

from tracewheel.config import RolloutConfig, RubricConfig
from tracewheel.environments import TEXT_TURN, make_environment
from tracewheel.rollout.rollout import RolloutPlan, run_episodes
from tracewheel.scoring.rubric import Rubric

ROOMY = RolloutConfig(max_tokens=8000, max_turn_tokens=1000)
KINDS = ("order_desk", "workspace", "refund_desk")


def test_episodes_of_one_batch_are_each_in_their_own_environment(scripted_engine, renderer, call_text):
    tasks = [task for kind in KINDS for task in make_environment(kind).make_tasks(2, 3)]
    scripts = [
        [args["text"] if name == TEXT_TURN else call_text(name, **args) for name, args in make_environment(kind).solution(task)]
        for task in tasks
        for kind in [task.environment]
    ]
    found = list(run_episodes(scripted_engine(renderer, scripts), renderer, ROOMY, RolloutPlan(tasks, samples=1, seed=0)))
    rubric = Rubric(RubricConfig(), tasks)
    assert len(found) == len(tasks)
    for trajectory in found:
        task = next(task for task in tasks if task.id == trajectory.task_id)
        assert rubric.score(task, trajectory).total == 1.0
        assert trajectory.messages[0]["content"] == make_environment(task.environment).system_prompt
        shown = renderer.decode(trajectory.token_ids)
        for kind in KINDS:
            names = {tool["function"]["name"] for tool in make_environment(kind).tools()}
            assert all(f'"name": "{name}", "description"' in shown for name in names) == (kind == task.environment)
