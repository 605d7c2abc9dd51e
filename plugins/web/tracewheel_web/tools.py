"""The tools of a web agent. None opens an address, and none runs a script."""

from __future__ import annotations

from typing import Any

from tracewheel import function_tool

KEYS = (
    "Enter",
    "Tab",
    "Escape",
    "Backspace",
    "Delete",
    "Space",
    "ArrowUp",
    "ArrowDown",
    "ArrowLeft",
    "ArrowRight",
    "Home",
    "End",
)
REF = {"type": "integer", "description": "the number before a control"}
TEXT = {"type": "string", "maxLength": 2000}


def _among(values: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


TOOLS = {
    tool["function"]["name"]: tool
    for tool in (
        function_tool("click", "Click on a control.", {"ref": REF}),
        function_tool("fill", "Replace the text of a field.", {"ref": REF, "text": TEXT}),
        function_tool("select", "Choose an option of a list.", {"ref": REF, "option": {"type": "string"}}),
        function_tool("press", "Press a key.", {"key": _among(KEYS)}),
        function_tool("scroll", "Scroll the page.", {"direction": _among(("down", "up"))}),
        function_tool("back", "Go back to the page before.", {}),
        function_tool("tab", "Turn to another tab.", {"number": {"type": "integer"}}),
        function_tool("look", "Read the page again.", {}),
        function_tool("done", "End the work: the site is judged as it is.", {}),
    )
}
