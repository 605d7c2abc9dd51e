"""Prompts that leave no room for an episode are refused before anything is trained."""

import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError
from tracewheel.rollout.prompt_lengths import check_prompts, prompt_lengths


def limited(config, most, turn=48):
    return RetrainConfig.model_validate(
        config.model_dump() | {"rollout": config.rollout.model_dump() | {"max_tokens": most, "max_turn_tokens": turn}}
    )


@pytest.fixture(scope="module")
def lengths(config, tasks):
    return prompt_lengths(config, tasks)


def test_lengths_are_those_of_the_rendered_prompts(config, tasks, lengths, renderer):
    from tracewheel.environments import make_environment, opening_messages

    assert set(lengths) == {task.id for task in tasks}
    for task in tasks:
        environment = make_environment(task.environment)
        environment.reset(task)
        assert lengths[task.id] == len(renderer.prompt_ids(opening_messages(environment, task), environment.tools()))


def test_prompts_with_room_for_a_turn_pass_and_others_name_the_setting(config, tasks, lengths):
    needed = max(lengths.values()) + 48
    assert check_prompts(limited(config, needed), tasks) is None
    short = min(lengths.values()) + 48 - 1
    with pytest.raises(ConfigError, match=f"set rollout.max_tokens to at least {needed}"):
        check_prompts(limited(config, short), tasks)


def test_a_few_long_prompts_among_many_are_a_warning(config, tasks, lengths):
    """One prompt of forty is longer than the rest: its episodes fail, and the run goes on."""
    import dataclasses

    long = dataclasses.replace(tasks[0], prompt=tasks[0].prompt + " please" * 200)
    many = [dataclasses.replace(task, id=f"{task.id}-{number}") for number in range(8) for task in tasks][:39]
    said = check_prompts(limited(config, max(lengths.values()) + 48), [*many, long])
    assert said and said.startswith("1 of the 32 tasks with the longest prompts")
