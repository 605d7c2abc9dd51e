"""Pseudonyms for redacted values: consistent, in a form that tools accept, and recognisable.

| kind | pseudonym | why it belongs to nobody |
|---|---|---|
| e-mail | `user1@redacted.example.com` | RFC 2606 reserves the domain |
| phone | `+1 202-555-0100`, written as the number was | kept for fiction in North America |
| card | `9999 0000 0000 0018`: right length and check digit | no issuer begins with 9999 |
| IBAN | `DE49 0000 0000 0000 0000 01`: right length and check digits | an account of a bank without a number |
| IP | `198.18.0.1`, `2001:db8:ffff::1` | RFC 2544 and RFC 3849 reserve them |
| others | `REDACTED_PASSWORD_1` | |

No pseudonym has a character that JSON escapes, so it fits into JSON text at any depth.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from tracewheel.traces.redaction.personal_data import luhn_digit

MAIL_DOMAIN = "redacted.example.com"
# Real area codes, as some tools refuse others.
_AREAS = ("202", "212", "213", "303", "305", "312", "404", "415", "503", "512", "602", "617", "702", "713", "718", "206")
_CAPACITY = {"phone": 100 * len(_AREAS), "card": 10**8, "iban": 10**6, "ip": 2**16}
_LARGEST = 16**8
_FORMS = {
    "email": re.compile(rf"user[0-9a-f]+(?:@|%40){re.escape(MAIL_DOMAIN)}", re.IGNORECASE),
    "phone": re.compile(rf"\+?1?\D*(?:{'|'.join(_AREAS)})\D*555\D*01\d\d"),
    "card": re.compile(r"9999[\d -]+"),
    "iban": re.compile(r"[A-Z]{2}\d\d ?[0X](?: ?[0X]){4,}[\dX ]{0,12}", re.IGNORECASE),
    "ip": re.compile(r"198\.1[89]\.\d+\.\d+|2001:db8:ffff::[0-9a-f:]+", re.IGNORECASE),
}
_OTHER = re.compile(r"REDACTED_[A-Z0-9_]+_[0-9a-f]+")


def is_pseudonym(kind: str, value: str) -> bool:
    """Whether a value of this kind is already a pseudonym."""
    form = _FORMS.get(kind)
    return bool(form and form.fullmatch(value)) or _OTHER.search(value) is not None


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
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._numbers: dict[tuple[str, str], int] = {}
        self._taken: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def identities(self) -> list[tuple[str, str]]:
        """The kind and identity of every value with a pseudonym."""
        return list(self._numbers)

    def of(self, kind: str, identity: str, written: str) -> str:
        """The pseudonym for a value, in the format of `written`."""
        number = self._number(kind, identity)
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
