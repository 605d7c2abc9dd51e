"""Rollout workers of a wheel that is not installed are refused before anything is computed."""

import pytest

from tasks.engine.fleet import FLEETS, check_fleet
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError


def test_workers_without_their_wheel_are_refused(monkeypatch):
    monkeypatch.setattr(FLEETS, "wheels", {})
    rollout = {"workers": {"kind": "ray", "count": 2}}
    check_fleet(RetrainConfig.model_validate({"name": "t", "rollout": rollout}))  # not used
    with pytest.raises(ConfigError, match="tracewheel-scale, which is not installed: pip install"):
        check_fleet(RetrainConfig.model_validate({"name": "t", "rollout": rollout | {"mode": "async"}}))
