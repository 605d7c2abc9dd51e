"""The schemas of Anthropic's tools that a program carries out itself; no request holds them."""

from __future__ import annotations

from typing import Any


def _function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "input_schema": schema}


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


_BASH = {"command": _text("The command to run."), "restart": {"type": "boolean", "description": "Start the shell anew."}}
_EDITS = ["view", "create", "str_replace", "insert"]
_EDITOR = {
    "path": _text("The file or folder."),
    "file_text": _text("For create: the file's text."),
    "old_str": _text("For str_replace: the text to replace, which stands in the file once."),
    "new_str": _text("For str_replace: the text in its place."),
    "insert_line": {"type": "integer", "description": "For insert: the line after which the text goes, 0 for the beginning."},
    "insert_text": _text("For insert: the text."),
    "view_range": {"type": "array", "items": {"type": "integer"}, "description": "For view: the first and the last line."},
}


def known_tool(kind: str, name: str) -> dict[str, Any] | None:
    """A tool in Anthropic's form, by its type such as `bash_20250124`; None for one that no program carries out."""
    if kind.startswith("bash_"):
        return _function(name, "Run a command in a bash shell that stays open.", _BASH, [])
    if kind.startswith("text_editor_"):
        edits = [*_EDITS, "undo_edit"] if name == "str_replace_editor" else _EDITS
        command = {"type": "string", "enum": edits}
        return _function(name, "View, make and edit text files.", {"command": command, **_EDITOR}, ["command", "path"])
    return None
