"""One sandbox for the tests of a process."""

import pytest

from tracewheel_worlds.sandbox import make_sandbox


@pytest.fixture(scope="session")
def sandbox():
    return make_sandbox()
