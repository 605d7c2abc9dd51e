"""Modules about texts."""

from __future__ import annotations

import random

from tracewheel_worlds.patch.library.base import Bug, Module

WORDS = ["red", "Green", "blue", "old", "New", "house", "tree", "river", "Stone", "light", "dark", "moon", "sun", "Wind"]


def phrase(rng: random.Random) -> str:
    """A few words, perhaps with spaces around and between."""
    words = [rng.choice(WORDS) for _ in range(rng.randint(0, 4))]
    return rng.choice(["", " "]) + rng.choice([" ", "  "]).join(words) + rng.choice(["", " "])


def _letters(rng: random.Random) -> str:
    return "".join(rng.choice("abc") * rng.randint(1, 4) for _ in range(rng.randint(0, 5)))


def _fields(rng: random.Random) -> list[str]:
    return [rng.choice(["red", "", "a,b", 'say "x"', "7", "two words", ","]) for _ in range(rng.randint(1, 4))]


def _line(rng: random.Random) -> str:
    return rng.choice(["a,b", 'a,"b,c",d', ",", 'x,"say ""hi""",y', '"",1', "one", '"a,b","c"', "a,,b"])


def _version(rng: random.Random) -> str:
    return ".".join(str(rng.choice([0, 1, 2, 9, 10, 12])) for _ in range(rng.choice([2, 3, 3])))


LABELS = Module(
    "labels",
    '''"""Short forms of titles."""


def slug(title):
    """The words of a title in small letters, joined by hyphens."""
    return "-".join(title.lower().split())


def initials(name):
    """The first letters of the words, as capitals."""
    return "".join(word[0].upper() for word in name.split())


def shorten(text, width):
    """The text in at most `width` characters; one that is too long ends in `...`."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    return text[: width - 3] + "..."
''',
    {
        "slug": lambda rng: [phrase(rng)],
        "initials": lambda rng: [phrase(rng)],
        "shorten": lambda rng: [(text := phrase(rng)), rng.choice([len(text), rng.randint(0, 12)])],
    },
    (
        Bug(
            "condition",
            "title.lower().split())",
            'title.lower().split(" "))',
            "Titles with two spaces in a row, or at an end, get double hyphens.",
        ),
        Bug("missing_case", "word[0].upper()", "word[0]", "Initials of words in small letters stay small."),
        Bug("boundary", "len(text) <= width", "len(text) < width", "A text that fits exactly is cut."),
        Bug("boundary", "text[: width - 3]", "text[: width - 2]", "Shortened texts are one character too long."),
        Bug(
            "missing_case",
            "    if width < 3:\n        return text[:width]\n",
            "",
            "With a width below 3, a shortened text is longer than the width.",
        ),
    ),
)

RUNS = Module(
    "runs",
    '''"""Packing texts as runs of equal characters."""


def pack(text):
    """The runs of a text, as pairs of a character and its count."""
    runs = []
    for sign in text:
        if runs and runs[-1][0] == sign and runs[-1][1] < 9:
            runs[-1][1] += 1
        else:
            runs.append([sign, 1])
    return runs


def unpack(runs):
    """The text of runs; counts below 1 are left out."""
    return "".join(sign * count for sign, count in runs if count > 0)


def packed_length(text):
    """How many characters the packed form has, written as `a3b1`."""
    return 2 * len(pack(text))
''',
    {
        "pack": lambda rng: [_letters(rng) + rng.choice(["", "c" * rng.randint(8, 11)])],
        "unpack": lambda rng: [[[rng.choice("xyz"), rng.randint(-1, 4)] for _ in range(rng.randint(0, 4))]],
        "packed_length": lambda rng: [_letters(rng)],
    },
    (
        Bug("boundary", "runs[-1][1] < 9", "runs[-1][1] <= 9", "A run of ten is packed as one; a run holds at most nine."),
        Bug("boundary", "runs.append([sign, 1])", "runs.append([sign, 0])", "Packed runs are one character too short."),
        Bug("condition", "if count > 0)", "if count > 1)", "Single characters vanish when runs are unpacked."),
        Bug(
            "interplay",
            "2 * len(pack(text))",
            "2 * len(unpack(pack(text)))",
            "The packed length of a text with runs is much too large.",
        ),
        Bug(
            "condition",
            "runs[-1][0] == sign and",
            "sign in [run[0] for run in runs] and",
            "A character that came before joins the wrong run.",
        ),
    ),
)

