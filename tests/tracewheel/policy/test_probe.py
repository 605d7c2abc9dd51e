"""The probe of an adapter, with the trainer's model in the engine's place."""

import json
import logging

import pytest

from tracewheel.core.errors import AdapterMismatchError, DataError
from tracewheel.policy.probe import PROBE, check_probe, write_probe


def scores_of(versions, version):
    return lambda ids: versions.logprobs(version, ids)


def test_only_the_policy_itself_passes(versions):
    adapter = versions.policy(1).adapter
    assert check_probe(adapter, scores_of(versions, 1), "float32") < 1e-5
    for other in (2, 3, 4):
        versions.policy(other)
        with pytest.raises(AdapterMismatchError, match="does not serve the weights"):
            check_probe(adapter, scores_of(versions, other), "float32")


def test_what_bfloat16_rounds_passes_and_a_lost_adapter_does_not(versions):
    """On a GPU an adapter of SmolLM2-135M was 0.105 nats a token from its trainer's numbers; its base is at 0.84."""
    adapter = versions.policy(1).adapter

    def off_by(nats):
        return lambda ids: [value + nats * (-1) ** place for place, value in enumerate(versions.logprobs(1, ids))]

    assert check_probe(adapter, off_by(0.105), "bfloat16") == pytest.approx(0.105, abs=1e-3)
    for nats, dtype in ((0.42, "bfloat16"), (0.105, "float32")):  # half of an adapter; and what only bfloat16 rounds away
        with pytest.raises(AdapterMismatchError, match="does not serve the weights"):
            check_probe(adapter, off_by(nats), dtype)


def test_nan_does_not_pass(versions):
    with pytest.raises(AdapterMismatchError):
        check_probe(versions.policy(1).adapter, lambda ids: [float("nan")] * (len(ids) - 1), "bfloat16")


def test_equal_weights_give_equal_bytes_and_the_model_is_unchanged(versions, tmp_path):
    versions.policy(5)
    versions.logprobs(1, [1, 2])
    versions.model.train()
    write_probe(versions.model, tmp_path)
    assert versions.model.training
    versions.model.eval()
    with open(f"{versions.policy(1).adapter}/{PROBE}", "rb") as stream:
        assert (tmp_path / PROBE).read_bytes() == stream.read()


def test_a_missing_probe_is_warned_about_once(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="tracewheel"):
        assert check_probe(tmp_path, lambda ids: [], "float32") is None
        assert check_probe(tmp_path, lambda ids: [], "float32") is None
    assert [PROBE in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("text", ["{", "{}", json.dumps({"token_ids": [1, 2], "logprobs": []}), '{"token_ids": 1}'])
def test_a_broken_probe_is_named(tmp_path, text):
    (tmp_path / PROBE).write_text(text)
    with pytest.raises(DataError, match=PROBE):
        check_probe(tmp_path, lambda ids: [], "float32")
