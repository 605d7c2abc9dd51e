"""What all tests share: one thread, no network, and the tiny base policy that ships."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("PREFECT_HOME", tempfile.mkdtemp(prefix="tracewheel-prefect-"))
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
os.environ.setdefault("DO_NOT_TRACK", "1")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("tests", deadline=None, derandomize=True, database=None)
settings.load_profile("tests")

BASE = Path(__file__).parents[1] / "data" / "base"


@pytest.fixture(scope="session")
def base() -> str:
    """The folder of the tiny base policy."""
    return str(BASE)


@pytest.fixture(scope="session")
def prefect_harness():
    """One temporary Prefect server and database for all tests that run tasks or flows."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield
