"""The bridge to the multi-turn entries of the Berkeley Function Calling Leaderboard. Runs in a Python with `bfcl-eval`.

Its instances are globals of a module, named by model and entry, and its calls are strings that it evaluates: so an episode has
a process of its own. Here a call is written from a known tool's name and from JSON values, so that nothing else is evaluated.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

CATEGORIES = ("multi_turn_base", "multi_turn_miss_param", "multi_turn_long_context")
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
MODEL = "tracewheel"


class World:
    """One episode of an entry."""

    def open(self, args: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
        self._entry, self._truth = _entry(start["id"])
        self._tools = {tool["name"]: tool for tool in _documents(self._entry)}
        self._turn = 0
        self._calls: list[list[list[str]]] = [[]]
        return {"tools": [_tool(tool) for tool in self._tools.values()], "text": "", "system": ""}

    def step(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        if tool not in self._tools:
            return {"text": f"error: no tool named {tool[:64]}", "error": True}
        if unknown := args.keys() - self._tools[tool]["parameters"]["properties"].keys():
            return {"text": f"error: {tool} takes no argument {min(unknown)[:64]}", "error": True}
        call = f"{tool}({', '.join(f'{name}={value!r}' for name, value in args.items())})"
        self._calls[-1].append([call])
        (said,) = self._execute([call])
        return {"text": said, "error": said.startswith("Error during execution")}

    def reply(self, text: str) -> dict[str, Any]:
        """The end of a turn: the user's next request, if there is one."""
        self._turn += 1
        if self._turn == len(self._entry["question"]):
            return {"text": "", "done": True}
        self._calls.append([])
        return {"text": _said(self._entry["question"][self._turn])}

    def close(self) -> dict[str, Any]:
        """The verdict of the leaderboard's own checker: states and replies after each turn. All turns must have ended."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        if self._turn < len(self._entry["question"]):
            return {"state": {"error": "the episode ended before the last turn"}, "verdict": {"reward": 0.0, "parts": {}}}
        category = self._entry["id"].rpartition("_")[0]
        found = multi_turn_checker(self._calls, self._truth, self._entry, category, MODEL)
        error = "" if found["valid"] else f"{found['error_type']}: {found['error_message']}"
        return {"state": {"error": error}, "verdict": {"reward": float(found["valid"]), "parts": {}}}

    def solution(self, args: dict[str, Any], start: dict[str, Any]) -> list[list[list[Any]]] | None:
        """The known calls of each turn, as [tool, arguments]; None where they are no plain calls."""
        self._entry, self._truth = _entry(start["id"])
        tools = {tool["name"]: list(tool["parameters"]["properties"]) for tool in _documents(self._entry, everything=True)}
        try:
            return [[_plain_call(call, tools) for call in turn] for turn in self._truth]
        except (ValueError, KeyError, SyntaxError, AttributeError):
            return None

    def _execute(self, calls: list[str]) -> list[str]:
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        entry = self._entry
        said, _ = execute_multi_turn_func_call(
            calls,
            entry["initial_config"],
            entry["involved_classes"],
            MODEL,
            entry["id"],
            long_context="long_context" in entry["id"],
        )
        return list(said)


def _entry(name: str) -> tuple[dict[str, Any], list[list[str]]]:
    """An entry and its known calls by turn."""
    category = name.rpartition("_")[0]
    if category not in CATEGORIES:
        raise ValueError(f"{name}: entries are of {', '.join(CATEGORIES)}")
    file = f"BFCL_v4_{category}.json"
    entry, truth = (_line(folder / file, name) for folder in (_data(), _data() / "possible_answer"))
    return entry, truth["ground_truth"]


def _line(path: Path, name: str) -> Any:
    for line in path.read_text(encoding="utf-8").splitlines():
        if (found := json.loads(line))["id"] == name:
            return found
    raise KeyError(f"{path.name} has no entry {name}")


def _data() -> Path:
    import bfcl_eval

    return Path(bfcl_eval.__file__).parent / "data"


def _documents(entry: dict[str, Any], everything: bool = False) -> list[dict[str, Any]]:
    """The descriptions of the tools that an entry offers."""
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    left_out = [] if everything else entry.get("excluded_function", [])
    found = []
    for name in entry["involved_classes"]:
        path = _data() / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [tool for tool in found if tool["name"] not in left_out]


def _tool(document: dict[str, Any]) -> dict[str, Any]:
    parts = {name: document[name] for name in ("name", "description")}
    return {"type": "function", "function": {**parts, "parameters": _schema(document["parameters"])}}


def _schema(value: Any) -> Any:
    """A JSON Schema from the leaderboard's own, which names types as Python does."""
    if isinstance(value, list):
        return [_schema(part) for part in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _schema(part) for name, part in value.items()}
    if isinstance(kind := value.get("type"), str):
        changed["type"] = TYPES.get(kind, kind)
    return changed


def _said(messages: list[dict[str, Any]]) -> str:
    return "\n\n".join(message["content"] for message in messages)


def _plain_call(text: str, tools: dict[str, list[str]]) -> list[Any]:
    """A call from its text, its arguments by name."""
    call: Any = ast.parse(text, mode="eval").body
    name = call.func.id
    arguments = {key: ast.literal_eval(value) for key, value in zip(tools[name], call.args, strict=False)}
    return [name, arguments | {word.arg: ast.literal_eval(word.value) for word in call.keywords}]
