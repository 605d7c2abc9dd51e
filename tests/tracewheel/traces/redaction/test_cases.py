"""The case tables: secrets and personal data go, ordinary strings stay (`benchmarks/redaction.py` prints the figures)."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tracewheel.config import RedactionConfig
from tracewheel.config.curation import PERSONAL_KINDS
from tracewheel.traces.redaction.redactor import Redactor

CASES = Path(__file__).parent / "cases"
SHARED = Path(__file__).parents[5] / "shared" / "traces"
EVERY = Redactor(RedactionConfig(personal=PERSONAL_KINDS))
DEFAULT = Redactor(RedactionConfig())
ASKED_FOR = {"name", "address"}  # kinds that a profile has to name


def redacted(redactor, text):
    return redactor.record_bytes(text.encode())[0].decode()


def cases(table):
    for line in (CASES / f"{table}.jsonl").read_text().splitlines():
        case = json.loads(line)
        value = "".join(case["value"])
        yield case["kind"], case["text"].replace("{}", value), value


def left(table, redactor):
    """Per kind, the cases whose value is left, and how many cases there are."""
    found, counts = [], Counter()
    for kind, text, value in cases(table):
        counts[kind] += 1
        after = redacted(redactor, text)
        longest = max(re.findall(r"\w+", value), key=len)
        if value in after or (len(longest) >= 6 and longest in after):
            found.append((kind, text))
    return found, counts


def test_secrets_are_gone():
    found, counts = left("secrets", DEFAULT)
    assert len(counts) > 100
    assert len(found) <= 0.05 * counts.total(), found


def test_personal_data_is_gone():
    found, counts = left("personal", EVERY)
    assert set(counts) == set(PERSONAL_KINDS)
    assert len(found) <= 0.1 * counts.total(), found
    by_kind = Counter(kind for kind, _ in found)
    assert all(by_kind[kind] <= 0.1 * number for kind, number in counts.items() if kind not in ASKED_FOR), found


def test_the_shipped_profile_finds_all_kinds_but_names_and_addresses():
    found, _ = left("personal", DEFAULT)
    assert {kind for kind, _ in found} >= ASKED_FOR
    assert sum(kind not in ASKED_FOR for kind, _ in found) <= 4, found


@pytest.mark.parametrize("redactor", [DEFAULT, EVERY], ids=["default", "every kind"])
def test_ordinary_strings_stay(redactor):
    texts = (CASES / "ordinary.txt").read_text().splitlines()
    assert len(texts) == 1000
    changed = [text for text in texts if redacted(redactor, text) != text]
    assert len(changed) <= 0.01 * len(texts), changed


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces lie beside the checkout")
def test_ordinary_strings_of_real_traces_stay():
    texts = set()
    for file in sorted(SHARED.glob("*/*.json")) + sorted(SHARED.glob("*/*.traj")):
        pending = [json.loads(file.read_text())]
        while pending:
            value = pending.pop()
            if isinstance(value, str) and len(value) < 5000 and not re.search(r"(?i)\w@\w|dob|birth", value):
                texts.add(value)
            elif isinstance(value, dict | list):
                pending += value.values() if isinstance(value, dict) else value
    sample = sorted(texts)[::2]
    assert len(sample) > 1000
    changed = [text for text in sample if redacted(DEFAULT, text) != text]
    assert len(changed) <= 0.01 * len(sample), changed


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("born 8 May 1990", "born 2 January 1900"),
        ('{"dob": "1990-05-08"}', '{"dob": "1900-01-02"}'),
        ("DOB: 02/14/1985", "DOB: 02/01/1900"),
        ("ether a4:5e:60:c2:1b:9f", "ether 00:00:5e:00:53:01"),
        ("SSN 536-90-2211", "SSN REDACTED_NATIONAL_ID_1"),
        ("part no. 536-90-2211", "part no. 536-90-2211"),
        ("order 415-867-5309 of 04/08/2025 20:11 for 8.8.8.8", "order 415-867-5309 of 04/08/2025 20:11 for 8.8.8.8"),
    ],
)
def test_stand_ins_keep_the_form(text, kept):
    assert redacted(DEFAULT, text) == kept
    assert redacted(DEFAULT, kept) == kept
