"""Redaction takes time in proportion to a record's length, whatever the record holds."""

import base64
import json
import random

import pytest

from tests.timing import cpu_seconds
from tracewheel.config import RedactionConfig
from tracewheel.traces.redaction import known_values
from tracewheel.traces.redaction.detector import Triggers
from tracewheel.traces.redaction.known_values import KnownValues
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.redaction.unescaped import Unescaped

SIZE = 200_000
MOST_SECONDS = 4.0  # of CPU; the faults took 13 s and more, and grew with the square of the size


def random_bytes(seed=1):
    return random.Random(seed).randbytes(SIZE * 3 // 4)


def digits():
    return "".join(random.Random(2).choices("0123456789", k=SIZE))


TEXTS = {
    "an image in base64": lambda: json.dumps({"image": f"data:image/png;base64,{base64.b64encode(random_bytes()).decode()}"})[
        :-2
    ],
    "an image in lines of base64": lambda: base64.encodebytes(random_bytes()).decode(),
    "digits": digits,
    "many numbers": lambda: "".join(f"+4930{1000000 + number} " for number in range(SIZE // 13)),
    "many addresses": lambda: "".join(f"u{number}@ex{number}.org " for number in range(SIZE // 16)),
    "many passwords": lambda: "".join(f"password=a1b2c{number}d4 " for number in range(SIZE // 20)),
    "keys that only begin": lambda: "-----BEGIN PRIVATE KEY-----" * (SIZE // 27),
    "keys of PuTTY that only begin": lambda: "PuTTY-User-Key-File-2:" * (SIZE // 22),
    **{
        f"only {text!r}": lambda text=text: text * (SIZE // len(text))
        for text in ("a", "(", "=", "@", "\"'", "-----BEGIN ", "\\")
    },
}


@pytest.fixture(scope="module")
def redactor():
    return Redactor(RedactionConfig())


@pytest.mark.parametrize("name", TEXTS)
def test_a_fifth_of_a_megabyte_takes_seconds_at_most(redactor, name):
    raw = TEXTS[name]().encode()
    assert cpu_seconds(lambda: redactor.record_bytes(raw), MOST_SECONDS) < MOST_SECONDS


def test_long_texts_fire_the_same_triggers_as_short_ones():
    triggers = Triggers(["ab+c", "[0-9]{4}", "never"])
    text = b"x abbc 1234 "
    assert triggers.fired(text) == triggers.fired(text + b" " * 100_000) == [0, 1]


def test_many_known_values_are_found_as_few_are(monkeypatch):
    drawn = random.Random(3)
    values = {"".join(drawn.choices("ab-1 ü", k=drawn.randint(6, 9))) for _ in range(40)}
    text = Unescaped("".join(drawn.choices([*values, "x", "-", " ", "ü"], k=2_000)))
    few = list(KnownValues(("password", value) for value in values).find(text))
    monkeypatch.setattr(known_values, "FEW", 0)
    many = KnownValues(("password", value) for value in values)
    assert few and list(many.find(text)) == few
    assert many.may_be_in(text.plain) and not many.may_be_in("nothing of it")
