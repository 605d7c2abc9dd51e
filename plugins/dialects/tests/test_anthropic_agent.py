"""The shipped agent on Anthropic's SDK, unmodified, through the gateway."""

import pytest

from tests.tracewheel.rollout.harness.test_sdks import test_what_the_policy_says_comes_back_as_it_was  # noqa: F401


@pytest.fixture
def command():
    return ["python", "anthropic_agent.py"]
