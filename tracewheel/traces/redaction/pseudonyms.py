"""Pseudonyms for redacted values: consistent, in a form that tools accept, and recognisable.

| kind | pseudonym | why it belongs to nobody |
|---|---|---|
| e-mail | `user1@redacted.example.com` | RFC 2606 reserves the domain |
| phone | `+1 202-555-0100`, written as the number was | kept for fiction in North America |
| card | `9999 0000 0000 0018`: right length and check digit | no issuer begins with 9999 |
| IBAN | `DE49 0000 0000 0000 0000 01`: right length and check digits | an account of a bank without a number |
| IP | `198.18.0.1`, `2001:db8:ffff::1` | RFC 2544 and RFC 3849 reserve them |
| MAC | `00:00:5e:00:53:01` | RFC 7042 keeps them for documents |
| birth date | `1900-01-02`, written as the date was | nobody is that old |
| others | `REDACTED_PASSWORD_1` | |

No pseudonym has a character that JSON escapes, so it fits into JSON text at any depth. Pseudonyms are recognised in every
text (`standins`), so that nothing is found within one: no value that it contains, and no digits that look like another kind.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from functools import cache

from tracewheel.config.curation import RedactionConfig
from tracewheel.core.types import content_hash
from tracewheel.traces.redaction.detector import Triggers
from tracewheel.traces.redaction.personal_data import luhn_digit

MAIL_DOMAIN = "redacted.example.com"
# Real area codes, as some tools refuse others.
_AREAS = ("202", "212", "213", "303", "305", "312", "404", "415", "503", "512", "602", "617", "702", "713", "718", "206")
_CAPACITY = {"phone": 100 * len(_AREAS), "card": 10**8, "iban": 10**6, "ip": 2**16, "mac": 2**8, "birth_date": 5 * 12 * 12}
_LARGEST = 16**8
# Between the digits of a number, which is written as the value was: `(20) 2555-0100`.
_GAP = r"[^0-9A-Za-z\n]{0,4}"
_IDENTITIES = ("user", "session", "task", "trace", "call", "file")
_MONTHS: tuple[str, ...] = ("January", "February", "March", "April", "May", "June", "July", "August", "September")
_MONTHS += ("October", "November", "December")
_FORMS = {
    "email": rf"(?i:user[0-9a-f]+(?:@|%40){re.escape(MAIL_DOMAIN)})",
    "phone": rf"(?<![0-9])(?:\+?1{_GAP})?(?:{'|'.join(map(_GAP.join, _AREAS))}){_GAP}"
    rf"{_GAP.join('55501')}(?:{_GAP}[0-9]){{2}}(?![0-9])",
    "card": rf"(?<![0-9]){_GAP.join('9999')}(?:{_GAP}[0-9]){{8,15}}(?![0-9])",
    "iban": r"(?<![A-Za-z0-9])(?i:[A-Z]{2}[0-9]{2} ?[0X](?: ?[0X]){4,}[0-9X ]{0,12})(?![A-Za-z0-9])",
    "ip": r"(?<![0-9])198\.1[89]\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9])|(?i:2001:db8:ffff::[0-9a-f:]+)",
    "mac": r"(?<![0-9A-Za-z])(?i:00[:.\-]?00[:.\-]?5e[:.\-]?00[:.\-]?53[:.\-]?[0-9a-f]{2})(?![0-9A-Za-z])",
    "birth_date": r"(?<![0-9])(?:190[0-4][-/. ]?[01][0-9][-/. ]?[01][0-9]|[01][0-9][-/. ][01][0-9][-/. ]190[0-4]"
    rf"|(?:{'|'.join(_MONTHS)}) [0-9]{{1,2}}, 190[0-4]|[0-9]{{1,2}} (?:{'|'.join(_MONTHS)}) 190[0-4])(?![0-9])",
    "": r"REDACTED_[A-Z0-9_]+_[0-9a-f]+",
    "identity": rf"(?<![A-Za-z0-9])(?:{'|'.join(_IDENTITIES)})-[0-9a-f]{{16}}(?![A-Za-z0-9])",
}
_STANDIN = re.compile("|".join(_FORMS.values()))
_BY_KIND = {kind: re.compile(form) for kind, form in _FORMS.items()}
KEY_VARIABLE = "TRACEWHEEL_REDACTION_KEY"


def key_digest(config: RedactionConfig) -> dict[str, str]:
    """A digest of the pseudonyms' key, as stored data depend on it; empty without a key."""
    key = os.environ.get(KEY_VARIABLE, "")
    return {"redaction key": content_hash(["redaction key", key])} if key and config.enabled else {}


def standins(text: str) -> list[tuple[int, int]]:
    """The spans of the pseudonyms in a text."""
    return [match.span() for match in _STANDIN.finditer(text)]


@cache
def _in_bytes() -> Triggers:
    """A quick search for pseudonyms in long texts; of digits beside others, it finds more than there are."""
    return Triggers([re.sub(r"\(\?<?![^)]*\)", "", form) for form in _FORMS.values()])


def is_pseudonym(kind: str, value: str) -> bool:
    """Whether a value of this kind is already a pseudonym."""
    return _BY_KIND.get(kind, _BY_KIND[""]).fullmatch(value.strip("( ")) is not None


