"""The detectors of secrets: those of detect-secrets, further vendors' keys, and secrets by their names.

Each detector has a regular expression and a looser trigger. All triggers are searched at once in the bytes of a whole trace
(RE2, linear in the length for any number of triggers); an expression is tried only if its trigger matches. So a trigger has
to match wherever its expression does, also in JSON text within JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from tracewheel.traces.redaction.detector import GAP, Detector, mixed, when
from tracewheel.traces.redaction.named_secrets import NAMED_SECRETS
from tracewheel.traces.redaction.unescaped import QUOTES


def _anything(value: str) -> bool:
    return bool(value)


def _has_long_part(value: str) -> bool:
    """Whether a part between hyphens is long and mixed: `sk-container-id-1` is only a name in a style sheet."""
    return any(len(part) >= 12 and mixed(part) for part in re.split("[-_]", value)) or (len(value) >= 40 and mixed(value))


# Kind, detector's module and class, trigger. Its other detectors guess by entropy, or accept any word.
_PLUGINS = (
    (
        "aws_key",
        "aws.AWSKeyDetector",
        r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}|(?s:(?i:aws).*[0-9a-zA-Z/+\\]{40})",
    ),
    ("azure_key", "azure_storage_key.AzureStorageKeyDetector", r"AccountKey="),
    (
        "cloudant_key",
        "cloudant.CloudantDetector",
        r"(?i)(?:cl|clou|cloudant)[_-]?(?:api)?(?:key|pwd|pw|pass|token)|cloudant.{1,8}com",
    ),
    ("discord_token", "discord.DiscordBotTokenDetector", r"[a-zA-Z0-9_-]{24}\.[a-zA-Z0-9_-]{6}\.[a-zA-Z0-9_-]{27}"),
    ("github_token", "github_token.GitHubTokenDetector", r"gh[pousr]_[A-Za-z0-9_]{36}"),
    ("gitlab_token", "gitlab_token.GitLabTokenDetector", r"gl[a-z]{2,5}-[A-Za-z0-9_-]{20}|GR1348941"),
    ("ibm_key", "ibm_cloud_iam.IbmCloudIamDetector", rf"(?i)(?:key|pwd|pass(?:word)?|token){GAP}+[a-zA-Z0-9_-]{{44}}"),
    ("ibm_key", "ibm_cos_hmac.IbmCosHmacDetector", rf"(?i)secret[-_]?(?:access)?[-_]?key{GAP}+[a-f0-9]{{48}}"),
    ("mailchimp_key", "mailchimp.MailchimpDetector", r"[0-9a-z]{32}-us[0-9]"),
    ("npm_token", "npm.NpmDetector", r"_authToken="),
    ("openai_key", "openai.OpenAIDetector", r"T3BlbkFJ"),
    ("pypi_token", "pypi_token.PypiTokenDetector", r"pypi-Ag"),
    ("sendgrid_key", "sendgrid.SendGridDetector", r"SG\.[a-zA-Z0-9_-]{22}\."),
    ("slack_token", "slack.SlackDetector", r"(?i)xox[abposr]-|hooks.{1,8}slack.{1,8}com"),
    (
        "softlayer_key",
        "softlayer.SoftlayerDetector",
        r"(?i)(?:softlayer|sl)[_-]?(?:api)?[_-]?(?:key|pwd|pass|token)|softlayer.{1,8}com/soap",
    ),
    ("square_secret", "square_oauth.SquareOAuthDetector", r"sq0csp-"),
    ("stripe_key", "stripe.StripeDetector", r"[rs]k_live_"),
    ("telegram_token", "telegram_token.TelegramBotTokenDetector", r"[0-9]{8,10}:[0-9A-Za-z_-]{35}"),
    ("twilio_key", "twilio.TwilioKeyDetector", r"(?:AC|SK)[a-z0-9]{32}"),
)
_PREFIX_IS_GROUP = ("github_token", "gitlab_token", "npm_token")  # their group is not the secret

_TOKEN = r"[A-Za-z0-9_\-]"
# Kind, expression (its own trigger), check. Keys that detect-secrets 1.5 lacks or has in an old form.
_MAKES: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("api_key", rf"\b(?:sk|rk)[-_]{_TOKEN}{{16,}}", _has_long_part),  # OpenAI, Anthropic, OpenRouter, Langfuse, Stripe
    ("api_key", rf"\bsk-(?:ant|or|lf|proj|svcacct|admin)-{_TOKEN}{{16,}}", _anything),
    ("aws_key", r"\b(?:AGPA|AIDA|AIPA|ANPA|ANVA|AROA|AKIA|ASIA)[0-9A-Z]{16}\b", _anything),
    ("google_key", r"\bAIza[0-9A-Za-z_\-]{35,}|\bGOCSPX-[0-9A-Za-z_\-]{20,}|\bya29\.[0-9A-Za-z_\-]{20,}", _anything),
    ("github_token", r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{22,}", _anything),
    ("huggingface_token", r"\bhf_[A-Za-z0-9]{30,}", _anything),
    ("slack_token", r"\bxox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|\bxapp-[0-9]-[A-Za-z0-9-]{10,}", mixed),
    ("npm_token", r"\bnpm_[A-Za-z0-9]{36}", _anything),
    ("shopify_token", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", _anything),
    ("digitalocean_token", r"\bdo[opr]_v1_[a-f0-9]{64}", _anything),
    ("vault_token", r"\bhv[sbr]\.[A-Za-z0-9_\-]{20,}", _anything),
    ("docker_token", r"\bdckr_pat_[A-Za-z0-9_\-]{20,}", _anything),
    ("mailgun_key", r"\bkey-[0-9a-f]{32}\b", _anything),
    ("artifactory_key", r"\bAKC[a-zA-Z0-9]{60,}", _anything),
    (
        "api_key",
        rf"\b(?:gsk|xai|pplx|r8|lsv2_pt|lsv2_sk|sbp|ntn|lin_api|figd|PMAK|NRAK|tskey|pul|nvapi)[-_]{_TOKEN}{{20,}}",
        mixed,
    ),
    ("jwt", r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*){0,3}", _anything),
    ("age_key", r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}", _anything),
)

# A key ends at its last line or, if it was cut off, with the last line that looks like a key.
_PEM = re.compile(
    r"-----BEGIN (?P<name>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----"
    rf"(?:[^{QUOTES}{{}}]{{0,20000}}?-----END (?P=name)-----|(?:\s+[A-Za-z0-9+/=:,\-]{{20,}})*(?:\s+[A-Za-z0-9+/=]{{4,}})?)"
    rf"|PuTTY-User-Key-File-[23]:[^{QUOTES}{{}}]{{0,20000}}?Private-MAC: [0-9a-f]+",
    re.ASCII,
)
_URL_PASSWORD = re.compile(
    rf"[a-zA-Z][a-zA-Z0-9+.\-]{{1,20}}://[^\s/?#@:{QUOTES}]*:([^\s/{QUOTES}]{{1,200}})@[^\s/@{QUOTES}]", re.ASCII
)
_AWS_PAIR = re.compile(r"(?:AKIA|ASIA)[0-9A-Z]{16}[^\n]{1,60}?(?<![0-9A-Za-z/+])([0-9A-Za-z/+]{40})(?![0-9A-Za-z/+=])")
_SCHEME = r"(?:bearer|basic|token|digest|apikey|api-key|negotiate|key)"
_NAME = rf"\bauthorization[{QUOTES}]?\]?\s{{0,4}}[:=]\s{{0,4}}[{QUOTES}]?\s{{0,4}}"
_AUTHORIZATION = rf"(?i)authorization{GAP}*[:=]"
_CREDENTIAL = rf"(?!{_SCHEME}\b)([^\s,;{QUOTES}<>{{}}$]{{4,}})"
_HEADER = re.compile(_NAME + _CREDENTIAL, re.IGNORECASE | re.ASCII)
_SCHEMED_HEADER = re.compile(rf"{_NAME}{_SCHEME}\s{{1,4}}{_CREDENTIAL}", re.IGNORECASE | re.ASCII)
_BEARER = re.compile(r"\b(?:bearer|basic)\s{1,4}([A-Za-z0-9._~+/\-]{12,}=*)", re.IGNORECASE | re.ASCII)
_COOKIE = re.compile(
    rf"\b(?:set-)?cookie[{QUOTES}]?\s{{0,2}}:\s{{0,4}}[{QUOTES}]?([\w.\-]+=[^\s{QUOTES};]{{8,}}(?:;[^\n\r{QUOTES}]*)?)",
    re.IGNORECASE | re.ASCII,
)
_SIGNATURE = re.compile(r"[?&;\s]sig=([A-Za-z0-9%+/=_\-]{20,})", re.ASCII)
_CURL_USER = re.compile(
    rf"\bcurl\b[\s\S]{{0,400}}?\s(?:-u|--user)[ =]?[{QUOTES}]?[^\s:{QUOTES}]{{1,100}}:([^\s{QUOTES}]{{3,}})", re.ASCII
)
_MYSQL = re.compile(rf"\bmysql(?:dump|admin)?\b[^\n]{{0,200}}?\s-p([^\s{QUOTES}$-][^\s{QUOTES}]{{3,}})", re.ASCII)


def _is_written_out(value: str) -> bool:
    """Whether this is a value and not a placeholder, as in `https://oauth2:${TOKEN}@host`."""
    return not re.match(r"[$<{%*]|(?i:your|my[-_]|required|header|value|string|none|null|token)", value)


def _is_credential(value: str) -> bool:
    return mixed(value) or len(value) >= 24


@cache
def secret_detectors() -> tuple[Detector, ...]:
    """All detectors of secrets, the most certain first: the earlier wins a tie."""
    forms = [
        Detector("private_key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File-", _PEM),
        Detector("aws_key", r"(?:AKIA|ASIA)[0-9A-Z]{16}", _AWS_PAIR, 1),
        Detector(
            "password",
            r":\\*/\\*/[^\s/?#@:\"]*:[^\s\"]+@",
            _URL_PASSWORD,
            1,
            when(_is_written_out),
            doubt=1,
        ),
        Detector("authorization", _AUTHORIZATION, _HEADER, 1, when(_is_credential), doubt=1),
        Detector("authorization", _AUTHORIZATION, _SCHEMED_HEADER, 1, when(_is_written_out), doubt=1),
        Detector("signature", r"sig=[A-Za-z0-9%+/\\=_\-]{20}", _SIGNATURE, 1, doubt=1),
        Detector("password", r"(?s:curl.*-u)", _CURL_USER, 1, when(_is_written_out), doubt=1),
        Detector("password", r"(?s:mysql.*-p)", _MYSQL, 1, when(_is_written_out), doubt=1),
        Detector(
            "authorization",
            r"(?i)(?:bearer|basic)(?:[\s\x0b]|\\+[nrtbf])+[A-Za-z0-9._~+/\\\-]{12}",
            _BEARER,
            1,
            when(mixed),
            doubt=1,
        ),
        Detector("cookie", rf"(?i)cookie{GAP}*:", _COOKIE, 1, doubt=1),
    ]
    makes = [
        Detector(kind, pattern.replace(r"\b", ""), re.compile(pattern, re.ASCII), 0, when(fits))
        for kind, pattern, fits in _MAKES
    ]
    return (*_library_detectors(), *makes, *forms, *NAMED_SECRETS)


def _library_detectors() -> list[Detector]:
    import importlib

    found = []
    for kind, name, trigger in _PLUGINS:
        module, _, class_name = name.partition(".")
        plugin = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), class_name)
        for pattern in plugin.denylist:
            group = 1 if pattern.groups == 1 and kind not in _PREFIX_IS_GROUP else 0
            ascii_only = re.compile(pattern.pattern, pattern.flags & ~re.UNICODE | re.ASCII)
            found.append(Detector(kind, trigger, ascii_only, group, doubt=2 * group))
    return found


def custom_detectors(patterns: Mapping[str, str]) -> list[Detector]:
    """Detectors for a profile's own patterns, by kind. They have no trigger and are tried on every text."""
    found = []
    for kind, pattern in patterns.items():
        compiled = re.compile(pattern)
        found.append(Detector(kind, "", compiled, min(compiled.groups, 1)))
    return found
