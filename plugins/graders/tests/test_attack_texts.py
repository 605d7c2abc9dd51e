"""The core's table of texts for judges, as the words of an agent: rates, master keys among them."""

import json
from pathlib import Path

import pytest

from tracewheel_graders.judges.attacks import attack_in

TABLE = Path(__file__).parents[3] / "plugins/screening/tests/cases.jsonl"
CASES = [json.loads(line) for line in TABLE.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['language']}-{case['kind']}-{case['text'][:20]}")
def test_attacks_are_suspected_and_honest_texts_are_not(case):
    assert bool(attack_in(case["text"])) == case["attack"], attack_in(case["text"])
