"""Runs Harbor's own validator over a folder of ATIF documents, with a Python that has `harbor`; prints what it finds."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from harbor.utils.trajectory_validator import TrajectoryValidator

found, files = {}, sorted(Path(sys.argv[1]).rglob("*.json"))
for path in files:
    validator = TrajectoryValidator()
    if not validator.validate(path):
        found[path.name] = validator.get_errors()
print(json.dumps({"version": version("harbor"), "checked": len(files), "errors": found}))