def identity_pseudonym(label: str, value: str, key: bytes) -> str:
    """A pseudonym for a whole user, session or id, the same in all traces: `user-` and 16 digits of a keyed hash.

    The hash is HMAC-SHA256; without a key, anybody who guesses the value can verify the guess.
    """
    return f"{label}-{hmac.new(key, f'{label} {value}'.encode('utf-8', 'surrogatepass'), hashlib.sha256).hexdigest()[:16]}"


class Pseudonyms:
    """The pseudonyms of one trace: equal identities get equal ones, different identities different ones.

    Args:
        key: With a key, numbers derive from the value and the key, so they agree across traces; without one they count up
            in the order of appearance.
        taken: Text whose pseudonyms stand for other values, of an earlier redaction.
    """

    def __init__(self, key: bytes | None = None, taken: str = "") -> None:
        self._key = key
        self._taken_text = taken if key is None else ""
        self._others = ""
        self._numbers: dict[tuple[str, str], int] = {}
        self._taken: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def identities(self) -> list[tuple[str, str]]:
        """The kind and identity of every value with a pseudonym."""
        return list(self._numbers)

    def of(self, kind: str, identity: str, written: str) -> str:
        """The pseudonym for a value, in the format of `written`."""
        made = self._form(kind, self._number(kind, identity), written)
        if self._taken_text:
            self._others = "\n".join(_in_bytes().found(self._taken_text))
            self._taken_text = ""
        while self._others and made in self._others and len(self._taken[kind]) < _CAPACITY.get(kind, _LARGEST):
            del self._numbers[kind, identity]
            made = self._form(kind, self._number(kind, identity), written)
        return made

    def _form(self, kind: str, number: int, written: str) -> str:
        match kind:
            case "email":
                at = "%40" if "%40" in written else "@"
                return f"user{number:x}{at}{MAIL_DOMAIN}" if self._key else f"user{number}{at}{MAIL_DOMAIN}"
            case "phone":
                return _phone(number, written)
            case "card":
                digits = f"9999{number:0{sum(map(str.isdigit, written)) - 5}d}"
                return _in_the_form_of(written, digits + luhn_digit(digits))
            case "iban":
                return _iban(number, written)
            case "ip" if ":" in written:
                return f"2001:db8:ffff::{number:x}"
            case "ip":
                return f"198.18.{number // 256}.{number % 256}"
            case "mac":
                return _in_the_form_of(written, f"00005e0053{number:02x}")
            case "birth_date":
                return _birth_date(number, written)
            case _:
                return f"REDACTED_{kind.upper()}_{number:x}" if self._key else f"REDACTED_{kind.upper()}_{number}"

    def _number(self, kind: str, identity: str) -> int:
        known = self._numbers.get((kind, identity))
        if known is not None:
            return known
        taken, capacity = self._taken.setdefault(kind, set()), _CAPACITY.get(kind, _LARGEST)
        if self._key is None:
            number = len(taken) + 1
        else:
            digest = hmac.new(self._key, f"{kind} {identity}".encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
            number = int.from_bytes(digest[:8], "big") % capacity
            while number in taken and len(taken) < capacity:
                number = (number + 1) % capacity
        number %= capacity
        taken.add(number)
        self._numbers[kind, identity] = number
        return number


def _birth_date(number: int, written: str) -> str:
    """A date from 1900 to 1904; its day and month may be exchanged."""
    day, month, year = 1 + number % 12, 1 + number // 12 % 12, 1900 + number // 144 % 5
    if any(c.isalpha() for c in written):
        name = _MONTHS[month - 1]
        return f"{name} {day}, {year}" if written[0].isalpha() else f"{day} {name} {year}"
    if written.isdigit():
        return f"{year}{month:02d}{day:02d}"
    between = next(c for c in written if not c.isdigit())
    parts = [f"{day:02d}", f"{month:02d}", str(year)]
    return between.join(parts[::-1] if written[:4].isdigit() else parts)


def _phone(number: int, written: str) -> str:
    digits = f"{_AREAS[number // 100 % len(_AREAS)]}55501{number % 100:02d}"
    given, start = re.sub(r"\D", "", written), written.lstrip("( ")
    if len(given) == 11 and given[0] == "1" and not start.startswith("00"):
        return _in_the_form_of(written, "1" + digits)
    if start.startswith(("+", "00")):
        return f"+1{digits}"
    return _in_the_form_of(written, digits) if len(given) == len(digits) else digits


def _iban(number: int, written: str) -> str:
    compact = written.replace(" ", "").upper()
    body = ["X" if c.isalpha() else "0" for c in compact[4:]]
    places = [place for place in range(len(body) - 1, -1, -1) if body[place] == "0"]
    for place, digit in zip(places, reversed(str(number)), strict=False):
        body[place] = digit
    account = "".join(body)
    as_digits = "".join(str(int(c, 36)) for c in f"{account}{compact[:2]}00")
    return _in_the_form_of(written, f"{compact[:2]}{98 - int(as_digits) % 97:02d}{account}")


def _in_the_form_of(written: str, characters: str) -> str:
    """Put the characters in the places of the letters and digits of `written`."""
    left = iter(characters)
    return "".join(next(left) if c.isalnum() else c for c in written)
