"""The detectors of personal data: e-mail addresses, phone numbers, cards, IBANs and IP addresses; other modules have the rest.

Patterns alone match too much: order numbers look like phone numbers, versions like addresses. So each candidate is checked:
phone numbers against their country's numbering plan (phonenumbers), cards by issuer and check digit (Luhn), IBANs by their
country's structure and check digits (python-stdnum), IP addresses by ipaddress.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from tracewheel.config.curation import PersonalKind
from tracewheel.traces.redaction.detector import Detector, any_of, read_forms, read_words
from tracewheel.traces.redaction.names_addresses import names_and_addresses
from tracewheel.traces.redaction.personal_places import personal_places
from tracewheel.traces.redaction.unescaped import QUOTES

_START, _END = r"(?<![\w.\-/+])", r"(?![\w\-/]|\.\d)"
_NOT_PERSONAL = (
    r"(?i)(?:part|p/n|pn|sku|order|invoice|ticket|tracking|serial|s/n|model|item|product|catalog(?:ue)?|case"
    r"|build|version|ref|commit|hash)"
    r"(?:[ _.\-]?(?:number|no|nr|id|code|key))?[\"'` \t:=#.]{0,4}$"
)
_WORDS = any_of("national_id_words")
_BEFORE_ID = rf"[ \t:=#.,()*°º№{QUOTES}\-]"
_NUMBER = r"[A-Z]{0,5}[ \-]?\d[\dA-Z]*(?:[ ./\-](?=[\dA-Z]*\d)[\dA-Z]{1,8}){0,7}(?:[ \-]?[A-Z](?!\w))?"
_NAMED = re.compile(
    rf"(?:\b|_|(?<=[a-z])){_WORDS}(?:[ _.\-]?(?:numbers?|num|no|nr|id|code|card|n°|nº|#)(?![A-Za-z]))*"
    rf"{_BEFORE_ID}{{1,8}}(?:(?:is|was|are|ist|est|es|:){_BEFORE_ID}{{1,4}})?({_NUMBER})(?![\w])",
    re.IGNORECASE | re.ASCII,
)


def _digits(written: str) -> str | None:
    """The letters and digits of a number of five to twenty digits."""
    compact = re.sub(r"[^0-9A-Za-z]", "", written).upper()
    return compact if 5 <= sum(map(str.isdigit, compact)) <= 20 else None


def _checked(module: str) -> Callable[[str], str | None]:
    @lru_cache(maxsize=4096)
    def identify(written: str) -> str | None:
        import importlib

        if not module:
            return _digits(written)
        try:
            valid: bool = importlib.import_module(f"stdnum.{module}").is_valid(written)
        except KeyError:  # stdnum 2 has no county for some places of China
            return None
        return re.sub(r"[^0-9A-Za-z+]", "", written).upper() if valid else None

    return identify


def national_ids() -> list[Detector]:
    """The detectors of national identifiers."""
    found = []
    for module, sign, form in read_forms("national_ids"):
        pattern = re.compile(_START + form + _END, re.ASCII)
        found.append(Detector("national_id", f"(?:{sign})", pattern, 0, _checked(module), unless=re.compile(_NOT_PERSONAL)))
    found.append(Detector("national_id", rf"(?i){_WORDS}(?:[^A-Za-z]|n[our]|id|code|card)", _NAMED, 1, _digits, ahead=100))
    return found


_EMAIL = re.compile(r"(?<![\w.+%])[\w+][\w.+%&'-]{0,80}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
_SPACE = r"[ \u00a0\u2007\u202f.\-\u2010\u2011\u2012\u2013/]"
_INTERNATIONAL = re.compile(
    rf"(?<![\w+.])(?:\+|(?<!\d )00(?=[1-9]))[ (]?\d(?:{_SPACE}?[()]?{_SPACE}?\d){{6,14}}(?!\w)", re.ASCII
)
_AMERICAN = re.compile(
    rf"(?<![\w.\-/])(?<!\d[ ,])(?:1{_SPACE})?"
    rf"(?:\(\d{{3}}\){_SPACE}?|\d{{3}}([ .\-]))\d{{3}}(?(1)\1|[ .\-])\d{{4}}(?![\w\-/])(?![ ,.]\d)",
    re.ASCII,
)
_NATIONAL = re.compile(
    r"(?<![\w.:\-/+])(?<!\d )(?<!\d: )\(?0\d{1,5}\)?(?:[ \u00a0/\-]\d{2,8}){1,5}(?![\w\-/])(?![.,]\d)"
    r"|(?<![\w.:\-/+])0\d(?:\.\d\d){4}(?![\w.])",
    re.ASCII,
)
_BETWEEN = r"[ \t\u00a0:=#.,()\"'`*-]"
_CALLED = re.compile(
    r"(?:\b|_|[a-z])(?:phone|telephone|tel|telefon|mobile|cell|fax|whatsapp|sms|call(?: me)?)(?:[ _]?(?:number|nr|no)\b)?"
    rf"{_BETWEEN}{{0,8}}(?:(?:is|at|on){_BETWEEN}{{1,4}})?(\+?\(?\d(?:{_SPACE}?[()]?{_SPACE}?\d){{6,14}})(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_DATE = re.compile(r"\d{1,4}[-/. ]\d{1,2}[-/. ]\d{1,4}\D*")
# A date, or a month and year, at the start of what looks like a phone number: `04/08/2025 20`, `08 2025 - 09`.
_DATED = re.compile(
    r"\(?\d{1,2}([/. \-])\d{1,2}\1(?:19|20)\d\d(?!\d)|\(?(?:19|20)\d\d([/. \-])\d{1,2}\2\d{1,2}(?!\d)"
    r"|\(?0?\d[/ .\-](?:19|20)\d\d(?!\d)"
    r"|\(?(?:0?[1-9]|[12]\d|3[01])[/.](?:0[1-9]|1[0-2]|[12]\d|3[01])[/.]\d\d [0-2]\d$|.*[ /.\-](?:19"
    r"|20)\d\d[/. \-](?:0[1-9]|1[0-2])[/. \-]\d\d"
)
_NUMBERED = r"(?:[ _.\-]?(?:number|no|nr|num|id|code|key))?s?[\"'`]?[ \t:=#.(]{0,4}$"
# What a number is that is no phone number, and a dotted one that is no address.
_THINGS = re.compile(rf"(?i)(?:\b|_){any_of('numbered_things')}" + _NUMBERED)
_NUMBERINGS = re.compile(
    rf"(?i)(?:\b|_){any_of('numberings')}"
    r"[\"'`]?[ \t:=#.(\"']{0,4}$|(?:§|[=~<>^]=|[A-Za-z]/)\s?$"
)
_CARD = re.compile(
    r"(?<![0-9A-Za-z])(?<![0-9][.\-])(?:\d{4}([ -]?)\d{4}\1\d{4}\1\d{1,7}"
    r"|3\d{3}([ -]?)\d{6}\2\d{4,5})(?![0-9A-Za-z])(?!\.\d)",
    re.ASCII,
)
_ISSUER = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|6(?:011"
    r"|5\d\d|4[4-9]\d)\d{12}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}|(?:50|5[6-9]|6[0-9])\d{14}"
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])", re.ASCII)
_IPV4 = re.compile(
    r"(?<![\w.\-])(?<![A-Za-z]/)(?<!==)(?<!version )(?<!Version )(?:\d{1,3}\.){3}\d{1,3}(?![\w\-]|\.\d)", re.ASCII
)
# An address whose numbers are as small as those of sections and versions, in a place for an address.
_PLACED_IPV4 = re.compile(
    r"(?:\b(?:ip(?:v4)?|addr(?:ess)?|host(?:name)?|client|server|peer|remote|source|src|dst|destination"
    r"|ping|ssh|connect(?:ed|ion)?(?: to)?|proxy|gateway|dns"
    r"|nameserver|inet|bind|listen(?:ing)?|forwarded-for|real-ip|login|visitor|nmap|telnet)(?:_?ip"
    r"|_?addr(?:ess)?)?[\"']?[ :=]{1,3}[\"'\[(]{0,2}|//)"
    r"((?:\d{1,3}\.){3}\d{1,3})(?![\w\-]|\.\d)",
    re.ASCII | re.IGNORECASE,
)
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){3,7}[0-9A-Fa-f]{0,4}(?:\.\d{1,3}){0,3}(?![\w:])", re.ASCII)
# Addresses that everybody knows or that are kept for documents (RFC 5737, 3849): they identify nobody.
_WELL_KNOWN = frozenset(read_words("well_known_addresses"))
_DOCUMENTS = ("192.0.2.", "198.51.100.", "203.0.113.", "2001:db8:", "3fff:")
# Programs, and the reader of a manual: `your-email@example.com`, `user@your-company.com`.
_NOBODY = re.compile(
    r"(?i)(?:git|hg|svn|(?:do[-_.]?)?not?[-_.]?reply|your[-_.]?(?:e?mail|name|user(?:name)?|address))(?:[+-][\w.-]*)?(?:@|%40).*"
    r"|.*(?:@|%40)your[-_.]?(?:company|org(?:ani[sz]ation)?|domain|server|site|host|team)\b.*"
)
# A file that is mentioned after a word; some of these endings are countries, too, whose domains nobody writes in capitals.
_FILE = re.compile(
    r".*(?:@|%40)(?:[\w-]*[A-Z][\w-]*\.(?:md|py|rs|sh)"
    r"|[\w-]+\.(?:txt|json|ya?ml|toml|[jt]sx?|css|html|lock|cfg|ini|csv))"
)


def personal_detectors(kinds: Iterable[PersonalKind], phone_regions: tuple[str, ...]) -> list[Detector]:
    """The detectors of these kinds. The earlier wins a tie, so those with check digits come before phone numbers."""
    phone = lru_cache(maxsize=4096)(lambda written: _phone(written, phone_regions, sure=False))
    named_phone = lru_cache(maxsize=4096)(lambda written: _phone(written, phone_regions, sure=True))
    # In Latin-1: where a word may begin, and what may separate digits. An escaped line end is a letter to a sign.
    edge, inner_edge = r"(?:^|[^0-9A-Za-z_.+]|\\[nrtbf])", r"(?:^|[^0-9A-Za-z_.+:/\-]|\\[nrtbf])"
    gap = r"[ ().\-/\xa0?]{0,3}"
    number = rf"[ (]{{0,2}}(?:[0-9]{gap}){{6}}[0-9]"
    called = r"(?i)(?:phone|tel|telefon|mobile|cell|fax|whatsapp|sms|call(?: me)?)(?:[ _]?(?:number|nr|no))?"
    between = r"[^0-9A-Za-z_+]{0,8}(?:(?:is|at|on)[^0-9A-Za-z_+]{1,4})?"
    ipv4 = r"(?:[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9])"
    card = r"(?:[2-6][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{2}|3[0-9]{3}[ -]?[0-9]{6}[ -]?[0-9]{4})"
    iban = r"(?:^|[^0-9A-Za-z]|\\[nrtbf])[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]{4}){2} ?[A-Za-z0-9]{3}"
    american = rf"(?:[0-9]{{3}}){gap}[0-9]{{3}}[ .\-][0-9]{{4}}"
    makes: dict[PersonalKind, list[Detector]] = {
        "email": [Detector("email", r"(?:@|%40)[^\s@\"]+\.[^\s@\".]", _EMAIL, identify=_email)],
        "card": [Detector("card", card, _CARD, identify=_card)],
        "iban": [Detector("iban", iban, _IBAN, identify=_iban)],
        "ip": [
            Detector("ip", ipv4, _IPV4, identify=_plain_address, unless=_NUMBERINGS),
            Detector("ip", ipv4, _PLACED_IPV4, 1, _address, unless=_NUMBERINGS),
            Detector("ip", r"(?:[0-9A-Fa-f]{0,4}:){3}", _IPV6, identify=_address),
        ],
        "phone": [
            Detector(
                "phone",
                rf"(?:\+{number}|{edge}00[1-9]{number})",
                _INTERNATIONAL,
                identify=_international(phone),
                unless=_THINGS,
            ),
            Detector("phone", american, _AMERICAN, identify=phone, unless=_THINGS),
            Detector("phone", rf"(?:{inner_edge}\(?0{number})", _NATIONAL, identify=_national(phone), unless=_THINGS),
            Detector("phone", called + between + rf"\+?{number}", _CALLED, 1, named_phone),
        ],
    }
    makes |= {"national_id": national_ids(), **personal_places(), **names_and_addresses()}  # type: ignore[dict-item]
    return [replace(detector, doubt=3) for kind, detectors in makes.items() if kind in tuple(kinds) for detector in detectors]


def luhn_digit(digits: str) -> str:
    """The check digit to append to `digits` (ISO/IEC 7812-1)."""
    doubled = [int(digit) * (2 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(digits))]
    return str(-sum(value // 10 + value % 10 for value in doubled) % 10)


def _email(written: str) -> str | None:
    return None if _NOBODY.fullmatch(written) or _FILE.fullmatch(written) else written.lower().replace("%40", "@")


def _card(written: str) -> str | None:
    digits = re.sub(r"\D", "", written)
    return digits if _ISSUER.fullmatch(digits) and luhn_digit(digits[:-1]) == digits[-1] else None


@lru_cache(maxsize=4096)
def _iban(written: str) -> str | None:
    from stdnum import iban

    compact = written.replace(" ", "").upper()
    return compact if iban.is_valid(compact, check_country=False) else None


@lru_cache(maxsize=4096)
def _address(written: str) -> str | None:
    """The address; None for anything else, and for loopback, unspecified addresses and masks, which identify nobody."""
    import ipaddress

    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return None
    if (
        address.is_loopback
        or address.is_unspecified
        or address.is_link_local
        or address.is_multicast
        or written.startswith("255.")
    ):
        return None
    if address.compressed in _WELL_KNOWN or address.compressed.startswith(_DOCUMENTS) or written.endswith(".0.0"):
        return None
    if address.version == 6 and (written.count(":") < 3 or not any(c.isdigit() for c in written)):
        return None  # `a::b` is a name in many languages
    return address.compressed


def _international(phone: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Identify numbers that are not dates, as in `00 2025-04-08`."""
    return lambda written: None if _DATED.match(written.lstrip("+")) else phone(written)