FIELDS = Module(
    "fields",
    '''"""Lines of fields with commas between them, and quotes where a field needs them."""


def quoted(field):
    """A field as it stands in a line: in quotes if it has a comma or a quote, and each quote doubled."""
    if "," in field or '"' in field:
        return '"' + field.replace('"', '""') + '"'
    return field


def join_line(fields):
    """The line of some fields."""
    return ",".join(quoted(field) for field in fields)


def split_line(line):
    """The fields of a line."""
    fields, field, inside, place = [], "", False, 0
    while place < len(line):
        sign = line[place]
        if sign == '"':
            if inside and line[place + 1 : place + 2] == '"':
                field += '"'
                place += 1
            else:
                inside = not inside
        elif sign == "," and not inside:
            fields.append(field)
            field = ""
        else:
            field += sign
        place += 1
    return [*fields, field]
''',
    {
        "quoted": lambda rng: _fields(rng)[:1],
        "join_line": lambda rng: [_fields(rng)],
        "split_line": lambda rng: [_line(rng)],
    },
    (
        Bug(
            "missing_case",
            """if "," in field or '"' in field:""",
            """if "," in field:""",
            "A field with a quote and no comma is written without quotes.",
        ),
        Bug("missing_case", """.replace('"', '""')""", "", "Quotes within a field are not doubled."),
        Bug("condition", 'sign == "," and not inside', 'sign == ","', "A comma within quotes splits a field."),
        Bug(
            "boundary",
            "return [*fields, field]",
            "return [*fields, field] if field else fields",
            "An empty last field is lost.",
        ),
        Bug(
            "interplay",
            '",".join(quoted(field) for field in fields)',
            'quoted(",".join(fields))',
            "Lines of several fields come out as one field in quotes.",
        ),
    ),
)

VERSIONS = Module(
    "versions",
    '''"""Version numbers such as 1.10.2."""


def parts(text):
    """The numbers of a version; missing ones are 0."""
    numbers = [int(part) for part in text.split(".")]
    return numbers + [0] * (3 - len(numbers))


def newer(one, other):
    """Whether version `one` is newer than `other`."""
    return parts(one) > parts(other)


def latest(versions):
    """The newest version; the first of equal ones; None without any."""
    best = None
    for version in versions:
        if best is None or newer(version, best):
            best = version
    return best
''',
    {
        "parts": lambda rng: [_version(rng)],
        "newer": lambda rng: [
            (one := _version(rng)),
            rng.choice([one, _version(rng), one + ".0" if one.count(".") == 1 else one]),
        ],
        "latest": lambda rng: [[_version(rng) for _ in range(rng.randint(0, 4))]],
    },
    (
        Bug("condition", "return parts(one) > parts(other)", "return one > other", "Version 1.10 is taken for older than 1.9."),
        Bug("boundary", "parts(one) > parts(other)", "parts(one) >= parts(other)", "A version is newer than itself."),
        Bug(
            "missing_case",
            " + [0] * (3 - len(numbers))",
            "",
            "The parts of a version of two numbers lack the third, and 1.2.0 is newer than 1.2.",
        ),
        Bug(
            "missing_case",
            "if best is None or newer(version, best):",
            "if newer(version, best or version):",
            "There is never a latest version: the answer is None.",
        ),
        Bug("interplay", "newer(version, best)", "newer(best, version)", "The latest version is the oldest one."),
    ),
)

TEXTS = (LABELS, RUNS, FIELDS, VERSIONS)
