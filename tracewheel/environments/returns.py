"""What the methods of a user's environment are to return."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import Observation

TOOL = 'a list of tools in OpenAI format: {"type": "function", "function": {"name": ..., "parameters": {JSON Schema}}}'
STATES = ("initial_state", "goal")
TEXTS = ("id", "environment", "family", "prompt", "verifier", "fingerprint")


def tools(value: Any) -> str:
    if not isinstance(value, list):
        return TOOL
    for place, tool in enumerate(value):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            return f"{TOOL}, which tool {place} is not"
        if problem := schema_problem(function.get("parameters", {})):
            return f"tools with valid schemas, but {function['name']!r} has none: parameters: {problem}"
    return ""


def schema_problem(schema: Any) -> str:
    """What is wrong with a JSON Schema of parameters, or ""."""
    if not isinstance(schema, dict):
        return "it is no JSON Schema object"
    try:
        return _problem_of(json.dumps(schema))
    except (TypeError, ValueError):
        return "it holds what is no JSON"


@lru_cache(maxsize=256)
def _problem_of(text: str) -> str:
    import jsonschema

    schema = json.loads(text)
    try:
        jsonschema.validators.validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"{error.json_path}: {error.message}"
    return "" if schema.get("type", "object") == "object" else '$.type: the parameters of a tool are an "object"'


def task(value: Any) -> str:
    if not isinstance(value, Task):
        return "a tracewheel.Task"
    fields: dict[str, Any] = vars(value)
    wrong = [name for name in TEXTS if not isinstance(fields[name], str) or not fields[name]]
    wrong += [name for name in STATES if state(fields[name])]
    wanted = "a dictionary of JSON values" if wrong and wrong[0] in STATES else "a text that is not empty"
    return f"a Task whose {wrong[0]} is {wanted}" if wrong else ""


def observation(value: Any) -> str:
    if not isinstance(value, Observation):
        return "a tracewheel.Observation"
    return "" if isinstance(value.text, str) else f"an Observation whose text is a text, not {type(value.text).__name__}"


def state(value: Any) -> str:
    right = isinstance(value, dict) and all(isinstance(name, str) for name in value)
    return "" if right else "a dictionary of JSON values, with names as keys"


def messages(value: Any) -> str:
    right = isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in value)
    return "" if right else "a list of messages in OpenAI chat format"


CHECKS = {
    "tools": tools,
    "task_from_log": task,
    "reset": lambda _: "",
    "step": observation,
    "reply": observation,
    "snapshot": state,
    "opening": messages,
}
