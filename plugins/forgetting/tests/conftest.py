"""The fixtures of the core's tests of `tasks/`, which this folder does not lie below."""

import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[3] / "tests" / "tasks" / "conftest.py"
spec = importlib.util.spec_from_file_location("forgetting_tasks_conftest", FILE)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
globals().update({name: value for name, value in vars(module).items() if type(value).__name__ == "FixtureFunctionDefinition"})
