"""The update's Prefect task reports a mismatch between sampler and trainer, and only a mismatch."""

import pytest

import tasks.stages.update
from tasks.engine.run import Run, Silent
from tasks.stages.update import update_policy
from tracewheel.config import RetrainConfig
from tracewheel.core.store import Entry


class Listening(Silent):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.mark.parametrize(
    ("action", "said"), [(0.0, []), (1.0, ["update 4, warning: sampler and trainer disagree by 0.05 nats"])]
)
def test_a_mismatch_is_reported(monkeypatch, tmp_path, action, said):
    figures = {"sampler_mismatch_mean": 0.05, "sampler_mismatch_max": 1.0, "sampler_mismatch_measured": 1.0}
    monkeypatch.setattr(tasks.stages.update, "update", lambda *_, **__: figures | {"sampler_mismatch_action": action})
    (tmp_path / "adapter").mkdir()
    entry = Entry("update", "key", tmp_path, "digest", 0.0, {})
    reporter = Listening()
    run = Run(RetrainConfig(name="test"), None, None, reporter)
    result = update_policy.make(run, tmp_path, trajectories=[], scores=[], state=entry, reference=entry, iteration=4)
    assert result["sampler_mismatch_action"] == action
    assert [text[: len(start)] for text, start in zip(reporter.said, said, strict=True)] == said
