"""Personal data that words or a place give away: births, passports, licences, accounts, devices and coordinates."""

from __future__ import annotations

import re

from tracewheel.traces.redaction.detector import Detector, when
from tracewheel.traces.redaction.unescaped import QUOTES

_BETWEEN = rf"[ \t:=#.,()*°º№{QUOTES}\-]"
_NUMBERED = r"(?:[ _.\-]?(?:numbers?|num|no|nr|id|n°|nº|#)(?![A-Za-z])){0,3}"
_LEAD = rf"{_NUMBERED}{_BETWEEN}{{1,8}}(?:(?:is|was|ist|est|es){_BETWEEN}{{1,4}})?"

_MAC = re.compile(
    r"(?<![\w:.\-])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:\-])"
    r"|(?<![\w:.\-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w:\-])"
    r"|(?<![\w:.\-])(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}(?![\w.\-])",
    re.ASCII,
)
_MONTH = (
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mai|okt|dez|mär|janv|févr|mars|avr|juin|juil|août|sept"
    r"|déc|ene|abr|ago|dic)[a-zéû]{0,7}\.?"
)
_DATE = (
    r"(?:(?:19|20)\d\d[-/. ]\d{1,2}[-/. ]\d{1,2}|\d{1,2}[-/. ]\d{1,2}[-/. ](?:(?:19|20)\d\d|\d\d(?!\d))"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? (?:19|20)\d\d|\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of "
    rf"|de )?{_MONTH}(?: de)?,? (?:19|20)\d\d|(?:19|20)\d{{6}})"
)
_BORN = (
    r"(?:birth[ _\-]?(?:date|day)|date[ _\-]?of[ _\-]?birth|birthdate|(?<![A-Za-z])d\.?o\.?b\.?(?![A-Za-z])"
    r"|(?<![A-Za-z])born(?: on)?|geburts(?:datum|tag)"
    r"|geboren(?: am)?|geb\.|née? le|naissance|nacimiento|nacid[oa](?: el)?|(?:data di )?nascita|geboortedatum|bday)"
)
_BIRTH = re.compile(
    rf"{_BORN}[A-Za-z_]{{0,8}}{_BETWEEN}{{0,6}}(?:(?:is|was|on|ist|the){_BETWEEN}{{1,4}}){{0,2}}({_DATE})(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_PASSPORT = re.compile(
    rf"(?:passport|reisepass\w{{0,8}}|passeport|pasaporte|passaporto|paspoort){_LEAD}([A-Z]{{0,3}}\d[A-Z0-9]{{5,9}}|[A-Z]{{1,2}}[A-Z0-9]{{5,9}})(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_MRZ = re.compile(
    r"(?<![\w<])(?:[PVIAC][A-Z<][A-Z]{3}[A-Z<]{25,39}|[A-Z0-9<]{9}\d[A-Z]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{2,16})(?![\w<])",
    re.ASCII,
)
_LICENCE = re.compile(
    rf"(?:driv(?:er|ers|er's|er’s|ing)?[ _\-]?(?:'s |’s )?licen[cs]e|(?<![A-Za-z])DL(?=[ #:])"
    rf"|führerschein\w{{0,8}}|permis de conduire){_LEAD}"
    r"([A-Z]{0,5}\d[A-Z0-9]*(?:[ \-](?=[A-Z0-9]*\d)[A-Z0-9]{1,6}){0,5})(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_ACCOUNT = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:bank[ _\-]?)?(?:account|acct)(?:[ _.\-]?(?:numbers?|num|no|nr|#)(?![A-Za-z]))|bank[ _\-]?account"
    rf"|routing|sort[ _\-]?code|aba|bsb|kontonummer"
    rf"|kontonr|numéro de compte|clabe|ifsc){_LEAD}([A-Z]{{0,4}}\d[\dA-Z]*(?:[ \-]\d{{1,6}}){{0,5}})(?!\w)",
    re.IGNORECASE | re.ASCII,
)
_IMEI = re.compile(
    rf"(?<![A-Za-z])(?:imei|meid){_LEAD}(\d{{2}}[ \-]?\d{{6}}[ \-]?\d{{6}}[ \-]?\d{{1,2}})(?!\w)", re.IGNORECASE | re.ASCII
)
_DECIMAL = r"-?\d{1,3}\.\d{4,}"
_PAIR = re.compile(
    rf"(?:(?<![A-Za-z])gps|coord(?:inate)?s?|(?:my|current|last|exact|home|pickup|drop-?off)[ _]?(?:location"
    rf"|position)|geo(?:location)?|located at|i am at|@|[?&](?:q|ll|center)=)"
    rf"[^\w\n\-+]{{0,6}}(?:(?:is|are|are at|at)[ :]{{1,3}})?({_DECIMAL} ?, ?{_DECIMAL})(?![\w.])",
    re.IGNORECASE | re.ASCII,
)
_AXIS = re.compile(
    rf"(?<![A-Za-z])(?:lat|lon|lng|long|latitude"
    rf"|longitude)[{QUOTES}]?\s{{0,2}}[:=]\s{{0,3}}[{QUOTES}]?(-?\d{{1,3}}\.\d{{5,}})(?![\w.])",
    re.IGNORECASE | re.ASCII,
)
_DEGREES = re.compile(
    r"(?<!\w)\d{1,3} ?° ?\d{1,2} ?[′'’] ?\d{1,2}(?:\.\d+)? ?(?:[″\"”]"
    r"|'') ?[NS],? ?\d{1,3} ?° ?\d{1,2} ?[′'’] ?\d{1,2}(?:\.\d+)? ?(?:[″\"”]|'') ?[EWO]"
    r"|(?<!\w)[NS] ?\d{1,2}\.\d{4,}°?,? [EW] ?\d{1,3}\.\d{4,}°?(?!\w)"
    r"|(?<!\w)\d{1,2}\.\d{4,}° ?[NS],? \d{1,3}\.\d{4,}° ?[EW](?!\w)",
    re.ASCII,
)


