"""A tokenizer in GGUF's terms.

llama.cpp splits text by rules that it knows by name, so a tokenizer is written only where its rule is one of `RULES`, or where
that of a GGUF file is copied field by field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracewheel import DataError, load_tokenizer, read_json

CONVERTER = "convert that folder with llama.cpp's convert_hf_to_gguf.py"
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
TEMPLATE_KEY, TOKENIZER_KEYS = "tokenizer.chat_template", "tokenizer."
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
SPACES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# llama.cpp's name of a rule, by how tokenizers describes it: the pattern, and whether ByteLevel splits words itself.
RULES = {
    ((rf"(?i:{WORDS}\p{{N}}{SPACES}",), False): "qwen2",
    ((rf"(?i:{WORDS}\p{{N}}{{1,3}}{SPACES}",), False): "llama-bpe",
    (("digits",), True): "smollm",
    ((), True): "gpt-2",
}


def add_tokenizer(writer: Any, folder: Path, copied: Path | None) -> None:
    """Write a model's tokenizer and its chat template.

    Args:
        writer: A `gguf.GGUFWriter`.
        folder: The model's folder.
        copied: A GGUF file whose tokenizer is copied; None for the folder's.

    Raises:
        DataError: llama.cpp knows no such tokenizer, or there is no such file.
    """
    if copied is None:
        _add(writer, folder)
    elif copied.is_file():
        _copy(writer, copied)
    else:
        raise DataError(f"--tokenizer {copied}: no such file")
    if template := load_tokenizer(folder).chat_template:
        writer.add_chat_template(template)


def _copy(writer: Any, file: Path) -> None:
    from gguf import GGUFReader, GGUFValueType

    for name, field in GGUFReader(file).fields.items():
        if not name.startswith(TOKENIZER_KEYS) or name == TEMPLATE_KEY:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, inner)


def _add(writer: Any, folder: Path) -> None:
    from gguf import SpecialVocab

    path = folder / "tokenizer.json"
    content = read_json(path)
    model = content["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback") or "ByteLevel" not in str(content.get("pre_tokenizer")):
        raise _unknown(path, f"its model is {model.get('type')}, not byte-level BPE")
    size = max(_vocabulary_size(folder), len(model["vocab"]), *(token["id"] + 1 for token in content["added_tokens"]))
    tokens, kinds = [f"[PAD{number}]" for number in range(size)], [UNUSED] * size
    for text, number in model["vocab"].items():
        tokens[number], kinds[number] = text, NORMAL
    for token in content["added_tokens"]:
        tokens[token["id"]], kinds[token["id"]] = token["content"], CONTROL if token["special"] else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_rule(path, content))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    special = SpecialVocab(folder, load_merges=bool(model["merges"]), n_vocab=size)
    special.chat_template = None
    special.add_to_gguf(writer, quiet=True)
    if not model["merges"]:
        writer.add_token_merges([_merge_without_effect(model["vocab"])])


def _merge_without_effect(vocabulary: dict[str, int]) -> str:
    """A merge for llama.cpp, which refuses a tokenizer without any: its result is no token, so it is taken apart again."""
    return next(f"{sign} {sign}" for sign in "!#$%&" if sign in vocabulary and 2 * sign not in vocabulary)


def _vocabulary_size(folder: Path) -> int:
    config = read_json(folder / "config.json")
    return int((config.get("text_config") or config)["vocab_size"])


def _rule(path: Path, content: dict[str, Any]) -> str:
    """llama.cpp's name of the rule by which text is split before pairs are merged.

    Raises:
        DataError: it knows no such rule.
    """
    if not content["model"]["merges"]:
        return "gpt-2"  # bytes are never merged, so it does not matter where text is split
    steps = content["pre_tokenizer"]
    steps = steps["pretokenizers"] if steps["type"] == "Sequence" else [steps]
    patterns, splits = [], False
    for step in steps:
        match step:
            case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
                patterns.append(pattern)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append("digits")
            case {"type": "ByteLevel", "add_prefix_space": False}:
                splits = bool(step.get("use_regex", True))
            case _:
                raise _unknown(path, f"it splits text by {step.get('type')}")
    if (tuple(patterns), splits) not in RULES:
        raise _unknown(path, f"it splits text by {patterns}")
    return RULES[tuple(patterns), splits]


def _unknown(path: Path, why: str) -> DataError:
    return DataError(f"{path}: no tokenizer that this export can write as GGUF ({why}); {CONVERTER}")
