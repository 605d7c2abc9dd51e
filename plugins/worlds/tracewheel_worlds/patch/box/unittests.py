"""Runs in the grading box: `python3 -I -S unittests.py`. Some of the tests it is given are wrong on purpose.

Comes in as JSON: `folders` to import from and the `modules` of tests. Goes out as JSON: whether each test passed, by its id.
Which tests should pass is not known here, so there is nothing to gain by saying otherwise.
"""

import json
import os
import sys
import unittest
from typing import Any


class Results(unittest.TestResult):
    """Whether each test passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: dict[str, bool] = {}

    def stopTest(self, test: Any) -> None:
        wrong = [one for one, _ in [*self.failures, *self.errors, *self.skipped, *self.expectedFailures]]
        self.passed[test.id()] = not any(one is test or getattr(one, "test_case", None) is test for one in wrong)
        super().stopTest(test)


def main() -> None:
    """Run the tests of the standard input."""
    asked = json.load(sys.stdin)
    os.write(1, b"ready\n")  # before any of the agent's code: what fails from here on is its own
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.path[:0] = [os.path.join(os.getcwd(), folder) for folder in asked["folders"]]
    results = Results()
    for module in asked["modules"]:
        unittest.defaultTestLoader.loadTestsFromName(module).run(results)
    os.write(answers, json.dumps(results.passed).encode())


if __name__ == "__main__":
    main()
