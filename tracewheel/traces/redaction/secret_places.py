"""Secrets known by the place where they stand: headers, cookies, addresses, command lines, and files such as .netrc."""

from __future__ import annotations

import re
from collections.abc import Callable

from tracewheel.traces.redaction.detector import Detector, mixed, when
from tracewheel.traces.redaction.unescaped import QUOTES

# A key ends at its last line or, if it was cut off, with the last line that looks like a key. No other key begins within it:
# without that, each of a million beginnings would be searched for its end through all the following.
_PEM = re.compile(
    r"-----BEGIN (?P<name>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----"
    rf"(?:(?:[^{QUOTES}{{}}\-]|-(?!----BEGIN )){{0,20000}}?-----END (?P=name)-----"
    r"|(?:\s+[A-Za-z0-9+/=:,\-]{20,})*(?:\s+[A-Za-z0-9+/=]{4,})?)"
    rf"|PuTTY-User-Key-File-[23]:(?:[^{QUOTES}{{}}P]|P(?!uTTY-User-Key-File-)){{0,20000}}?Private-MAC: [0-9a-f]+",
    re.ASCII,
)
_URL_PASSWORD = re.compile(
    rf"[a-zA-Z][a-zA-Z0-9+.\-]{{1,20}}://[^\s/?#@:{QUOTES}]*:([^\s/{QUOTES}]{{1,200}})@[^\s/@{QUOTES}]", re.ASCII
)
_AWS_PAIR = re.compile(r"(?:AKIA|ASIA)[0-9A-Z]{16}[^\n]{1,60}?(?<![0-9A-Za-z/+])([0-9A-Za-z/+]{40})(?![0-9A-Za-z/+=])")
_SCHEME = r"(?:bearer|basic|token|digest|apikey|api-key|negotiate|key)"
_NAME = rf"\bauthorization[{QUOTES}]?\]?\s{{0,4}}[:=]\s{{0,4}}[fr]?[{QUOTES}]?\s{{0,4}}"
_AUTHORIZATION = r"(?i)authorization[^A-Za-z0-9]{0,16}[:=]"
_CREDENTIAL = rf"(?!{_SCHEME}\b)([^\s,;{QUOTES}<>{{}}$]{{4,}})"
_HEADER = re.compile(_NAME + _CREDENTIAL, re.IGNORECASE | re.ASCII)
_SCHEMED_HEADER = re.compile(rf"{_NAME}{_SCHEME}\s{{1,4}}{_CREDENTIAL}", re.IGNORECASE | re.ASCII)
_BEARER = re.compile(r"\b(?:bearer|basic)\s{1,4}([A-Za-z0-9._~+/\-]{12,}=*)", re.IGNORECASE | re.ASCII)
_COOKIES = rf"[\w.\-$]+=[^\s{QUOTES};]*(?:;[^\n\r{QUOTES}]*)?"
_COOKIE = re.compile(
    rf"(?:\b(?:set-)?cookie[{QUOTES}]?\s{{0,2}}:\s{{0,4}}|\bdocument\.cookie\s{{0,2}}\+?=\s{{0,2}})[{QUOTES}]?({_COOKIES})",
    re.IGNORECASE | re.ASCII,
)
_COOKIE_OPTION = re.compile(rf"\s(?:-b|--cookie)[ =]{{0,2}}[{QUOTES}]?({_COOKIES})", re.ASCII)
_SESSION = re.compile(
    r"\b(?:sessionid|session_id|PHPSESSID|JSESSIONID|connect\.sid|ASP\.NET_SessionId|csrftoken|XSRF-TOKEN"
    r"|_gitlab_session|\w+_session"
    rf"|li_at|__Secure-[\w-]+|\.ASPXAUTH)[{QUOTES}]?\s{{0,2}}[:=]\s{{0,2}}[{QUOTES}]?([\w%.+/=-]{{20,}})",
    re.IGNORECASE | re.ASCII,
)
_SESSION_SIGN = (
    r"(?i)(?:sessionid|session_id|phpsessid|jsessionid|connect\.sid|csrftoken|xsrf-token|_session|li_at|__secure-[a-z0-9_\-]+|aspxauth)"
    r"[^A-Za-z0-9]{0,16}[:=][^A-Za-z0-9]{0,16}[\w%.+/=\-]{20}"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_SIGNATURE = re.compile(r"(?:[?&;\s]sig|X-(?:Amz|Goog)-Signature|X-Amz-Security-Token)=([A-Za-z0-9%+/=_\-]{20,})", re.ASCII)
_VALUE = rf"[^\s{QUOTES}$<{{-][^\s{QUOTES}]{{3,}}"
_GIVEN = rf"[{QUOTES}]?({_VALUE})"
_ELEMENT = re.compile(
    r"<(?:[\w.\-]+:)?[\w.\-]{0,40}(?:passw(?:or)?d|passphrase|pwd|pass|secret|api[_-]?key|token)>\s*([^<>\s]{4,200})\s*</",
    re.IGNORECASE | re.ASCII,
)
_ATTRIBUTE = re.compile(
    rf"(?:name|key)=[{QUOTES}][\w.\- ]{{0,40}}(?:password|passwd|secret|apikey"
    rf"|api_key)[{QUOTES}]\s{{1,4}}value=[{QUOTES}]([^{QUOTES}]{{4,200}})[{QUOTES}]",
    re.IGNORECASE | re.ASCII,
)
# Signs, and expression of a password on a command line or in a file for one.
_LOGINS = r"(?:(?:docker|podman|oras|helm registry|az|oc|cf|argocd|skopeo) login|mongo(?:sh|dump|restore)?)"
_REST = r"[^\n|;&]{0,200}? "  # of the command, up to an option
_COMMANDS = (
    (
        "curl",
        rf"\bcurl\b[\s\S]{{0,400}}?\s(?:-u|--user)[ =]?[{QUOTES}]?[^\s:{QUOTES}]{{1,100}}:([^\s{QUOTES}]{{3,}})",
    ),
    ("mysql|mariadb", rf"\b(?:mysql|mariadb)[a-z\-]*\b[^\n]{{0,200}}?\s-p({_VALUE})"),
    ("sshpass", rf"\bsshpass +-p *{_GIVEN}"),
    (r"(?:docker|podman|oras|helm registry|az|oc|cf|argocd|skopeo) login|mongo", rf"\b{_LOGINS}\b{_REST}-p +{_GIVEN}"),
    ("redis-cli", rf"\bredis-cli\b{_REST}(?:-a|--pass) +{_GIVEN}"),
    (r"(?:7za? +[a-z])", rf"\b7za? +[a-z]\b{_REST}-p({_VALUE})"),
    (r"(?:zip)[^\n|;&]{0,210} -P", rf"\b(?:un)?zip\b{_REST}-P +{_GIVEN}"),
    ("-pass", rf" -pass(?:in|out)? +[{QUOTES}]?pass:({_VALUE})"),
    ("htpasswd", rf"\bhtpasswd +(?:-\w+ +){{0,4}}-\w*b\w* +(?:\S+ +){{1,2}}?\S+ +{_GIVEN}(?=\s|$|[{QUOTES}])"),
    ("/user:", rf"(?i)\bnet use\b[^\n]{{0,200}}?/user:\S+ +{_GIVEN}"),
    (r"(?:sudo) +-", rf"\becho +(?:-n +)?{_GIVEN}[{QUOTES}]? *\| *sudo +(?:-[A-Za-z]+ +){{0,3}}-[A-Za-z]*S"),
    (r"(?: -U) +[^ ]+%", rf" -U +[^\s%{QUOTES}]{{1,64}}%({_VALUE})"),
    ("requirepass|masterauth", rf"(?i)\b(?:requirepass|masterauth) +{_GIVEN}"),
    (
        r"(?i)login\s+\S{1,100}\s+(?:account|password)",
        rf"\blogin\s+[^\s{QUOTES}]{{1,100}}\s+(?:account\s+\S{{1,100}}\s+)?password\s+{_GIVEN}",
    ),
    (
        r"(?::)(?:\*|5[0-9]{3}|6432|6543):",  # a line of .pgpass
        rf"(?<![\w.:/\-])[\w.*\-]{{1,100}}:(?:\*|5\d{{3}}|6432|6543):[\w*\-]{{1,64}}:[\w*\-]{{1,64}}:({_VALUE})",
    ),
    ("chpasswd", rf"\becho +(?:-e +)?[{QUOTES}]?[\w.\-]+:({_VALUE})[{QUOTES}]? *\| *(?:sudo +)?chpasswd"),
)
_WALLET = re.compile(
    rf"(?:private[_\- ]?key|priv[_\- ]?key|secret[_\- ]?key|deployer[_\- ]?key|\bWallet\("
    rf"|privateKeyToAccount\()[{QUOTES}]?\s{{0,2}}"
    rf"(?:is|[:=,(])?\s{{0,4}}[{QUOTES}]?((?:0x)?[0-9a-fA-F]{{64}})(?![0-9A-Za-z])",
    re.IGNORECASE | re.ASCII,
)
_SEED_WORDS = r"(?:seed|mnemonic|(?:recovery|backup|secret|wallet|pass)[ _\-]?(?:phrase|words?|backup)|my words)"
_SEED = re.compile(
    rf"{_SEED_WORDS}[^\n.]{{0,40}}?[:=\s{QUOTES}]\s{{0,4}}(?<![A-Za-z])((?:[a-z]{{3,8}}[ \n]){{11,23}}[a-z]{{3,8}})(?![A-Za-z]"
    rf")",
    re.IGNORECASE | re.ASCII,
)
_NUMBERED_SEED = re.compile(
    rf"{_SEED_WORDS}[^\n]{{0,60}}\s((?:\d{{1,2}}[.)]\s?[a-z]{{3,8}},?\s{{1,3}}){{11,23}}\d{{1,2}}[.)]\s?[a-z]{{3,8}})",
    re.IGNORECASE | re.ASCII,
)
_SEED_SIGN = r"(?i)(?:mnemonic|seed|(?:recovery|backup|secret|wallet|pass)[ _\-]?(?:phrase|word|backup)|my words)"
# Frequent words of prose that no seed phrase has (BIP-39).
_NO_SEED = {"the", "and", "for", "are", "was", "were", "has", "had", "have", "been", "its", "his", "her", "not", "but", "from"}
_NO_SEED |= {"would", "could", "should", "their", "which", "than", "them"}


_PLACEHOLDER = re.compile(
    r"[$<{%*]|(?i:your|my[-_]|required|header|value|string|none|null|token|password\b|x{3}|(?:pass|pwd?|secret|guest|example)\Z"
    r"|my[a-z]*(?:password|secret)\Z|[a-z]+[-_](?:password|passwd|secret|token)\Z|(?:\w{1,12}[-_])+\Z)"
)


def _is_written_out(value: str) -> bool:
    """Whether this is a value and not a placeholder, as in `https://oauth2:${TOKEN}@host` and `Bearer sk-<id>`."""
    return not _PLACEHOLDER.match(value)


def _is_credential(value: str) -> bool:
    return mixed(value) or len(value) >= 24


def _holds_a_session(value: str) -> bool:
    """Whether one of several cookies is long enough for a secret."""
    values = [cookie.partition("=") for cookie in value.split(";")]
    return any(
        len(text) >= 8
        and name.strip().lower() not in ("expires", "path", "domain", "max-age", "samesite")
        and _is_written_out(text)
        for name, _, text in values
    )


def _is_seed(value: str) -> bool:
    words = value.split()
    return len(words) in (12, 15, 18, 21, 24) and value.islower() and not _NO_SEED.intersection(words)


def _is_session(value: str) -> bool:
    """Whether this is a cookie and not the name that a program gives to a session of its own."""
    return mixed(value) and not _UUID.fullmatch(value)


def _placed(kind: str, signs: str, pattern: re.Pattern[str], fits: Callable[[str], bool]) -> Detector:
    return Detector(kind, signs, pattern, 1, when(fits), doubt=1)


def secret_places() -> list[Detector]:
    """The detectors of secrets by their places."""
    found = [
        Detector("private_key", "-----begin |putty-user-key-file-", _PEM, ahead=25_000),
        Detector("aws_key", r"(?:AKIA|ASIA)[0-9A-Z]{16}", _AWS_PAIR, 1),
        _placed("password", r"(?::)//[^\s/?#@:\"]*:[^\s\"]+@", _URL_PASSWORD, _is_written_out),
        _placed("authorization", _AUTHORIZATION, _HEADER, _is_credential),
        _placed("authorization", _AUTHORIZATION, _SCHEMED_HEADER, _is_written_out),
        Detector("signature", r"(?:sig|-Signature|-Security-Token)=[A-Za-z0-9%+/=_\-]{20}", _SIGNATURE, 1, doubt=1),
        _placed("authorization", r"(?i)(?:bearer|basic)\s{1,4}[A-Za-z0-9._~+/\-]{12}", _BEARER, mixed),
        _placed("cookie", r"(?i)cookie[^A-Za-z0-9]{0,16}[:=]", _COOKIE, _holds_a_session),
        _placed("cookie", r"(?:\s)(?:-b|--cookie)[ =\"'?a-zA-Z]", _COOKIE_OPTION, _holds_a_session),
        _placed("cookie", _SESSION_SIGN, _SESSION, _is_session),
        _placed("password", r"(?i)(?:passw(?:or)?d|passphrase|pwd|pass|secret|api[_-]?key|token)>", _ELEMENT, _is_written_out),
        _placed("password", r"(?i)(?:password|passwd|secret|api_?key)[^A-Za-z0-9]{1,8}value=", _ATTRIBUTE, _is_written_out),
        _placed("wallet_key", r"(?i)(?:(?:priv(?:ate)?|secret|deployer)[_\- ]?key|wallet\(|toaccount\()", _WALLET, mixed),
        _placed("seed_phrase", _SEED_SIGN, _SEED, _is_seed),
        _placed("seed_phrase", _SEED_SIGN, _NUMBERED_SEED, bool),
    ]
    for signs, pattern in _COMMANDS:
        compiled = re.compile(pattern, re.ASCII | re.MULTILINE)
        found.append(_placed("password", signs, compiled, _is_written_out))
    return found
