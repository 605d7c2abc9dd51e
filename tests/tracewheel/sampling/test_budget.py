"""The budget of training episodes."""

from tracewheel.config import RetrainConfig
from tracewheel.sampling.validation import has_room


def test_an_iteration_begins_only_with_room_for_all_its_episodes():
    config = RetrainConfig.model_validate(
        {"name": "t", "training": {"tasks_per_iteration": 4, "episodes": 100}, "rollout": {"group_size": 8}}
    )
    wanted = config.episodes_per_iteration
    assert wanted == 32
    assert has_room(config.training.episodes, 68, wanted) and not has_room(config.training.episodes, 69, wanted)
    assert has_room(None, 10**9, wanted), "without a budget there is always room"
