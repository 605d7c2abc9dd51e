"""The champion: promoted once, kept on refusal, ignored for another base."""

import pytest
import torch
from safetensors.torch import save_file

from tasks.stages.champion import load_champion
from tasks.tracking.client import make_client
from tasks.tracking.registry import fetch_weights, find_champion, register
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.files import write_json
from tracewheel.core.fingerprint import digest_of
from tracewheel.policy.adapters import MODEL_INFO, base_hash

PROMOTED, REFUSED = {"verdict": "promoted"}, {"verdict": "refused"}


def test_without_a_store_or_a_model_there_is_no_champion(make_run, tmp_path):
    nowhere = make_run(tracking={"uri": f"sqlite:///{tmp_path}/nowhere.db"})
    assert find_champion(nowhere.config) == (None, "no champion yet")
    assert not (tmp_path / "nowhere.db").exists()
    assert find_champion(make_run(tracked=True).config) == (None, "no champion yet")


def test_a_promoted_adapter_becomes_champion_and_can_be_fetched(make_run, adapter):
    run, folder = make_run(tracked=True), adapter("one")
    version = register(run, folder, PROMOTED)
    champion, note = find_champion(run.config)
    assert (champion.version, champion.run_id, champion.digest) == (version, run.record.run_id, digest_of(folder))
    assert f"version {version}" in note
    out = run.store.root / "fetched"
    out.mkdir(parents=True)
    assert load_champion.make(run, out, version=champion.version, digest=champion.digest)["policy_version"] == 7
    assert digest_of(out / "adapter") == digest_of(folder)


def test_the_registry_of_another_project_is_left_alone(make_run, adapter, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"sqlite:///{tmp_path}/others.db")
    run, folder = make_run(tracked=True), adapter("one")
    version = register(run, folder, PROMOTED)
    assert find_champion(run.config)[0].version == version
    assert digest_of(
        fetch_weights(make_client(run.config.tracking.uri), run.config.tracking.model_name, version, tmp_path)
    ) == digest_of(folder)
    assert not (tmp_path / "others.db").exists()


def test_a_champion_whose_files_were_changed_is_refused(make_run, adapter, tmp_path):
    run = make_run(tracked=True)
    version = register(run, adapter("one"), PROMOTED)
    (tmp_path / "out").mkdir()
    with pytest.raises(InfrastructureError, match="not those that were registered"):
        load_champion.make(run, tmp_path / "out", version=version, digest="0" * 64)


def test_a_refused_adapter_is_registered_and_leaves_the_champion(make_run, adapter):
    first, second = make_run(tracked=True), make_run(tracked=True, seed=1)
    crowned = register(first, adapter("one"), PROMOTED)
    kept = register(second, adapter("two"), REFUSED)
    assert kept != crowned
    assert find_champion(first.config)[0].version == crowned


def test_registering_again_adds_nothing_and_promotes_nothing_again(make_run, adapter):
    first, second = make_run(tracked=True), make_run(tracked=True, seed=1)
    one, two = adapter("one"), adapter("two")
    first_version = register(first, one, PROMOTED)
    second_version = register(second, two, PROMOTED)
    assert register(first, one, PROMOTED) == first_version
    assert find_champion(first.config)[0].version == second_version
    name = first.config.tracking.model_name
    assert len(make_client(first.config.tracking.uri).search_model_versions(f"name = '{name}'")) == 2


def test_a_run_killed_between_registration_and_promotion_promotes_on_resume(make_run, adapter, monkeypatch):
    run, folder = make_run(tracked=True), adapter("one")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("mlflow.MlflowClient.set_registered_model_alias", interrupt)
        register(run, folder, PROMOTED)
    assert find_champion(run.config)[0] is None
    version = register(run, folder, PROMOTED)
    assert find_champion(run.config)[0].version == version


def test_a_champion_for_another_base_is_ignored_with_a_reason(make_run, adapter, monkeypatch):
    run = make_run(tracked=True)
    register(run, adapter("one"), PROMOTED)
    monkeypatch.setattr("tasks.tracking.registry.base_hash", lambda base: "another")
    champion, note = find_champion(run.config)
    assert champion is None
    assert "made for another base" in note


def test_a_whole_model_is_champion_only_for_full_fine_tuning(make_run, base, tmp_path):
    model = tmp_path / "whole" / "model"
    model.mkdir(parents=True)
    save_file({"weights": torch.ones(3)}, model / "model.safetensors")
    write_json(model / MODEL_INFO, {"base_hash": base_hash(base), "version": 4})
    run = make_run(tracked=True, learner={"weights": "full"})
    version = register(run, model, PROMOTED)
    champion, _ = find_champion(run.config)
    assert champion.version == version
    out = run.store.root / "fetched"
    out.mkdir(parents=True)
    assert load_champion.make(run, out, version=version, digest=champion.digest)["policy_version"] == 4
    assert digest_of(out / "model") == digest_of(model)
    nobody, note = find_champion(make_run().config)
    assert nobody is None
    assert "is a whole model, and learner.weights is 'lora'" in note


def interrupt(*arguments):
    raise KeyboardInterrupt
