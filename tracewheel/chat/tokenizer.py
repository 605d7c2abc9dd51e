"""Loading of a base's tokenizer: from `tokenizer.json` as it stands, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_FILE = "tokenizer.json"


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a base's folder, as its `tokenizer.json` says.

    `AutoTokenizer` builds some classes anew instead: DeepSeek V3 names `LlamaTokenizerFast`, whose pre-tokeniser replaces
    its own under transformers 5, and text loses its spaces. Without that file the class that the folder names converts
    its vocabulary.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    plain = (Path(folder) / TOKENIZER_FILE).is_file()
    return (PreTrainedTokenizerFast if plain else AutoTokenizer).from_pretrained(str(folder))
