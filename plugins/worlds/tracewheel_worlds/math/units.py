"""The number of an answer and what stands beside it: a unit, or words that make it another answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

MONEY = "$€£"
# Words that change a number, join it to another, or take it back: with one of them it is no number with a unit.
CHANGING = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million millions mil mln
    billion billions bln trillion trillions quadrillion lakh lakhs crore crores myriad grand dozen dozens gross score half
    halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths
    tenth tenths hundredth hundredths thousandth thousandths millionth millionths double twice triple thrice squared cubed
    power powers root factorial plus minus add added subtract subtracted times multiplied divide divided over mod modulo
    remainder choose negative positive point infinity infinite pi tau exp log sin cos tan sqrt
    to through thru until till from between and or nor xor but versus either neither both alternatively else otherwise except
    excluding without if unless then is isn are aren was wasn be equals equal not no non none never cannot
    nothing wrong incorrect false untrue unknown undefined unsure guess maybe perhaps possibly probably approximately approx
    about around roughly nearly almost circa than more less least most fewer greater larger smaller bigger higher lower under
    above below beyond too short off
"""
# Shorter words are units only if they stand here; "k" and "M" may be a thousand and a million.
ABBREVIATED = """
    m g s h l V W J N A cm mm km nm µm um dm kg mg µg mL ml cl dl ft in yd mi lb oz pt qt hr ms µs ns min sec kW MW kJ MJ Hz kHz
    MHz GHz mV kV kN Pa kPa MPa KB kB MB GB TB Mb Gb °C °F °K ha ac cc rad deg mol mph kph kmh lbs hrs yds fps bps gal cal
    am pm AM PM
"""
NO_UNIT, SHORT_UNITS = frozenset(CHANGING.split()), frozenset(ABBREVIATED.split())
JOINING = frozenset(("of", "per", "in", "a", "an", "the", "each", "every"))
FUNCTIONS = frozenset(("sqrt", "sin", "cos", "tan", "log", "ln", "exp", "pi", "cot", "sec", "csc"))
COUNTED = frozenset(("and", "or"))  # several answers are counted before
SCIENTIFIC = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+))[eE]([-+]?\d{1,3})(?![\w.])\s*")
NUMBER_THEN = re.compile(r"^(.*?[\d.)}])\s*([%°a-zA-Zµ].*)$", re.DOTALL)
TEXT_THEN = re.compile(r"\\(?:text|mathrm|mbox|textrm|textbf|textnormal|rm)\s*\{([^{}]*)\}\s*((?:\^\s*(?:\d|\{\s*\d\s*\}))?)$")
POWER = r"(?:\^\s*(?:[23]|\{\s*[23]\s*\})|[²³])?"
WORDS = re.compile(rf"[%°]|°?[a-zA-Zµ]+\.?{POWER}(?:(?:\s+|\s*[/·]\s*|-)[a-zA-Zµ]+\.?{POWER}){{0,3}}")
WORD = re.compile(r"°?[a-zA-Zµ]+")
TEXT = re.compile(r"\\(?:text\w*|mathrm|mbox|operatorname|mathbf|rm)\s*\{([^{}]*)\}")
MIXED = re.compile(r"^(-?)(\d+)\s+(\d+)/(\d+)$")
TEN_TO = re.compile(r"(?<=\d)\s*[x×]\s*(?=10\s*\^)")


def without_unit(answer: str, known: Sequence[str] = ()) -> tuple[str, str]:
    """The number of an answer and its unit, "" where it has none or is more than a number with a unit.

    A dollar sign and thousands separators are taken off, a mixed number becomes a fraction, and `3e5` is 300000.

    Args:
        answer: The answer, without what marks it.
        known: Units besides those that any answer may have: up to four words, none of which changes a number.
    """
    text, unit = TEN_TO.sub(r" \\times ", answer), ""
    if match := SCIENTIFIC.match(text):
        plain = format(Decimal(f"{match.group(1)}e{match.group(2)}"), "f")
        text = f"{plain} {text[match.end() :]}".strip()
    if (match := TEXT_THEN.search(text.rstrip())) and match.start() and is_unit(match.group(1).strip() + match.group(2), known):
        text, unit = text[: match.start()].strip(), match.group(1).strip() + match.group(2)
    elif (match := NUMBER_THEN.match(text)) and is_unit(match.group(2), known):
        text, unit = match.group(1), match.group(2).strip()
    text = text.replace("\\%", "%")
    text = text[:-1].strip() if text.endswith("%") else text
    if match := MIXED.match(text):
        sign, whole, above, below = match.groups()
        text = f"{sign}{int(whole) * int(below) + int(above)}/{below}"
    return text, unit


def is_unit(text: str, known: Sequence[str] = ()) -> bool:
    """Whether a text after a number leaves it as it is.

    >>> [is_unit(text) for text in ("km/h", "eggs per day", "cm^2", "dozen", "plus 5", "is wrong", "x")]
    [True, True, True, False, False, False, False]
    """
    text = text.strip()
    if text.rstrip(".").lower() in [one.lower() for one in known] or text.lower() == "times":
        return True
    if not WORDS.fullmatch(text):
        return False
    words = WORD.findall(text)
    return all(word in SHORT_UNITS or word in JOINING if len(word) < 3 else True for word in words) and not (
        {word.lower() for word in words} & NO_UNIT or (words and words[0] in ("of", "a", "an", "the"))
    )


def words_beside(text: str) -> set[str]:
    r"""The words of a text, as it is after `without_unit`: those of prose, and of `\text{}`, but not names of variables."""
    prose = " ".join(TEXT.findall(text))
    plain = re.sub(r"\\[a-zA-Z]+", " ", TEXT.sub(" ", text))
    found = {word.lower() for word in re.findall(r"[^\W\d_]{2,}", plain)} - FUNCTIONS
    return (found | set(prose.lower().split())) - COUNTED


def changes_number(words: Iterable[str], gold: Iterable[str]) -> set[str]:
    """The words that an answer has beside its number and may not, given those of the right answer."""
    beside, right = set(words), set(gold)
    return (beside & NO_UNIT) - right if right else beside
