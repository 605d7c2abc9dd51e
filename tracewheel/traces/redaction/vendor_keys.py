"""Keys and tokens of vendors that are known by their form: a prefix, a length, a checksum's place.

The forms are the vendors' published ones. Detectors of libraries come beside these (`patterns.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tracewheel.traces.redaction.detector import Detector, as_found, mixed, when

_TOKEN = r"[A-Za-z0-9_\-]"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"


def _anything(value: str) -> bool:
    return bool(value)


def _has_long_part(value: str) -> bool:
    """Whether a part between hyphens is long and mixed: `sk-container-id-1` is only a name in a style sheet."""
    return any(len(part) >= 12 and mixed(part) for part in re.split("[-_]", value)) or (len(value) >= 40 and mixed(value))


# Kind, expression (its own trigger), check.
_FORMS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    # Models
    ("api_key", rf"\b(?:sk|rk)[-_]{_TOKEN}{{16,}}", _has_long_part),  # OpenAI, Anthropic, OpenRouter, Langfuse, Stripe
    ("api_key", rf"\bsk-(?:ant|or|lf|proj|svcacct|admin)-{_TOKEN}{{16,}}", _anything),
    (
        "api_key",
        rf"\b(?:gsk|xai|pplx|r8|lsv2_pt|lsv2_sk|nvapi|tgp_v1|jina|wandb_v1|e2b|tvly)[-_]{_TOKEN}{{20,}}",
        mixed,
    ),
    ("huggingface_token", r"\b(?:hf_|api_org_)[A-Za-z0-9]{30,}", _anything),
    # Clouds
    ("aws_key", r"\b(?:AGPA|AIDA|AIPA|ANPA|ANVA|AROA|AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b", _anything),
    ("aws_key", r"\bABSK[A-Za-z0-9+/]{40,}={0,2}|\bbedrock-api-key-[A-Za-z0-9+/=]{16,}", _anything),
    ("google_key", r"\bAIza[0-9A-Za-z_\-]{35,}|\bGOCSPX-[0-9A-Za-z_\-]{20,}|\bya29\.[0-9A-Za-z_\-]{20,}", _anything),
    ("alibaba_key", r"\bLTAI[A-Za-z0-9]{16,24}\b", mixed),
    ("databricks_token", r"\bdapi[a-f0-9]{32}(?:-\d)?\b|\bdose[a-f0-9]{32}\b", _anything),
    ("digitalocean_token", r"\bdo[opr]_v1_[a-f0-9]{64}", _anything),
    ("cloudflare_key", r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{100,}|\bcf(?:k|ut|at)_[A-Za-z0-9]{40,}", _anything),
    ("fly_token", r"\bfo1_[\w\-]{40,}|\bfm[12][ar]?_[A-Za-z0-9+/]{60,}={0,3}", _anything),
    ("heroku_key", r"\bHRKU-[0-9A-Za-z_\-]{36,}", _anything),
    ("yandex_key", r"\bAQVN[A-Za-z0-9_\-]{35,38}|\bt1\.[A-Za-z0-9_\-]{10,}={0,2}\.[A-Za-z0-9_\-]{86}={0,2}", _anything),
    ("scalingo_token", r"\btk-us-[\w\-]{48}", _anything),
    ("openshift_token", r"\bsha256~[\w\-]{43}", _anything),
    ("planetscale_token", r"\bpscale_(?:tkn|oauth|pw)_[\w=.\-]{32,64}", _anything),
    ("supabase_key", r"\bsb_secret_[A-Za-z0-9_\-]{20,}", _anything),
    # Code and builds
    ("github_token", r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{22,}", _anything),
    ("gitlab_token", rf"\bgl(?:pat|dt|ptt|rt|soat|agent|oas|ft|imt|ffct|cbt)-{_TOKEN}{{20,}}", mixed),
    ("npm_token", r"\bnpm_[A-Za-z0-9]{36}", _anything),
    ("docker_token", r"\bdckr_(?:pat|oat)_[A-Za-z0-9_\-]{20,}", _anything),
    ("rubygems_key", r"\brubygems_[a-f0-9]{48}", _anything),
    ("clojars_token", r"\bCLOJARS_[a-z0-9]{60}", _anything),
    ("nuget_key", r"\boy2[a-z0-9]{43}\b", mixed),
    ("artifactory_key", r"\bAKC[a-zA-Z0-9]{60,}|\bcmVmd[A-Za-z0-9]{59}\b", _anything),
    ("atlassian_token", rf"\bAT(?:ATT3|CTT3|BB){_TOKEN}{{20,}}(?:=[A-F0-9]{{8}})?", mixed),
    ("octopus_key", r"\bAPI-[A-Z0-9]{25,28}\b", mixed),
    ("pulumi_token", r"\bpul-[a-f0-9]{40}", _anything),
    ("prefect_key", r"\bpn[ub]_[a-zA-Z0-9]{36}", _anything),
    ("infracost_key", r"\bico-[a-zA-Z0-9]{32}\b", mixed),
    ("sourcegraph_token", r"\bsgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{40}", _anything),
    ("sonar_token", r"\bsq[upa]_[a-f0-9]{40}\b", _anything),
    ("readme_key", r"\brdme_[a-z0-9]{60,}", _anything),
    ("postman_key", r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}", _anything),
    ("buildkite_token", r"\bbk[uac][ta]_[A-Za-z0-9]{36,}", mixed),
    ("circleci_token", r"\bCCI(?:PAT|PRJ)_[A-Za-z0-9]{22}_[a-f0-9]{40}", _anything),
    # Watching and secrets
    (
        "grafana_token",
        r"\bglsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|\bglc_[A-Za-z0-9+/]{32,}={0,2}|\beyJrIjoi[A-Za-z0-9]{50,}={0,2}",
        _anything,
    ),
    ("newrelic_key", r"\bNR(?:AK|JS|II|AA|RA|BR)-[A-Za-z0-9\-]{19,40}|\b[a-f0-9]{36}FFFFNRAL", mixed),
    ("sentry_token", r"\bsntry[us]_[A-Za-z0-9+/=_]{40,}", _anything),
    ("dynatrace_token", r"\bdt0[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}", _anything),
    ("launchdarkly_key", rf"\b(?:sdk|api|mob)-{_UUID}", _anything),
    ("vault_token", r"\bhv[sbr]\.[A-Za-z0-9_\-]{20,}", _anything),
    ("doppler_token", r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_\-]{2,35}\.)?[A-Za-z0-9]{40,44}", _anything),
    (
        "onepassword_key",
        r"\bA3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
        _anything,
    ),
    ("onepassword_key", r"\bops_eyJ[a-zA-Z0-9+/]{100,}={0,3}", _anything),
    ("age_key", r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}", _anything),
    ("tailscale_key", r"\btskey-(?:[a-z]+-)?[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}", _anything),
    # Messages and mail
    ("slack_token", r"\bxox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|\bxapp-[0-9]-[A-Za-z0-9-]{10,}", mixed),
    ("mailgun_key", r"\b(?:pub)?key-[0-9a-f]{32}\b", _anything),
    ("sendgrid_key", r"\bSG\.[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{16,64}", _anything),
    ("sendinblue_key", r"\bxkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}", _anything),
    ("facebook_token", r"\bEAA[A-Za-z0-9]{60,}", mixed),
    ("twitter_token", r"\bA{22}[A-Za-z0-9%]{60,}", _anything),
    ("telegram_token", r"\b[0-9]{8,10}:AA[0-9A-Za-z_\-]{33}\b", _anything),
    # Payments and shops
    ("stripe_key", r"\bwhsec_[A-Za-z0-9+/]{24,}={0,2}|\b[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}", _anything),
    ("square_secret", rf"\bsq0(?:atp|csp|idp)-{_TOKEN}{{22,}}|\bEAAA{_TOKEN}{{56,}}", mixed),
    ("shopify_token", r"\bshp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}", _anything),
    ("flutterwave_key", r"\bFLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)?", _anything),
    ("plaid_token", rf"\baccess-(?:sandbox|development|production)-{_UUID}", _anything),
    ("duffel_token", r"\bduffel_(?:test|live)_[A-Za-z0-9_\-=]{40,}", _anything),
    ("easypost_key", r"\bEZ[AT]K[A-Za-z0-9]{50,}", _anything),
    ("shippo_token", r"\bshippo_(?:live|test)_[a-fA-F0-9]{40}", _anything),
    ("paypal_token", r"\baccess_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}", _anything),
    ("razorpay_key", r"\brzp_(?:live|test)_[A-Za-z0-9]{14,}", mixed),
    # Work
    ("notion_token", r"\bntn_[A-Za-z0-9]{40,}|\bsecret_[A-Za-z0-9]{43}\b", mixed),
    ("linear_key", r"\blin_(?:api|oauth)_[A-Za-z0-9]{32,}", _anything),
    ("figma_token", rf"\bfig[dour]_{_TOKEN}{{30,}}", mixed),
    ("airtable_token", r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}", _anything),
    ("asana_token", r"\b[0-2]/\d{16,17}(?:/\d{16,17})?:[a-f0-9]{32}", _anything),
    ("typeform_token", r"\btfp_[A-Za-z0-9_\-.=]{40,}", mixed),
    ("harness_key", r"\b(?:pat|sat)\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}", _anything),
    ("frameio_token", r"\bfio-u-[A-Za-z0-9_\-=]{64}", _anything),
    ("contentful_token", r"\bCFPAT-[A-Za-z0-9_\-]{43}", _anything),
    ("hubspot_token", rf"\bpat-(?:na|eu)\d-{_UUID}", _anything),
    ("adobe_secret", r"\bp8e-[A-Za-z0-9_\-]{32}", mixed),
    ("dropbox_token", r"\bsl\.(?:u\.)?[A-Za-z0-9_\-]{130,}", _anything),
    ("settlemint_token", r"\bsm_[aps]at_[A-Za-z0-9]{16}", mixed),
    ("intra42_secret", r"\bs-s4t2(?:ud|af)-[a-f0-9]{64}", _anything),
    ("ngrok_token", r"\b(?:ak|cr)_[A-Za-z0-9]{27}\b", mixed),
    ("supabase_key", r"\bsbp_[a-f0-9]{40}", _anything),
    ("jwt", r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*){0,3}", _anything),
)
# Kind, trigger, expression: the forms whose own beginning is no good trigger.
_ELSEWHERE = (
    ("terraform_token", r"\.atlasv1\.", r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{60,70}"),
    ("azure_secret", r"[0-9]Q~", r"(?<![A-Za-z0-9_~.\-])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.\-]{31,34}(?![A-Za-z0-9_~\-])"),
    ("maxmind_key", r"_mmk", r"\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b"),
    ("clickhouse_key", r"4b1d", r"\b4b1d[A-Za-z0-9]{38}\b"),
    (
        "webhook",
        r"(?i)discord(?:app)?\.com\\*/+api\\*/+",
        r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/(\d{15,20}/[A-Za-z0-9_\-]{50,})",
    ),
    ("webhook", r"hooks\.slack\.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/_\-]{20,})"),
    ("webhook", r"webhook\.office\.com", r"webhook\.office\.com/webhookb2/([A-Za-z0-9@/\-]{60,})"),
    ("webhook", r"hooks\.zapier\.com", r"hooks\.zapier\.com/hooks/catch/([A-Za-z0-9/]{12,})"),
    ("webhook", r"hook\.(?:eu|us)[0-9]\.make\.com", r"hook\.(?:eu|us)\d\.make\.com/([A-Za-z0-9]{12,})"),
    (
        "wallet_key",
        r"(?i)(?:wif|priv)",
        r"(?i:wif|priv(?:ate)?[ _\-]?key)\W{1,6}(?:\w{1,8}\W{1,3})?([KL5][1-9A-HJ-NP-Za-km-z]{50,51})(?![A-Za-z0-9])",
    ),
    ("wallet_key", r"[xyz]prv[1-9A-HJ-NP-Za-km-z]{20}", r"\b[xyz]prv[1-9A-HJ-NP-Za-km-z]{107}\b"),
)


def vendor_keys() -> list[Detector]:
    """The detectors of vendors' keys."""
    found = [
        Detector(kind, pattern.replace(r"\b", ""), re.compile(pattern, re.ASCII), 0, when(fits))
        for kind, pattern, fits in _FORMS
    ]
    for kind, trigger, pattern in _ELSEWHERE:
        compiled = re.compile(pattern, re.ASCII)
        found.append(Detector(kind, trigger, compiled, min(compiled.groups, 1), as_found))
    return found
