"""A page as text."""

import pytest

from tracewheel_web.listing import line_of, listed
from tracewheel_web.page import View


def text(name, seen=True):
    return {"ref": 0, "role": "text", "name": name, "seen": seen}


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (text('3 button "Buy"'), '- 3 button "Buy"'),
        ({"ref": 3, "role": "button", "name": "Buy", "seen": True}, '3 button "Buy"'),
        ({"ref": 4, "role": "textbox", "name": 'a "b"', "value": "x", "seen": True}, '4 textbox "a \\"b\\"" = "x"'),
        ({"ref": 5, "role": "checkbox", "name": "", "state": ["checked"], "seen": True}, "5 checkbox checked"),
        (
            {"ref": 6, "role": "combobox", "name": "", "value": "b", "options": ["a", "b"], "seen": True},
            '6 combobox = "b" of "a", "b"',
        ),
        ({"ref": 7, "role": "link", "name": "mug", "row": "| 3 euros", "seen": True}, '7 link "mug" | 3 euros'),
    ],
)
def test_a_line(item, line):
    assert line_of(item) == line


def test_a_page_that_fits_is_shown_whole():
    view = View((text("one"), text("two", seen=False)), title="Desk", path="/", notes=("tab 1 of 2",))
    assert listed(view, frozenset(), 10, address=True) == (
        "page: Desk (/)\n(tab 1 of 2)\n- one\n- two",
        {"- one", "- two"},
    )
    assert listed(View(), frozenset(), 10, address=False) == ("(an empty page)", set())


def test_what_is_cut_is_said_and_what_is_in_sight_stays():
    view = View(tuple(text(f"line {number}", seen=number in (3, 4)) for number in range(8)), below=50)
    shown, known = listed(view, frozenset(), 6, address=False)
    assert shown == "(3 lines left out)\n- line 3\n- line 4\n(3 lines left out)\n(scroll down for more)"
    again, _ = listed(view, known | {"- line 0", "- line 1"}, 6, address=False)  # half of it is known: the rest follows
    assert again == "- line 2\n- line 5\n(2 lines left out)\n(the rest as before)\n(scroll down for more)"


def test_what_was_shown_is_not_repeated_and_what_is_gone_is_said():
    field = {"ref": 2, "role": "textbox", "name": "", "seen": True}
    before = View((text("one"), text("two"), field, *({**field, "ref": ref, "role": "button"} for ref in (3, 4))))
    _, known = listed(before, frozenset(), 20, address=False)
    after = View((*before.items[:2], {**field, "value": "x"}, before.items[3]))
    assert listed(after, known, 20, address=False)[0] == '2 textbox = "x"\n(gone: 4)\n(the rest as before)'


def test_another_page_is_read_from_its_beginning():
    view = View(tuple(text(f"line {number}") for number in range(5)))
    assert listed(view, {"- line 4"}, 3, address=False)[0].startswith("- line 0")


def test_a_long_text_is_cut_at_the_last_words():
    shown, _ = listed(View((text(" ".join("abcdefgh")),)), frozenset(), 5, address=False)
    assert shown == "- a b c d … (9 words)"