def _mac(written: str) -> str | None:
    """The address; none for those of nobody: all bits equal, groups of receivers, and RFC 7042's for documents."""
    digits = re.sub(r"[^0-9a-fA-F]", "", written).lower()
    if len(set(digits)) == 1 or int(digits[:2], 16) & 1 or digits.startswith(("00005e0053", "0242ac")):
        return None
    return digits


def _degrees(written: str) -> bool:
    return all(abs(float(number)) <= 180 for number in re.findall(r"-?\d+\.\d+", written))


def personal_places() -> dict[str, list[Detector]]:
    """The detectors, by kind."""
    few = when(lambda value: sum(map(str.isdigit, value)) >= 3)
    some, more = when(lambda value: sum(map(str.isdigit, value)) >= 4), when(lambda value: sum(map(str.isdigit, value)) >= 6)
    mac = r"(?:(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}|[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\.[0-9a-fA-F]{4})"
    born = r"(?:birth|b[ _\-]?day|d\.?o\.?b|born|geb|n\xe9e? le|naissance|naci|nascita|geboorte)"
    account = (
        r"(?i)(?:ac(?:coun|c)t|routing|sort[ _\-]?code|aba|bsb|kontonr|kontonummer|compte|clabe|ifsc)[^0-9A-Za-z]{0,8}"
        r"(?:(?:number|num|no|nr|n|id|is|was|est|ist|es)s?[^0-9A-Za-z]{0,8}){0,5}[A-Z]{0,4}[0-9]"
    )
    axis = r"(?i)(?:lat|lon|lng|long|itude)[^0-9A-Za-z]{1,24}[0-9]{1,3}\.[0-9]{5}"
    mrz = r"(?:[PVIAC][A-Z<][A-Z]{3}[A-Z<]{25}|[0-9][A-Z]{3}[0-9]{7}[MFX<][0-9]{7})"
    return {
        "mac": [Detector("mac", mac, _MAC, identify=_mac)],
        "birth_date": [Detector("birth_date", rf"(?i){born}[^\n]{{0,40}}[0-9]", _BIRTH, 1)],
        "passport": [
            Detector("passport", "passport|pasport|reisepass|passeport|pasaporte|passaporto|paspoort", _PASSPORT, 1, few),
            Detector("passport", mrz, _MRZ),
        ],
        "driving_licence": [
            Detector("driving_licence", r"(?i)(?:licen[cs]e|DL[ #:]|hrerschein|permis de conduire)", _LICENCE, 1, some),
        ],
        "bank_account": [Detector("bank_account", account, _ACCOUNT, 1, more)],
        "imei": [Detector("imei", "imei|meid", _IMEI, 1, more)],
        "gps": [
            Detector("gps", r"(?:[0-9]\.[0-9]{4}[0-9]* ?, ?-?[0-9]{1,3}\.[0-9]{4})", _PAIR, 1, when(_degrees)),
            Detector("gps", axis, _AXIS, 1, when(_degrees)),
            Detector("gps", r"(?:[0-9] ?\xb0|[NS] ?[0-9]{1,2}\.[0-9]{4})", _DEGREES),
        ],
    }
