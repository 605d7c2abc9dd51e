"""A base's window and its token ids: what cannot fit or is of another tokenizer is refused, with the setting to change."""

import json
import lzma
from pathlib import Path

import pandas as pd
import pytest

from tracewheel.config import RetrainConfig
from tracewheel.core.errors import ConfigError
from tracewheel.policy.limits import check_base, read_token_ids, window_of, write_token_ids

ROWS = [{"input_ids": [5, 6, 424], "assistant_masks": [0, 0, 1]}]
KEY = "learner.replay_path"
QWEN = Path(__file__).parents[4] / "shared" / "tokenizers" / "qwen3"


def folder_of(path, **config):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


@pytest.fixture
def larger(base, tmp_path):
    """A base whose vocabulary goes on where the tiny one's ends, as one with 49,152 tokens does."""
    content = json.loads((Path(base) / "tokenizer.json").read_text())
    content["model"]["vocab"] |= {f"word-{number}": number for number in range(500, 49_152)}
    (tmp_path / "larger").mkdir()
    (tmp_path / "larger" / "tokenizer.json").write_text(json.dumps(content))
    return str(tmp_path / "larger")


def test_the_window_is_that_of_the_config_with_its_rope_scaling(base, tmp_path):
    assert window_of(base) == 2048
    assert window_of(folder_of(tmp_path / "none")) is None
    assert window_of(folder_of(tmp_path / "inner", text_config={"max_position_embeddings": 512})) == 512
    scaled = {"factor": 4.0, "original_max_position_embeddings": 1000}
    assert window_of(folder_of(tmp_path / "yarn", max_position_embeddings=1000, rope_scaling=scaled)) == 4000
    assert window_of(folder_of(tmp_path / "llama", max_position_embeddings=8000, rope_scaling=scaled)) == 8000


def test_episodes_longer_than_the_window_are_refused_before_a_run(base):
    check_base(RetrainConfig(name="t", policy={"base": base}, rollout={"max_tokens": 2048}))
    with pytest.raises(
        ConfigError, match=r"rollout.max_tokens is 2049.*window of 2048.*set rollout.max_tokens to at most 2048"
    ):
        check_base(RetrainConfig(name="t", policy={"base": base}, rollout={"max_tokens": 2049}))


def test_text_with_the_fingerprint_of_the_base_is_read_and_of_another_is_refused(base, larger, tmp_path):
    path = tmp_path / "text.parquet"
    write_token_ids(ROWS, path, base)
    read = read_token_ids(path, base, KEY)
    assert read["input_ids"].map(list).tolist() == [[5, 6, 424]] and list(read) == ["input_ids", "assistant_masks"]
    with pytest.raises(ConfigError, match=rf"{KEY}: .*text.parquet holds token ids of another tokenizer.*Set {KEY} to null"):
        read_token_ids(path, larger, KEY)


def test_text_without_a_fingerprint_is_judged_by_its_ids(base, larger, tmp_path):
    path = tmp_path / "old.parquet"
    pd.DataFrame(ROWS).to_parquet(path)
    assert len(read_token_ids(path, base, KEY)) == 1
    with pytest.raises(ConfigError, match="no id in it is above 424, and the base's go up to 49151"):
        read_token_ids(path, larger, KEY)
    pd.DataFrame([{"input_ids": [49_000], "assistant_masks": [1]}]).to_parquet(path)
    assert len(read_token_ids(path, larger, KEY)) == 1
    with pytest.raises(ConfigError, match="it holds the id 49000, and the base's last is"):
        read_token_ids(path, base, KEY)


@pytest.mark.skipif(not QWEN.is_dir(), reason="the tokenizers beside the checkout are absent")
@pytest.mark.parametrize("section", ["warm_start", "learner"])
def test_the_demos_text_is_refused_for_a_real_tokenizer_before_a_run(base, section, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(lzma.decompress((QWEN / "tokenizer.json.xz").read_bytes()))
    text = f"{base}/replay.parquet"
    values = {"warm_start": {"replay": {"path": text}}} if section == "warm_start" else {"learner": {"replay_path": text}}
    check_base(RetrainConfig(name="t", policy={"base": base}, rollout={"max_tokens": 400, "max_turn_tokens": 48}, **values))
    with pytest.raises(ConfigError, match=rf"{section}.replay.path: .*no id in it is above 424"):
        check_base(RetrainConfig(name="t", policy={"base": str(tmp_path)}, **values))
