"""The id of a run, made of its settings and the content of its inputs."""

import pytest

from tasks.engine.inputs import identify, input_digests, named_inputs
from tasks.engine.run import settings_for
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


def test_a_template_of_the_profiles_own_counts_by_its_content(profile, base, tmp_path):
    file = tmp_path / "own.jinja"
    file.write_text("{{ messages }}")
    config = profile(policy={"base": base, "chat_template": str(file)})
    first = run_id(config)
    assert first != run_id(profile())
    file.write_text("{{ messages }} ")
    assert run_id(config) != first
    assert settings_for(config, ("policy",))["chat_template"] == input_digests(config)["chat_template"]
    assert "chat_template" not in settings_for(config, ("curation",))
    file.unlink()
    with pytest.raises(DataError, match=r"own\.jinja: no such file; policy\.chat_template names it"):
        run_id(config)


def test_a_gguf_base_counts_by_its_file(profile, tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF one")
    first = input_digests(profile(policy={"base": str(file)}))["base"]
    file.write_bytes(b"GGUF other")
    assert input_digests(profile(policy={"base": str(file)}))["base"] != first


def test_the_program_of_a_harness_counts_by_its_files(profile, tmp_path):
    def of(folder, text, **harness):
        (tmp_path / folder / "parts").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "agent.py").write_text(text)
        (tmp_path / folder / "parts" / "loop.py").write_text("pass")
        given = {"command": ["python", "agent.py"], "cwd": str(tmp_path / folder), **harness}
        return named_inputs(profile(rollout={"harness": given}), "rollout")

    assert named_inputs(profile(), "rollout") == {}
    assert of("one", "a") == of("two", "a") != of("two", "b")
    assert of("one", "a", code=["agent.py", "parts"]) != of("one", "a")
    with pytest.raises(DataError, match=r"nowhere.py: no such file; rollout.harness.code names it"):
        of("one", "a", code=["nowhere.py"])
