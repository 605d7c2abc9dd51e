"""What the checks advise is written, and nothing is written that no check says."""

import re
from pathlib import Path

import yaml

from tracewheel.report.doctor import CHECKS, finding
from tracewheel.report.doctor.finding import advice

CODE = Path(finding.__file__).parent


def test_each_advice_is_said_by_a_check():
    written = yaml.safe_load((CODE / "advice.yaml").read_text())
    named = {name for file in CODE.glob("checks/*.py") for name in re.findall(r'advice\("([\w.]+)"\)', file.read_text())}
    assert named <= written.keys() and all(advice(name) for name in written)
    assert {name.partition(".")[0] for name in written} <= CHECKS.keys()
