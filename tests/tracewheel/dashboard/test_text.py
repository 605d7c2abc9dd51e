"""Values as text of a page."""

import pytest
from markupsafe import Markup

from tracewheel.dashboard import text
from tracewheel.dashboard.view import address, environment


@pytest.mark.parametrize(
    ("hidden", "named"),
    [
        ("\u202e", "202E"),
        ("\u2066", "2066"),
        ("\x1b", "001B"),
        ("\x00", "0000"),
        ("\u200b", "200B"),
        ("\ud800", "D800"),
        ("\U000e0041", "E0041"),
        ("\u2028", "2028"),
        ("\x85", "0085"),
        ("\r", "000D"),
    ],
)
def test_what_a_reader_does_not_see_is_named(hidden, named):
    assert text.seen(f"a{hidden}b") == f"a⟦U+{named}⟧b"


def test_tabs_and_line_ends_stay():
    assert text.seen("a\tb\nc é 漢 👍") == "a\tb\nc é 漢 👍"


def test_every_value_of_a_template_is_escaped_and_named():
    template = environment().from_string('<p title="{{ value }}">{{ value }}</p>')
    assert template.render(value='"><script>\u202e') == (
        '<p title="&#34;&gt;&lt;script&gt;⟦U+202E⟧">&#34;&gt;&lt;script&gt;⟦U+202E⟧</p>'
    )
    assert environment().from_string("{{ value }}").render(value=Markup("<b>")) == "<b>"
    assert environment().from_string("{{ value }}").render(value=None) == "–"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.5, "0.5 s"),
        (59, "59 s"),
        (60, "1 min 0 s"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds, said):
    assert text.duration(seconds) == said


def test_figures_and_shares():
    assert [text.figure(value) for value in (1234567, 0.12345, 1e-7, float("inf"), True, "x", None)] == [
        "1,234,567",
        "0.123",
        "1e-07",
        "–",
        "true",
        "x",
        "–",
    ]
    assert (text.percent(0.905), text.points(-0.05), text.points(None)) == ("90.5%", "−5.0", "–")
    assert text.interval((0.1, 0.2)) == "10.0% to 20.0%" and text.interval((None, None)) == "" and text.interval(()) == ""
    assert text.cut("x" * 30, 10) == "xxxxxxxxxx… (20 more characters)"


def test_addresses_are_quoted():
    assert address("runs", "a/b", "../c", q="x&y=1", empty="", none=None, run=["a/1", "b/2"]) == (
        "/runs/a%2Fb/..%2Fc?q=x%26y%3D1&run=a%2F1&run=b%2F2"
    )
    assert address("") == "/"
