"""`policy.dtype: auto`: what it becomes, where, and that stage keys hold what it became."""

import json

import pytest
import yaml
from pydantic import ValidationError

from tracewheel.config import PolicyConfig, UpdateSections, load_config, placement

HUB = "Qwen/Qwen3-4B"


def base_of(folder, parameters):
    """A folder whose safetensors header tells of so many parameters."""
    header = {
        "__metadata__": {"format": "pt"},
        "weight": {"dtype": "BF16", "shape": [parameters // 1000, 1000], "data_offsets": [0, 0]},
    }
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model-1.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return str(folder)


@pytest.fixture(params=["AVX512-BF16", ""])
def instructions(request, monkeypatch):
    monkeypatch.setattr(placement, "_cpu_multiplies", lambda: request.param)
    return request.param


def test_large_bases_are_in_bfloat16_where_the_processor_multiplies_it(instructions, tmp_path):
    expected = "bfloat16" if instructions else "float32"
    for base in (HUB, base_of(tmp_path / "large", 134_500_000)):
        assert PolicyConfig(base=base).dtype == PolicyConfig(base=base, dtype="auto").dtype == expected


def test_small_bases_and_what_a_profile_says_stay(instructions, tmp_path):
    small = base_of(tmp_path / "small", 650_000)
    assert PolicyConfig(base=small).dtype == PolicyConfig().dtype == "float32"
    for dtype in ("float32", "bfloat16"):
        assert PolicyConfig(base=HUB, dtype=dtype).dtype == PolicyConfig(base=small, dtype=dtype).dtype == dtype
    assert load_config("configs/tiny.yaml").policy.dtype == "float32"


def test_the_stored_profile_and_the_sections_of_stages_hold_the_type_that_runs(instructions, tmp_path):
    profile = tmp_path / "profile.yaml"
    profile.write_text(yaml.safe_dump({"name": "mine", "policy": {"base": HUB}}))
    config = load_config(profile)
    expected = "bfloat16" if instructions else "float32"
    assert json.loads(config.model_dump_json())["policy"]["dtype"] == UpdateSections.of(config).policy.dtype == expected
    stored = tmp_path / "stored.yaml"
    stored.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_config(stored) == config
    assert load_config(profile, ["policy.dtype=auto"]) == config


def test_a_run_says_its_type_and_why(instructions, tmp_path):
    assert ("AVX512-BF16" if instructions else "does not multiply") in placement.dtype_line(
        HUB, "cpu", PolicyConfig(base=HUB).dtype
    )
    other = "float32" if instructions else "bfloat16"
    assert "as the profile says" in placement.dtype_line(HUB, "cpu", other)
    small = base_of(tmp_path / "small", 650_000)
    assert "0.7M parameters" in placement.dtype_line(small, "cpu", "float32")


def test_other_types_are_refused():
    with pytest.raises(ValidationError, match="dtype"):
        PolicyConfig(base=HUB, dtype="float16")
