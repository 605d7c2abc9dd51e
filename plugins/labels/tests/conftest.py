"""The fixtures of the core's tests of the dashboard and of `tasks/`, which this folder does not lie below."""

import importlib.util
from pathlib import Path

TESTS = Path(__file__).parents[3] / "tests"
for path in ("tracewheel/dashboard", "tasks"):
    spec = importlib.util.spec_from_file_location(f"labels_{path.replace('/', '_')}", TESTS / path / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {name: value for name, value in vars(module).items() if type(value).__name__ == "FixtureFunctionDefinition"}
    globals().update(found)
