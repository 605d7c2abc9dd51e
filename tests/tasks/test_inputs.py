"""The id of a run, made of its settings and the content of its inputs."""

import pytest

from tasks.inputs import identify, input_digests
from tracewheel.config import RetrainConfig
from tracewheel.core.errors import DataError


@pytest.fixture
def profile(tmp_path, base):
    (tmp_path / "traces.jsonl").write_text('{"messages": []}\n')

    def make(**changes):
        values = {"name": "x", "policy": {"base": base}, "ingest": {"paths": [str(tmp_path / "traces.jsonl")]}, **changes}
        return RetrainConfig.model_validate(values)

    return make


def run_id(config):
    return identify(config, input_digests(config))


def test_the_run_id_depends_on_settings_and_inputs_not_places(profile, tmp_path):
    first = run_id(profile())
    assert (
        run_id(profile(name="y", work_dir="elsewhere", tracking={"uri": "sqlite:///other.db"}, aims={"harder": 0.5})) == first
    )
    assert run_id(profile(seed=1)) != first
    assert run_id(profile(learner={"kl": 0.5})) != first
    (tmp_path / "traces.jsonl").write_text('{"messages": []}\n\n')
    assert run_id(profile()) != first


def test_missing_traces_are_named(profile, tmp_path):
    (tmp_path / "traces.jsonl").unlink()
    with pytest.raises(DataError, match=r"traces.jsonl: no such trace file"):
        input_digests(profile())


def test_a_person_in_a_log_files_name_is_redacted(profile, tmp_path):
    for name in ("maria", "bob"):
        (tmp_path / f"{name}@corp.com.jsonl").write_text('{"messages": []}\n')
    config = profile(ingest={"paths": [str(tmp_path / "*.jsonl")]})
    names = sorted(name for name in input_digests(config) if name.startswith("traces/"))
    assert len(names) == 3 and names[-1] == "traces/traces.jsonl"
    assert all(name.startswith("traces/file-") for name in names[:2])
    open_names = input_digests(profile(ingest={"paths": [str(tmp_path / "*.jsonl")], "redaction": {"enabled": False}}))
    assert "traces/maria@corp.com.jsonl" in open_names
