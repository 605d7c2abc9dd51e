"""The settings of a program that is trained as it runs."""

import pytest
from pydantic import ValidationError

from tracewheel.config import RolloutConfig


def harness(**given):
    return RolloutConfig(harness={"command": ["python", "agent.py"], **given}).harness


def test_a_profile_without_a_program_is_written_as_before():
    assert "harness" not in RolloutConfig().model_dump(mode="json")
    config = RolloutConfig(harness={"command": ["python", "agent.py"], "preload": ["openai"]})
    assert RolloutConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"command": []}, "at least 1 item"),
        ({"env": {"OPENAI_API_KEY": "mine"}}, "env and pass_env cannot set OPENAI_API_KEY"),
        ({"pass_env": ["TRACEWHEEL_TASK"]}, "cannot set TRACEWHEEL_TASK"),
        ({"env": {"A=B": "c"}}, "'A=B' is no name of a variable"),
        ({"command": ["node", "agent.js"], "preload": ["openai"]}, "preload forks a Python process"),
        ({"command": ["python", "-c", "pass"], "preload": ["openai"]}, "preload forks a Python process"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        harness(**given)


def test_modules_and_scripts_can_be_preloaded():
    assert harness(command=["python3.12", "-m", "my.agent"], preload=["openai"]).python_program
    assert not harness(command=["python", "-m"]).python_program
