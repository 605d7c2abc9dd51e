"""A scripted agent for each kind of task of MiniWoB++ that we play."""

from __future__ import annotations

import re
from collections.abc import Callable

from tracewheel_web.scripted import Agent, Seen, Steps


def quoted(text: str) -> list[str]:
    return re.findall(r'"(.*?)"', text)


def between(text: str, before: str, after: str) -> str:
    return text.partition(before)[2].rpartition(after)[0]


def click_named(role: str, name: Callable[[str], str]) -> Agent:
    def agent(seen: Seen) -> Steps:
        yield "click", {"ref": seen.ref(role, name(seen.asked))}

    return agent


def submit(seen: Seen, name: str = "Submit", role: str = "button") -> Steps:
    yield "click", {"ref": seen.ref(role, name)}


def choose(role: str) -> Agent:
    """Checks what is named, then submits."""

    def agent(seen: Seen) -> Steps:
        wanted = between(seen.asked, "Select ", " and click Submit").split(", ")
        for item in [item for item in seen.all(role) if item["name"] in wanted]:
            seen = yield "click", {"ref": item["ref"]}
        yield from submit(seen)

    return agent


def select(end: str) -> Agent:
    def agent(seen: Seen) -> Steps:
        wanted = f", {between(seen.asked, 'Select ', end)}, "
        lists = [item for item in seen.view.items if "options" in item]
        for option in [option for option in lists[0]["options"] if f", {option}, " in wanted and option != lists[0]["value"]]:
            seen = yield "select", {"ref": lists[0]["ref"], "option": option}
        yield from submit(seen)

    return agent


def fill_each(
    texts: Callable[[Seen], list[str]], role: str = "textbox", end: str = "Submit", end_role: str = "button"
) -> Agent:
    """Fills the fields in turn; a dialog of the page that comes between is cancelled, and the field filled again."""

    def agent(seen: Seen) -> Steps:
        last = seen.ref(end_role, end)
        for text, item in zip(texts(seen), seen.all(role), strict=False):
            seen = yield "fill", {"ref": item["ref"], "text": text}
            if seen.all("button", "Cancel"):
                yield "click", {"ref": seen.ref("button", "Cancel")}
                seen = yield "fill", {"ref": item["ref"], "text": text}
        yield "click", {"ref": last}

    return agent


def table_value(seen: Seen) -> list[str]:
    wanted = between(seen.asked, "the value of ", " into the text field")
    return [rows[wanted] for rows in [table(seen)]]


def table_values(seen: Seen) -> list[str]:
    return [table(seen)[text.removesuffix(":")] for text in seen.texts if text.endswith(":")]


def table(seen: Seen) -> dict[str, str]:
    return dict(text.split(" | ", 1) for text in seen.texts if " | " in text)


def word(seen: Seen) -> list[str]:
    place = int(re.findall(r"(\d+)(?:st|nd|rd|th) word", seen.asked)[0])
    return [re.sub("[^a-zA-Z]", "", seen.texts[0].split()[place - 1])]


def arithmetic(seen: Seen) -> list[str]:
    left, sign, right = seen.texts[0].removesuffix("=").split()
    return [str({"+": int(left) + int(right), "-": int(left) - int(right), "x": int(left) * int(right)}[sign])]


def algebra(seen: Seen) -> list[str]:
    left, sign, right, _, value = seen.texts[0].split()
    if left == "x":
        return [str(int(value) - int(right) if sign == "+" else int(value) + int(right))]
    return [str(int(value) - int(left) if sign == "+" else int(left) - int(value))]


def date(seen: Seen) -> list[str]:
    month, day, year = re.findall(r"(\d+)/(\d+)/(\d+)", seen.asked)[0]
    return [f"{year}-{month}-{day}"]


def time(seen: Seen) -> list[str]:
    hour, minute, half = re.findall(r"(\d+):(\d+)\D*(AM|PM)", seen.asked)[0]
    return [f"{int(hour) % 12 + 12 * (half == 'PM'):02d}:{minute}"]


