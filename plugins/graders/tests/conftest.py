"""Fixtures of the core's tests that this wheel's need beside those of `plugins/conftest.py`."""

from tests.flows.conftest import *  # noqa: F403
