"""The detectors of secrets: those of detect-secrets, further vendors' keys, and secrets by their names.

Each detector has a regular expression and a looser trigger. All triggers are searched at once in the bytes of a whole trace
(RE2, linear in the length for any number of triggers); an expression is tried only if its trigger matches. So a trigger has
to match wherever its expression does, also in JSON text within JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from tracewheel.traces.redaction.detector import GAP, Detector
from tracewheel.traces.redaction.named_secrets import NAMED_SECRETS
from tracewheel.traces.redaction.secret_places import secret_places
from tracewheel.traces.redaction.vendor_keys import vendor_keys

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
# Parts of its expressions that take time with the square or the cube of a text's length, and what matches the same in one pass.
BOUNDED = {
    r"(?: *)(?:=|:|:=|=>| +|::)(?: *)": r"(?: *+(?:=|:|:=|=>|::) *+| ++)",
    r"\/\/.+\/:_authToken=": r"\/\/.{1,200}\/:_authToken=",
    r"sk-[A-Za-z0-9-_]*[": r"(?:(?<![A-Za-z0-9_\-])sk-[A-Za-z0-9-_]*|sk-(?:(?!sk-)[A-Za-z0-9-_])*)[",
}
_PREFIX_IS_GROUP = ("github_token", "gitlab_token", "npm_token")  # their group is not the secret


@cache
def secret_detectors() -> tuple[Detector, ...]:
    """All detectors of secrets, the most certain first: the earlier wins a tie."""
    return (*_library_detectors(), *vendor_keys(), *secret_places(), *NAMED_SECRETS)


def _library_detectors() -> list[Detector]:
    import importlib

    found = []
    for kind, name, trigger in _PLUGINS:
        module, _, class_name = name.partition(".")
        plugin = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), class_name)
        for pattern in plugin.denylist:
            group = 1 if pattern.groups == 1 and kind not in _PREFIX_IS_GROUP else 0
            bounded = pattern.pattern
            for slow, fast in BOUNDED.items():
                bounded = bounded.replace(slow, fast)
            ascii_only = re.compile(bounded, pattern.flags & ~re.UNICODE | re.ASCII)
            found.append(Detector(kind, trigger, ascii_only, group, doubt=2 * group))
    return found


def custom_detectors(patterns: Mapping[str, str]) -> list[Detector]:
    """Detectors for a profile's own patterns, by kind. They have no trigger and are tried on every text."""
    found = []
    for kind, pattern in patterns.items():
        compiled = re.compile(pattern)
        found.append(Detector(kind, "", compiled, min(compiled.groups, 1)))
    return found
