"""What a base can hold: its window, and the ids of its tokenizer. Read from its files, without loading it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.files import read_table
from tracewheel.core.types import content_hash
from tracewheel.policy.adapters import base_folder

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.config import RetrainConfig, RolloutConfig

# Metadata of a file of token ids: the fingerprint of the tokenizer that made them.
TOKENIZER_KEY = b"tracewheel.tokenizer"
# Without a fingerprint, ids that all lie in the lowest part of a vocabulary are those of a smaller one.
LEAST_REACH = 0.25


def window_of(base: str) -> int | None:
    """The most positions that a base takes, with its RoPE scaling; None where its config sets none.

    Raises:
        DataError: there is no such base.
    """
    file = base_folder(base) / "config.json"
    if not file.is_file():
        return None
    config: dict[str, Any] = json.loads(file.read_text())
    config = config.get("text_config") or config
    window = config.get("max_position_embeddings")
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    if window and original and factor:
        window = max(window, int(original * factor))
    return window


def check_window(base: str, rollout: RolloutConfig) -> None:
    """Check that a conversation of `rollout.max_tokens` fits the base.

    Raises:
        ConfigError: it does not; the message says what to set.
        DataError: there is no such base.
    """
    window = window_of(base)
    if window and rollout.max_tokens > window:
        raise ConfigError(
            f"rollout.max_tokens is {rollout.max_tokens}, but the base {base} has a window of {window} tokens "
            f"(max_position_embeddings): set rollout.max_tokens to at most {window}"
        )


def tokenizer_fingerprint(base: str) -> str | None:
    """A hash of what each id of a base's tokenizer stands for; None for a base without `tokenizer.json`.

    Raises:
        DataError: there is no such base.
    """
    names = _names(base)
    return content_hash(sorted(names.items())) if names else None


def read_token_ids(path: Path, base: str, key: str) -> pd.DataFrame:
    """A file of token ids (`input_ids` and `assistant_masks`) for this base.

    Args:
        path: Parquet; its metadata may hold the fingerprint of the tokenizer (`TOKENIZER_KEY`).
        base: The base that reads it.
        key: Setting that names the file, for the error.

    Raises:
        ConfigError: the ids are those of another tokenizer.
        DataError: the file cannot be read, or there is no such base.
    """
    table = read_table(path)
    if "input_ids" not in table:
        raise DataError(f"{key}: {path} has no column input_ids")
    names = _names(base)
    if not names or table.empty:
        return table
    made_by = _fingerprint_in(path)
    if made_by is not None:
        if made_by != tokenizer_fingerprint(base):
            raise _other_tokenizer(key, path, base, "its metadata names another tokenizer")
        return table
    largest, last = max(int(max(ids)) for ids in table["input_ids"] if len(ids)), max(names)
    if largest > last:
        raise _other_tokenizer(key, path, base, f"it holds the id {largest}, and the base's last is {last}")
    if largest < LEAST_REACH * last:
        raise _other_tokenizer(key, path, base, f"no id in it is above {largest}, and the base's go up to {last}")
    return table


def write_token_ids(rows: list[dict[str, list[int]]], path: Path, base: str) -> None:
    """Write rows of token ids with the fingerprint of the tokenizer that made them."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(pd.DataFrame(rows))
    fingerprint = tokenizer_fingerprint(base)
    extra = {TOKENIZER_KEY: fingerprint.encode()} if fingerprint else {}
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **extra}), path)


def check_base(config: RetrainConfig) -> None:
    """Check before a run that its base can hold its episodes and read its replay text.

    Raises:
        ConfigError: it cannot; the message names the setting.
        DataError: the base or the text is missing.
    """
    check_window(config.policy.base, config.rollout)
    texts = {"warm_start.replay.path": config.warm_start.replay.path, "learner.replay_path": config.learner.replay_path}
    for key, path in texts.items():
        if path:
            read_token_ids(Path(path), config.policy.base, key)


def _other_tokenizer(key: str, path: Path, base: str, why: str) -> ConfigError:
    return ConfigError(
        f"{key}: {path} holds token ids of another tokenizer than that of {base}: {why}. Set {key} to null, or to text that "
        "this base's tokenizer has made"
    )


def _fingerprint_in(path: Path) -> str | None:
    import pyarrow.parquet as pq

    found = (pq.read_schema(path).metadata or {}).get(TOKENIZER_KEY)
    return found.decode() if found else None


def _names(base: str) -> dict[int, str]:
    file = base_folder(base) / "tokenizer.json"
    if not file.is_file():
        return {}
    stamp = file.stat()
    return _names_in(str(file), stamp.st_size, stamp.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _names_in(file: str, size: int, changed: int) -> dict[int, str]:
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    vocabulary = content["model"].get("vocab") or {}
    if isinstance(vocabulary, list):  # a unigram model's: pieces with their scores
        names = {number: str(piece[0]) for number, piece in enumerate(vocabulary)}
    else:
        names = {int(number): name for name, number in vocabulary.items()}
    return names | {int(token["id"]): token["content"] for token in content.get("added_tokens") or ()}
