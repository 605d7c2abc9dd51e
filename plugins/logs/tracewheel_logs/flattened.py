"""Attributes of spans that were flattened into dotted paths, as lists and trees again."""

from __future__ import annotations

from typing import Any

from tracewheel import parsed_json

DEEPEST_PATH = 20


def nested_attributes(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """The list that was flattened into attributes such as `llm.input_messages.0.message.role`.

    The attribute named by the prefix itself may hold the list, or its JSON text.
    """
    whole = parsed_json(attributes.get(prefix))
    if isinstance(whole, list):
        return whole
    start = f"{prefix}."
    below = {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start) and value is not None}
    listed = _listed(unflattened(below))
    return listed if isinstance(listed, list) else []


def unflattened(flat: dict[str, Any]) -> dict[str, Any]:
    """The tree behind keys that are dotted paths."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        node = tree
        *parents, last = path.split(".", DEEPEST_PATH)
        for part in parents:
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            node = inner
        else:
            node[last] = value
    return tree


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdigit() and len(key) < 7 for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(value) for key, value in node.items()}