def _plain_address(written: str) -> str | None:
    """The address, unless its numbers are as small as those of sections and versions."""
    numbers = [int(number) for number in written.split(".")]
    return None if numbers[0] != 10 and sum(number < 50 for number in numbers) >= 3 else _address(written)


def _national(phone: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Identify numbers of eight digits or more, and three that differ, that are not dates."""

    def identify(written: str) -> str | None:
        is_date = _DATE.fullmatch(written) or _DATED.match(written)
        digits = [character for character in written if character.isdigit()]
        return None if len(digits) < 8 or len(set(digits)) < 3 or is_date else phone(written)

    return identify


def _phone(written: str, regions: tuple[str, ...], *, sure: bool) -> str | None:
    """The number in international form, +4930123456; None if it is not a phone number.

    With a country code, in North American form, or with `sure` (words before it name it a phone) it has to be a possible
    number; else a valid number in one of the regions.
    """
    import phonenumbers

    number = "+" + written[2:] if re.match(r"00[1-9]", written) else written
    american = _AMERICAN.fullmatch(written) is not None
    for region in [None] if number.startswith("+") else regions:
        try:
            parsed = phonenumbers.parse(number, region)
        except phonenumbers.NumberParseException:
            continue
        loose = sure or region is None or (american and region == "US")
        if phonenumbers.is_possible_number(parsed) if loose else phonenumbers.is_valid_number(parsed):
            return str(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))
    return None
