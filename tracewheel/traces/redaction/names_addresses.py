"""Names of people and postal addresses, by the words and fields before them and by their form.

No model is needed, and no list of names: a name is found after a title, a greeting, an introduction, or in a field for one; in
running text without these it is not found.
"""

from __future__ import annotations

import re

from tracewheel.traces.redaction.detector import Detector, any_of, when
from tracewheel.traces.redaction.unescaped import QUOTES

_PART = r"(?:[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]+|[OD]['’][A-Z][a-z]+|Ma?c[A-Z][a-z]+|[A-Z]\.)(?:[-'’](?:[A-ZÀ-ÖØ-Þ])?[a-zß-öø-ÿ]+)*"
_FULL = rf"(?:{_PART})(?: (?:(?:de|da|del|della|van|von|der|den|la|le|bin|al|el|dos) ){{0,2}}{_PART}){{0,3}}"
_TITLED = re.compile(rf"(?<!\w)(?:Mr|Mrs|Ms|Mx|Miss|Dr|Prof|Herr|Frau|Señora?|Sr|Sra|Monsieur|Madame|Mme)\.? ({_FULL})")
_INTRODUCED = re.compile(
    r"(?<!\w)(?:(?i:my name is|my name's|this is|i am|i'm|name is|ich heiße|ich bin|mein name ist"
    r"|je m['’]appelle|me llamo|mi nombre es|mi chiamo"
    rf"|called by|signed by|sincerely,|regards,|cheers,|hi,? i['’]?m)|Dear|Attn:?|Regards,|Sincerely,"
    rf"|Best,)\s{{1,3}}({_FULL})(?!\w)"
)
_FIELDS = (
    r"(?:first|last|middle|full|given|family|sur|maiden|customer|client|patient|passenger|guest|user|contact"
    r"|account|cardholder|employee|student"
    r"|recipient|sender|owner|display|legal|billing|shipping)[ _\-]?name|(?<![A-Za-z])(?:patient|passenger"
    r"|guest|attendee|author|recipient|beneficiary)"
)
_FIELD = re.compile(rf"(?i:{_FIELDS})[{QUOTES}]?\s{{0,2}}[:=]?\s{{0,3}}[{QUOTES}]?({_FULL})(?![\w/])")
_NAMED = re.compile(rf"(?:^|[\n{QUOTES}(;,|] ?)[Nn]ame: ?({_PART}(?: {_PART}){{1,3}})(?!\w)")
_STREETS = any_of("streets")
_REGION = (
    r"(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Floor|Fl"
    r"|#)\.? ?[\w\-]{1,6})?(?:,? [A-Z][A-Za-zß-öø-ÿ.\-]+(?: [A-Z][A-Za-zß-öø-ÿ.\-]+){0,2}"
    r"(?:,? (?:[A-Z]{2} )?(?:\d{5}(?:-\d{4})?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2})|,? [A-Z]{2}(?![\w])))?"
)
_ADDRESS = re.compile(
    rf"(?<![\w.\-/])\d{{1,5}}[A-Za-z]?(?:-\d{{1,5}})? (?:[NSEW]{{1,2}}\.? )?(?:[A-Z][A-Za-z.'’\-]+ ){{1,3}}"
    rf"{_STREETS}(?![A-Za-z])\.?{_REGION}"
    rf"|(?<![\w.\-/])\d{{1,4}} Park Lane(?!\w)|(?<![\w])\d{{1,5}} (?:[A-Z][a-z]+ )?(?:First|Second|Third|Fourth"
    rf"|Fifth|Sixth|Seventh|Eighth) {_STREETS}(?!\w){_REGION}"
    r"|(?i:(?<!\w)p\.? ?o\.? ?box \d{1,6})(?:,? [A-Z][A-Za-z.\-]+(?: [A-Z][A-Za-z.\-]+)?,? [A-Z]{2}(?: \d{5}(?:-\d{4})?)?)?"
    r"|(?<!\w)(?:[A-ZÄÖÜ][a-zäöüß\-]+(?:straße|strasse|str\.|weg|platz|allee|gasse)"
    r"|[A-ZÄÖÜ][a-zäöüß]+[ -](?:Straße|Strasse|Str\.|Weg|Platz|Allee))"
    r" \d{1,4} ?[a-z]?(?:, \d{5} [A-ZÄÖÜ][a-zäöüß\-]+)?"
    r"|(?<!\w)\d{1,4}(?: ?bis| ?ter)?,? (?:rue|avenue|av\.|boulevard|bd|place|chemin|allée|impasse"
    r"|quai)(?: (?:de|du|des|la|le|l['’]))* ?[A-ZÀ-Þ][\w'’\-]+"
    r"(?: [A-ZÀ-Þ][\w\-]+)*(?:,? \d{5} [A-ZÀ-Þ][\w\-]+)?"
    r"|(?<!\w)(?:Calle|Avenida|Avda\.|Plaza|Paseo|Via|Viale|Piazza|Corso)(?: (?:de|del|di|la|las|los"
    r"|della))* [A-ZÀ-Þ][\w\-]+(?: [A-ZÀ-Þ][\w\-]+)?,? \d{1,4}(?:, \d{5} [A-ZÀ-Þ][\w\-]+)?"
)
# Capitalised words after "I am" or "this is" that are no names.
_NO_NAME = re.compile(rf"(?i){any_of('no_names')}(?:\b.*)?")


def names_and_addresses() -> dict[str, list[Detector]]:
    """The detectors, by kind."""
    is_name = when(lambda value: len(value) >= 3 and not _NO_NAME.fullmatch(value) and not value.isupper())
    introduced = (
        r"(?i)(?:name.{1,4}s |name is|this is|i am|i.m |hei\xdfe|ich bin|mein name|m.appelle|me llamo|mi nombre|mi chiamo"
        r"|called by|signed by|sincerely|regards|cheers|dear|attn|best)"
    )
    titled = r"(?:Mr|Mrs|Ms|Mx|Miss|Dr|Prof|Herr|Frau|Se\xf1ora?|Sra?|Monsieur|Madame|Mme)\.? "
    placed = (
        rf"(?:[0-9][A-Za-z]? [A-Z0-9][^\n\"]{{0,60}} {_STREETS}|(?i:box [0-9])"
        r"|(?:stra(?:\xdf|ss)e|[Ss]tr\.|[Ww]eg|[Pp]latz|[Aa]llee|gasse) [0-9]"
        r"|[0-9] ?(?:bis|ter)?,? (?:rue|avenue|av\.|boulevard|bd|place|chemin|all|impasse|quai) "
        r"|(?:Calle|Avenida|Avda\.|Plaza|Paseo|Via|Viale|Piazza|Corso) )"
    )
    fields = "name|patient|passenger|guest|attendee|author|recipient|beneficiary"
    return {
        "name": [
            Detector("name", titled, _TITLED, 1, is_name),
            Detector("name", introduced, _INTRODUCED, 1, is_name),
            Detector("name", fields, _FIELD, 1, is_name),
            Detector("name", "name:", _NAMED, 1, is_name),
        ],
        "address": [Detector("address", placed, _ADDRESS, identify=lambda value: value.strip() or None)],
    }
