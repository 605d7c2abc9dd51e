"""The tokenizer of the tiny base policy: every name and every piece of tool-call syntax is one token.

All other text falls back to a byte alphabet, so any text survives the round trip.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracewheel_projects.demo.chat_template import CHAT_TEMPLATE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END_OF_TURN, START_OF_TURN, PADDING = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
CONTEXT_LENGTH = 2048  # tokens


def build_tokenizer(pieces: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build the tokenizer; deterministic.

    Args:
        pieces: The strings that are one token each.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in (PADDING, START_OF_TURN, END_OF_TURN)])
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in in_order(pieces)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_LENGTH,
    )


def in_order(pieces: Iterable[str]) -> list[str]:
    """Each piece once, longest first, so that ids do not depend on set order."""
    return sorted(set(pieces), key=lambda piece: (-len(piece), piece))


def fixed_text(wordings: Iterable[str]) -> list[str]:
    """The fixed text between the fields of each wording."""
    return [text for wording in wordings for text, *_ in string.Formatter().parse(wording) if text]


def chat_pieces(system_prompt: str, tools: list[dict[str, Any]], invented: tuple[str, ...], argument: str) -> list[str]:
    """Tool-call syntax and the scaffolding around turns, as the chat template writes them.

    Args:
        system_prompt: Of the world.
        tools: Of the world.
        invented: Names of tools that do not exist and that logs call all the same, with `argument`.
        argument: The name of their first argument.
    """
    pieces = ["<tool_call>", "</tool_call>", '"}}\n</tool_call>', "{}}\n</tool_call>", '"}', '": "']
    for name in invented:
        pieces += [name, f'<tool_call>\n{{"name": "{name}", "arguments": {{"{argument}": "']
    for tool in tools:
        function = tool["function"]
        head = f'<tool_call>\n{{"name": "{function["name"]}", "arguments": '
        required = function["parameters"]["required"]
        pieces.append(head + (f'{{"{required[0]}": "' if required else "{}}\n</tool_call>"))
        pieces += [f'", "{parameter}": "' for parameter in required[1:]]
        pieces += ["\n" + json.dumps(tool, ensure_ascii=False), function["name"]]
    call_help = (
        "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:"
    )
    example = '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    tools_help = (
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
    )
    return [
        *pieces,
        f"system\n{system_prompt}",
        tools_help,
        f"\n</tools>\n\n{call_help}\n{example}",
        f"\n{START_OF_TURN}user\n<tool_response>\n",
        f"\n</tool_response>{END_OF_TURN}\n{START_OF_TURN}assistant\n",
        "\n</tool_response>\n<tool_response>\n",
        f"\n{START_OF_TURN}user\n",
        f"{END_OF_TURN}\n{START_OF_TURN}assistant\n",
    ]
