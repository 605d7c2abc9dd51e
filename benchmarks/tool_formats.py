"""Our tool-call parsers beside vLLM's, on every turn that vLLM's own tests hold.

    .venv-vllm/bin/python benchmarks/tool_formats.py FOLDER --tokenizer QWEN3 [--json FILE]

FOLDER is an unpacked source distribution of vLLM, in the version that is installed; nothing of it is copied. QWEN3 is a folder
with a tokenizer; the markers that it lacks are added. Inputs are the texts in the test files that hold a format's marker.
gpt-oss has no row: vLLM parses its tokens, not its text.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

from tracewheel.chat.formats import make_format
from tracewheel.core.strict_json import parse_json

# Our format, vLLM's parser, its test files, and texts of which a turn holds one.
SIDES = [
    ("hermes", "hermes", ["tool_parsers/test_hermes_tool_parser.py"], ["<tool_call>"]),
    ("llama3_json", "llama3_json", ["tool_parsers/test_llama3_json_tool_parser.py"], ["{"]),
    ("qwen3_coder", "qwen3_coder", ["tool_parsers/test_qwen3coder_tool_parser.py"], ["<function=", "<tool_call>"]),
    ("mistral", "mistral", ["parser/mistral/test_tool_calls.py"], ["[TOOL_CALLS]"]),
    ("deepseek", "deepseek_v3", ["tool_parsers/test_deepseekv3_tool_parser.py"], ["<｜tool"]),
    ("deepseek", "deepseek_v31", ["tool_parsers/test_deepseekv31_tool_parser.py"], ["<｜tool"]),
    ("pythonic", "pythonic", ["tool_parsers/test_pythonic_tool_parser.py"], ["["]),
    ("pythonic", "llama4_pythonic", ["tool_parsers/test_llama4_pythonic_tool_parser.py"], ["["]),
]
MARKERS = ["<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<|python_start|>", "<|python_end|>"]
MARKERS += [f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")]


def turns_of(path: Path, holds: list[str]) -> list[str]:
    """The different texts of a test file that hold one of `holds`, longest pieces first put together, in order."""
    tree = ast.parse(path.read_text())
    known: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _text(node.value, known)
            if value is not None:
                known[node.targets[0].id] = value
    found: dict[str, None] = {}
    inner: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in inner or not isinstance(node, ast.expr):
            continue
        value = _text(node, known)
        if value is not None:
            inner |= {id(part) for part in ast.walk(node)}
            if any(each in value for each in holds):
                found[value] = None
    return list(found)


def _text(node: ast.expr, known: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left, known), _text(node.right, known)]
    elif isinstance(node, ast.JoinedStr):
        parts = [_text(part.value if isinstance(part, ast.FormattedValue) else part, known) for part in node.values]
    elif isinstance(node, ast.Name):
        return known.get(node.id)
    else:
        return None
    return None if any(part is None for part in parts) else "".join(map(str, parts))


def tools() -> list[dict[str, Any]]:
    """Schemas of the tools that the tests call with typed arguments."""
    typed = {
        "get_current_weather": {"city": "string", "state": "string", "unit": "string"},
        "calculate_area": {"shape": "string", "dimensions": "object", "precision": "integer"},
        "test_types": {"int_param": "integer", "float_param": "number", "bool_param": "boolean", "obj_param": "object"},
    }
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}},
            },
        }
        for name, properties in typed.items()
    ]


def vllm_calls(parser: str, tokenizer: Any, text: str) -> list[Any] | str:
    """The calls of vLLM as (name, arguments), or the name of the error that it raised."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    request = ChatCompletionRequest(messages=[], model="model", tools=tools())
    try:
        made = ToolParserManager.get_tool_parser(parser)(tokenizer, request.tools)
        calls = made.extract_tool_calls(text, request).tool_calls
    except Exception as error:  # whatever it raises is its answer
        return type(error).__name__
    return [[call.function.name, _value(call.function.arguments)] for call in calls]


def _value(arguments: str) -> Any:
    try:
        return parse_json(arguments)
    except ValueError:
        return f"not JSON: {arguments}"


def compare(ours: list[Any], malformed: list[str], theirs: list[Any] | str) -> str:
    if ours == theirs:
        return "same, and a malformed one is told" if malformed else "same"
    if isinstance(theirs, str):
        return "vLLM raises"
    if not ours:
        return "we: malformed; vLLM: calls" if malformed else "we: words; vLLM: calls"
    return "we: calls; vLLM: none" if not theirs else "other calls"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--tokenizer", required=True)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(options.tokenizer)
    older = PreTrainedTokenizerFast.from_pretrained(options.tokenizer)  # without [ARGS], vLLM reads Mistral's arrays
    older.add_tokens([marker for marker in MARKERS if marker != "[ARGS]"])
    tokenizer.add_tokens(MARKERS)
    differences = []
    print("| our format | vLLM's parser | turns | " + "how they compare |\n|---|---|---|---|")
    for name, parser, files, holds in SIDES:
        made, counts = make_format(name), Counter[str]()
        texts = [text for file in files for text in turns_of(options.folder / "tests" / file, holds)]
        for text in texts:
            parsed = made.parse(text, tools())
            ours = [[call.name, call.arguments] for call in parsed.calls if not call.malformed]
            malformed = [call.malformed for call in parsed.calls if call.malformed]
            arrays = parser == "mistral" and text.partition("[TOOL_CALLS]")[2].lstrip().startswith(("[", "{"))
            theirs = vllm_calls(parser, older if arrays else tokenizer, text)
            found = compare(ours, malformed, theirs)
            counts[found] += 1
            if not found.startswith("same"):
                difference = {"format": name, "parser": parser, "how": found, "text": text, "ours": ours, "vllm": theirs}
                differences.append({**difference, "malformed": malformed})
        print(f"| {name} | {parser} | {len(texts)} | {', '.join(f'{how}: {n}' for how, n in counts.most_common())} |")
    if options.json:
        options.json.write_text(json.dumps(differences, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
