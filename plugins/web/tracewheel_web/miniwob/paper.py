"""Pages without a browser, from which a tiny base learns to read a listing and to act by number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tracewheel import Observation, Task, play_calls
from tracewheel_web.environment import Call
from tracewheel_web.listing import listed
from tracewheel_web.miniwob.words import BUTTONS, CHARACTERS, genres, latin, lists
from tracewheel_web.page import View

WORDS = 200
MOST_OPTIONS = 10
ROWS = {
    "Color": "COLORS",
    "First name": "PEOPLE_NAMES",
    "Last name": "LAST_NAMES",
    "Country": "COUNTRIES",
    "Gender": "GENDERS",
    "Language": "LANGUAGES",
    "Religion": "RELIGIONS",
}
YEAR = "Year of Birth"


@dataclass
class Paper:
    """A page: its controls and texts, and what a call changes. The last call ends the episode."""

    system_prompt: str
    items: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0
    shown: set[str] = field(default_factory=set)

    def text(self, name: str) -> None:
        """Add a text."""
        self.items.append({"ref": 0, "role": "text", "name": name, "seen": True})

    def control(self, role: str, name: str = "", **more: Any) -> int:
        """Add a control; its number."""
        ref = 1 + sum(item["ref"] > 0 for item in self.items)
        self.items.append({"ref": ref, "role": role, "name": name, "seen": True, **more})
        return ref

    def listing(self) -> str:
        """What is shown of it now."""
        text, self.shown = listed(View(tuple(self.items)), self.shown, WORDS, address=False)
        return text

    def reset(self, task: Task) -> None:
        """The prompt has shown the page."""

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """Carry out a call."""
        self.left -= 1
        if self.left <= 0:
            return Observation("", done=True)
        item = next(item for item in self.items if item["ref"] == args["ref"])
        before = dict(item)
        if tool == "fill":
            item["value"] = "•" * len(args["text"]) if item.get("secret") else args["text"]
        elif tool == "select":
            item["value"] = args["option"]
        elif item["role"] in ("checkbox", "radio"):
            item["state"] = ["checked"]
        elif "row_of" in item:
            item["state"] = ["selected"]
        return Observation("nothing changed" if item == before else self.listing())


def played(page: Paper, asked: str, calls: list[Call]) -> list[dict[str, Any]]:
    """The messages of an episode on a page."""
    page.left = len(calls)
    prompt = f"{asked}\n\n{page.listing()}"
    return play_calls(page, Task("paper", "miniwob", "paper", 1, prompt, {}, {}, "verdict", "paper"), calls)


def click(ref: int) -> Call:
    return "click", {"ref": ref}


def fill(ref: int, text: str) -> Call:
    return "fill", {"ref": ref, "text": text}


def some_string(rng: random.Random) -> str:
    """A name as pages make them up."""
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(2, 7)))


def latin_text(rng: random.Random, most: int = 12) -> str:
    """Filling text."""
    words = [rng.choice(latin()) for _ in range(rng.randint(1, most))]
    return " ".join(word.capitalize() if rng.random() < 0.3 else word for word in words) + rng.choice(("", ".", ","))


def button_name(rng: random.Random) -> str:
    name = rng.choice(BUTTONS)
    return name.capitalize() if rng.random() < 0.5 else name


def row(rng: random.Random, label: str) -> str:
    """The value of a row of a table."""
    return str(rng.randint(1940, 2015)) if label == YEAR else rng.choice(lists()[ROWS[label]])


def options(rng: random.Random) -> list[str]:
    pool = lists()[rng.choice(("COUNTRIES", "PEOPLE_NAMES"))]
    return rng.sample(pool, rng.randint(3, MOST_OPTIONS))


Made = tuple[str, Paper, list[Call]]


def click_button(rng: random.Random, page: Paper) -> Made:
    refs: dict[str, int] = {}
    for _ in range(rng.randint(3, 6)):
        drawn = rng.random()
        if drawn < 0.33:
            page.text(latin_text(rng, 3))
        elif drawn < 0.55:
            page.control("textbox")
        else:
            name = button_name(rng)
            refs.setdefault(name, page.control("button", name))
    if not refs:
        refs["Ok"] = page.control("button", "Ok")
    name = rng.choice(list(refs))
    return f'Click on the "{name}" button.', page, [click(refs[name])]


def click_link(rng: random.Random, page: Paper) -> Made:
    refs: dict[str, int] = {}
    for _ in range(rng.randint(2, 6)):
        if rng.random() < 0.5:
            page.text(latin_text(rng))
        word = latin_text(rng, 1).rstrip(".,")
        refs.setdefault(word, page.control("clickable", word))
    word = rng.choice(list(refs))
    return f'Click on the link "{word}".', page, [click(refs[word])]


def click_dialog(rng: random.Random, page: Paper) -> Made:
    close = page.control("button", "Close")
    page.text(latin_text(rng))
    refs = {"x": close, "Cancel": page.control("button", "Cancel"), "OK": page.control("button", "OK")}
    name = rng.choice(list(refs))
    return f'Click the button in the dialog box labeled "{name}".', page, [click(refs[name])]


def choose_list(rng: random.Random, page: Paper) -> Made:
    known = options(rng)
    ref, name = page.control("combobox", options=known, value=known[0]), rng.choice(known)
    calls: list[Call] = [("select", {"ref": ref, "option": name})] if name != known[0] else []
    return f"Select {name} from the list and click Submit.", page, [*calls, click(page.control("button", "Submit"))]


def _chosen(role: str, rng: random.Random, page: Paper) -> Made:
    names = [some_string(rng) for _ in range(rng.randint(2, 6))]
    refs = [page.control(role, name) for name in names]
    wanted = [rng.randrange(len(names))] if role == "radio" else rng.sample(range(len(names)), rng.randint(1, len(names)))
    calls = [click(refs[place]) for place in sorted(wanted)]
    asked = f"Select {', '.join(names[place] for place in wanted)} and click Submit."
    return asked, page, [*calls, click(page.control("button", "Submit"))]


def click_option(rng: random.Random, page: Paper) -> Made:
    return _chosen("radio", rng, page)


def click_checkboxes(rng: random.Random, page: Paper) -> Made:
    return _chosen("checkbox", rng, page)


def login(rng: random.Random, page: Paper) -> Made:
    user, password = rng.choice(lists()["FIFTY_NAMES"]).lower(), some_string(rng)[:5]
    calls = []
    for label, value in (("Username", user), ("Password", password)):
        page.text(label)
        calls.append(fill(page.control("textbox", secret=label == "Password"), value))
    asked = f'Enter the username "{user}" and the password "{password}" into the text fields and press login.'
    return asked, page, [*calls, click(page.control("button", "Login"))]


def read_table(rng: random.Random, page: Paper) -> Made:
    rows = {label: row(rng, label) for label in rng.sample([*ROWS, YEAR], rng.randint(2, 5))}
    for label, value in rows.items():
        page.text(f"{label} | {value}")
    label = rng.choice(list(rows))
    calls = [fill(page.control("textbox"), rows[label]), click(page.control("button", "Submit"))]
    return f"Enter the value of {label} into the text field and press Submit.", page, calls


def search_film(rng: random.Random, page: Paper) -> Made:
    genre, director, year = rng.choice(genres()), rng.choice(lists()["LAST_NAMES"]), str(rng.randint(1970, 2017))
    page.text("Movie Search")
    fields, calls = [("Genre", genre), ("Director", director), ("Year", year)], []
    for label, value in rng.sample(fields, 3):
        page.text(label)
        calls.append(fill(page.control("textbox"), value))
    asked = f"Search for {genre} movies directed by {director} from year {year}."
    return asked, page, [*calls, click(page.control("clickable", "Submit"))]


def odd_or_even(rng: random.Random, page: Paper) -> Made:
    calls = []
    for number in [rng.randint(-5, 10) for _ in range(rng.randint(1, 3))]:
        odd = page.control("button", "Odd", row_of=number)
        page.text(str(number))
        even = page.control("button", "Even", row_of=number)
        calls.append(click(odd if number % 2 else even))
    asked = "Mark the numbers below as odd or even and press submit when done."
    return asked, page, [*calls, click(page.control("button", "Submit"))]


PAGES: dict[str, Callable[[random.Random, Paper], Made]] = {
    "click-button": click_button,
    "click-link": click_link,
    "click-dialog-2": click_dialog,
    "choose-list": choose_list,
    "click-option": click_option,
    "click-checkboxes": click_checkboxes,
    "login-user": login,
    "read-table": read_table,
    "multi-orderings": search_film,
    "odd-or-even": odd_or_even,
}
