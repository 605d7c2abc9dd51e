"""Generic text for a tiny base policy of the web: to copy, to find a control by its name, to carry out orders on pages.

The pages are made on paper, of the kinds that logs are of. What a page asks in its own words the base sees of few kinds only;
of the others where it is told to go "by the page".
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterable
from typing import Any

from tracewheel_projects import World, chat_pieces, fixed_text
from tracewheel_web.environment import Call
from tracewheel_web.miniwob import paper
from tracewheel_web.miniwob.environment import SYSTEM_PROMPT, TOOL_NAMES
from tracewheel_web.miniwob.paper import PAGES, Paper, click, fill, played
from tracewheel_web.miniwob.words import BUTTONS, genres, latin, lists
from tracewheel_web.tools import TOOLS

Conversation = list[dict[str, Any]]
INVENTED = ("type",)
LONGEST_LIST = 5
BY_PAGE = "By the page: "
ORDERS = {
    "repeat": "Repeat: {text}",
    "number": 'Which numbers have "{names}"?\n{page}',
    "value": "What are {labels}?\n{page}",
    "press": 'Press "{name}". ',
    "write": 'Write "{text}" at {label}. ',
    "mark": 'Mark "{name}". ',
    "take": 'Take "{name}". ',
}
WORDINGS = (
    'Click on the "{}" button.',
    'Click on the link "{}".',
    'Click the button in the dialog box labeled "{}".',
    "Select {} from the list and click Submit.",
    "Select {} from the scroll list and click Submit.",
    "Select {}, {} and click Submit.",
    'Enter the username "{}" and the password "{}" into the text fields and press login.',
    'Enter the password "{}" into both text fields and press submit.',
    "Enter the value of {} into the text field and press Submit.",
    "Search for {} movies directed by {} from year {}.",
    "Mark the numbers below as odd or even and press submit when done.",
)
ROLES = ("button", "clickable", "combobox", "listbox", "textbox", "checkbox", "radio")
SAID = (
    "nothing changed",
    "error: ",
    "error: ref ",
    " is gone: the page changed",
    " takes no text",
    " has no option ",
    " is no list of options: click on what is wanted",
    "error: no tool named ",
    "error: arguments must be ",
    "\n(the rest as before)",
    "(gone: ",
)


def complete(rng: random.Random, families: tuple[str, ...]) -> Conversation:
    """A page of one of some kinds, as the page asks it."""
    asked, page, calls = PAGES[rng.choice(families)](rng, Paper(SYSTEM_PROMPT))
    return played(page, asked, calls)


def pieces() -> set[str]:
    """The strings of the pages that are one token each."""
    words = {*latin(), *genres(), *BUTTONS, *(name.lower() for name in lists()["FIFTY_NAMES"])}
    words |= {word.capitalize() for word in (*latin(), *BUTTONS)}
    words |= {word for name in ("COUNTRIES", "COLORS", "GENDERS", "LANGUAGES", "RELIGIONS") for word in lists()[name]}
    words |= {"OK", "x", "Close", "Login", "Odd", "Even", "Movie Search", "Genre", "Director", "Year", "Username", "Password"}
    words |= {*paper.ROWS, paper.YEAR, "Verify password"}
    numbers = {*map(str, range(100)), *map(str, range(1940, 2019))}
    syntax = {f" {role}" for role in ROLES} | {f' {role} "' for role in ROLES} | {" checked", " selected", ' = "', '" of "'}
    syntax |= {' of "', '", "', '"', "\n", "\n\n", "\n\n- ", "\n- ", " | ", ", ", ". ", ".", ",", " ", "-", "•", "none"}
    heads = {f'<tool_call>\n{{"name": "{name}", "arguments": {{"ref": ' for name in ("click", "fill", "select")}
    heads |= {', "text": "', ', "option": "', "}}\n</tool_call>"}
    said = {*fixed_text([*ORDERS.values(), *WORDINGS]), BY_PAGE, *SAID}
    tools = [TOOLS[name] for name in TOOL_NAMES]
    chat = chat_pieces(SYSTEM_PROMPT, tools, INVENTED, "text")
    return {*words, *numbers, *syntax, *heads, *said, *string.ascii_letters, *chat}


def _answer(question: str, reply: str) -> Conversation:
    roles = ("system", SYSTEM_PROMPT), ("user", question), ("assistant", reply)
    return [{"role": role, "content": content} for role, content in roles]


def _name(rng: random.Random) -> str:
    pools = (
        *(lambda name=name: rng.choice(lists()[name]) for name in ("COUNTRIES", "LAST_NAMES", "PEOPLE_NAMES", "LANGUAGES")),
        lambda: paper.some_string(rng),
        lambda: paper.some_string(rng),
        lambda: paper.button_name(rng),
        lambda: rng.choice(latin()),
        lambda: rng.choice(lists()["FIFTY_NAMES"]).lower(),
        lambda: rng.choice(genres()),
        lambda: str(rng.randint(1940, 2017)),
    )
    found: str = rng.choice(pools)()
    return found


def _repeat(rng: random.Random) -> Conversation:
    text = rng.choice((", ", "\n")).join(_name(rng) for _ in range(rng.randint(1, LONGEST_LIST)))
    return _answer(ORDERS["repeat"].format(text=text), text)


def _some_page(rng: random.Random) -> tuple[Paper, dict[str, int]]:
    """A page of controls with different names, and texts between them."""
    page, refs = Paper(SYSTEM_PROMPT), dict[str, int]()
    kind = rng.choice(ROLES[:2] + ROLES[5:])
    for name in dict.fromkeys(_name(rng) for _ in range(rng.randint(2, 6))):
        if rng.random() < 0.25:
            page.text(paper.latin_text(rng, 5))
        if rng.random() < 0.15:
            page.control("textbox")
        refs[name] = page.control(kind if rng.random() < 0.8 else "button", name)
    return page, refs


def _some(rng: random.Random, names: Iterable[str]) -> list[str]:
    """Up to four of them: the more an answer has to find, the sooner finding is learnt."""
    known = list(names)
    return rng.sample(known, rng.randint(1, min(4, len(known))))


def _number(rng: random.Random) -> Conversation:
    page, refs = _some_page(rng)
    names = _some(rng, refs)
    question = ORDERS["number"].format(names='", "'.join(names), page=page.listing())
    return _answer(question, "\n".join(f"{name} | {refs[name]}" for name in names))


def _value(rng: random.Random) -> Conversation:
    page = Paper(SYSTEM_PROMPT)
    rows = {label: paper.row(rng, label) for label in rng.sample([*paper.ROWS, paper.YEAR], rng.randint(2, 5))}
    for label, value in rows.items():
        page.text(f"{label} | {value}")
    labels = _some(rng, rows)
    question = ORDERS["value"].format(labels=", ".join(labels), page=page.listing())
    return _answer(question, "\n".join(f"{label} | {rows[label]}" for label in labels))


def _press(rng: random.Random) -> Conversation:
    page, refs = _some_page(rng)
    names = _some(rng, refs)
    return played(page, "".join(ORDERS["press"].format(name=name) for name in names), [click(refs[name]) for name in names])


def _write(rng: random.Random) -> Conversation:
    """Fields with labels, filled in the order of the page, whatever that of the orders."""
    page, orders, calls = Paper(SYSTEM_PROMPT), [], []
    known = ["Username", "Password", "Verify password", "Genre", "Director", "Year", *paper.ROWS]
    labels = rng.sample(known, rng.randint(1, 3))
    for label in labels:
        page.text(label)
        text = _name(rng)
        calls.append(fill(page.control("textbox", secret="assword" in label), text))
        orders.append(ORDERS["write"].format(text=text, label=label))
    rng.shuffle(orders)
    return played(page, *_ended(rng, page, orders, calls))


def _ended(rng: random.Random, page: Paper, orders: list[str], calls: list[Call]) -> tuple[str, list[Call]]:
    name = rng.choice(("Submit", "Login", "OK", paper.button_name(rng)))
    last = click(page.control("button", name))
    return "".join([*orders, ORDERS["press"].format(name=name)]), [*calls, last]


def _mark(rng: random.Random) -> Conversation:
    """Boxes to be marked in the order of the page."""
    page, names = Paper(SYSTEM_PROMPT), list(dict.fromkeys(paper.some_string(rng) for _ in range(rng.randint(1, 6))))
    role = rng.choice(("checkbox", "radio"))
    wanted = rng.sample(names, 1 if role == "radio" else rng.randint(1, len(names)))
    refs = {name: page.control(role, name) for name in names}
    orders = [ORDERS["mark"].format(name=name) for name in wanted]
    return played(page, *_ended(rng, page, orders, [click(refs[name]) for name in names if name in wanted]))


def _take(rng: random.Random) -> Conversation:
    page, known = Paper(SYSTEM_PROMPT), paper.options(rng)
    name = rng.choice(known)
    role, more = ("combobox", {"value": known[0]}) if rng.random() < 0.5 else ("listbox", {})
    call: Call = ("select", {"ref": page.control(role, options=known, **more), "option": name})
    return played(page, *_ended(rng, page, [ORDERS["take"].format(name=name)], [call]))


def _by_page(rng: random.Random) -> Conversation:
    """What a page asks, where it is said to go by the page."""
    asked, page, calls = PAGES[rng.choice(list(PAGES))](rng, Paper(SYSTEM_PROMPT))
    return played(page, BY_PAGE + asked, calls)


SKILLS: dict[str, Callable[[random.Random], Conversation]] = {
    "repeat": _repeat,
    "number": _number,
    "value": _value,
    "press": _press,
    "write": _write,
    "mark": _mark,
    "take": _take,
    "by_page": _by_page,
}

WORLD = World([TOOLS[name] for name in TOOL_NAMES], pieces, SKILLS, complete)