def film(seen: Seen) -> list[str]:
    genre, director, year = re.findall(r"Search for (.*) movies directed by (.*) from year (\d+)", seen.asked)[0]
    known = {"Genre": genre, "Director": director, "Year": year}
    return [known[text] for text in seen.texts if text in known]


def odd_or_even(seen: Seen) -> Steps:
    items = seen.view.items
    for place, item in enumerate(items):
        if item["role"] == "text":
            odd, even = items[place - 1]["ref"], items[place + 1]["ref"]
            seen = yield "click", {"ref": odd if int(item["name"]) % 2 else even}
    yield from submit(seen)


def expand(seen: Seen) -> Steps:
    seen = yield "click", {"ref": seen.ref("tab")}
    yield from submit(seen)


def expand_and_find(seen: Seen) -> Steps:
    """Opens one section after the other until the link is there."""
    (wanted,) = quoted(seen.asked)
    for section in seen.all("tab"):
        seen = yield "click", {"ref": section["ref"]}
        if found := seen.all("clickable", wanted):
            yield "click", {"ref": found[0]["ref"]}


def find_greatest(seen: Seen) -> Steps:
    """Turns each card over, then the greatest once more."""
    values: dict[int, int] = {}
    for card in seen.all("clickable"):
        seen = yield "click", {"ref": card["ref"]}
        values[card["ref"]] = next(int(text) for text in seen.texts if text.isdigit())
    best = max(values, key=lambda ref: values[ref])
    if best in {item["ref"] for item in seen.view.items}:  # the last to be turned over lies open already
        seen = yield "click", {"ref": best}
    yield from submit(seen)


def first_quoted(text: str) -> str:
    return quoted(text)[0]


def login(end: str) -> Agent:
    return fill_each(lambda seen: quoted(seen.asked), end=end)


# Pages that do not show their problem at first: equal at first sight, they may differ.
HIDING = ("click-collapsible-2-nodelay", "find-greatest", "login-user-popup")
# By page, with the tier: 1 is one call, 2 several calls that are named, 3 asks to read, reckon or look for.
AGENTS: dict[str, tuple[int, Agent]] = {
    "choose-list": (2, select(" from the list")),
    "click-button": (1, click_named("button", first_quoted)),
    "click-checkboxes": (2, choose("checkbox")),
    "click-checkboxes-large": (2, choose("checkbox")),
    "click-checkboxes-transfer": (2, choose("checkbox")),
    "click-collapsible-2-nodelay": (3, expand_and_find),
    "click-collapsible-nodelay": (2, expand),
    "click-dialog": (1, click_named("button", lambda _: "Close")),
    "click-dialog-2": (1, click_named("button", lambda asked: first_quoted(asked).replace("x", "Close"))),
    "click-link": (1, click_named("clickable", first_quoted)),
    "click-option": (2, choose("radio")),
    "click-scroll-list": (2, select(" from the scroll list")),
    "click-tab": (1, click_named("tab", lambda asked: between(asked, "Click on ", "."))),
    "enter-date": (2, fill_each(date, "date")),
    "enter-password": (2, fill_each(lambda seen: 2 * quoted(seen.asked))),
    "enter-text-dynamic": (2, fill_each(lambda seen: quoted(seen.asked))),
    "enter-time": (2, fill_each(time, "time")),
    "find-greatest": (3, find_greatest),
    "find-word": (3, fill_each(word)),
    "login-user": (2, login("Login")),
    "login-user-popup": (3, login("OK")),
    "multi-orderings": (3, fill_each(film, end_role="clickable")),
    "odd-or-even": (3, odd_or_even),
    "read-table": (3, fill_each(table_value)),
    "read-table-2": (3, fill_each(table_values)),
    "simple-algebra": (3, fill_each(algebra)),
    "simple-arithmetic": (3, fill_each(arithmetic)),
}
