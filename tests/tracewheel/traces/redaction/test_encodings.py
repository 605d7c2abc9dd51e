"""Secrets in base64, percent-encoding and JSON within JSON are redacted where they stand; other base64 stays."""

import base64
import json
import random
import urllib.parse
from collections import Counter

import pytest

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import ingest
from tracewheel.traces.redaction.redactor import Redactor

REDACTOR = Redactor(RedactionConfig())
GITHUB = "ghp_" + "a1B2c3D4e5F6" * 3
SAID = {
    "by its form": f"git clone https://x:{GITHUB}@github.com/o/r",
    "by its name": 'password = "hunter2-and-more"',
    "in JSON": json.dumps({"user": "maria", "client_secret": "hunter2-and-more", "on": True}),
    "an address": "Please write to maria.garcia@corp.co.uk soon.",
}
HIDDEN = (GITHUB, "hunter2", "maria.garcia")


def encode(text, alphabet="standard", lead=b""):
    raw = lead + text.encode()
    return (base64.b64encode(raw) if alphabet == "standard" else base64.urlsafe_b64encode(raw).rstrip(b"=")).decode()


def redact(text):
    trace = Trace("t", [{"role": "user", "content": text}], [], None, None, None, None, None, None, "f", 1)
    redacted, counts = REDACTOR.trace(trace)
    assert REDACTOR.trace(redacted)[0] is redacted
    return redacted.messages[0]["content"], counts


@pytest.mark.parametrize("text", SAID.values(), ids=SAID)
@pytest.mark.parametrize("alphabet", ["standard", "url"])
@pytest.mark.parametrize("lead", [b"", b"a", b"ab"])
def test_base64_of_text_is_redacted_and_stays_base64(text, alphabet, lead):
    for before, after in (("", ""), ("data:text/plain;base64,", '"}'), ('{"file": "', '"}'), ("see /", " now")):
        whole, counts = redact(before + encode(text, alphabet, lead) + after)
        assert counts
        assert whole.startswith(before) and whole.endswith(after)
        inner = whole[len(before) : len(whole) - len(after)]
        said = base64.urlsafe_b64decode(inner.replace("+", "-").replace("/", "_") + "==").decode()
        assert not any(hidden in said for hidden in HIDDEN)
        assert "REDACTED_" in said or "user1@redacted.example.com" in said
        assert said.encode().startswith(lead)


def test_base64_in_lines_is_redacted():
    lines = base64.encodebytes(f"{'-' * 120}\npassword = 'hunter2-and-more'\n{'-' * 90}".encode()).decode()
    written, counts = redact(f"$ base64 .env\n{lines}$")
    assert counts == {"password": 1}
    said = base64.b64decode(written.split(".env\n")[1].rstrip("$")).decode()
    assert "password = 'REDACTED_PASSWORD_1'" in said
    assert max(map(len, written.splitlines())) <= 76


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ('{"password": "hunter2-&-more!", "n": 1}', "hunter2"),
        ("https://app:s3cr3t&Word@db.internal/x", "s3cr3t"),
        ("password=hunter2 and more", "hunter2"),
        ("mail maria.garcia@corp.co.uk", "maria"),
    ],
)
def test_percent_encoding_is_redacted_and_stays_so(text, hidden, times):
    written = text
    for _ in range(times):
        written = urllib.parse.quote(written, safe="")
    whole, counts = redact(f"GET /go?to={written}&page=2")
    assert counts
    assert hidden not in whole
    assert whole.startswith("GET /go?to=") and whole.endswith("&page=2")
    for _ in range(times):
        whole = urllib.parse.unquote(whole)
    assert not text.startswith("{") or json.loads(whole.split("to=")[1].removesuffix("&page=2"))["n"] == 1


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_json_in_json_is_redacted_at_any_depth(depth):
    value = {"password": 'hunter2-"and"-more', "pin": [{"token": 7261}], "as": encode(SAID["by its form"])}
    for _ in range(depth):
        value = {"deep": json.dumps([value, "x"])}
    whole, counts = redact(json.dumps(value))
    for _ in range(depth):
        value = json.loads(value["deep"])[0]
        whole = json.loads(json.loads(whole)["deep"])[0] if isinstance(whole, str) else json.loads(whole["deep"])[0]
    assert whole["password"] == "REDACTED_PASSWORD_1"
    assert whole["pin"] == [{"token": 7261}]
    assert GITHUB not in base64.b64decode(whole["as"]).decode()
    assert counts == {"password": 1, "github_pat": 1}


def test_a_value_known_in_clear_is_found_in_base64_however_short():
    for lead in ("", ":", "a:", "app:"):
        for alphabet in ("standard", "url"):
            written, counts = redact(f"My password is hunter2-x9! And I sent {encode(lead + 'hunter2-x9', alphabet)}.")
            assert counts == {"password": 2}
            code = written.split("sent ")[1].rstrip(".")
            assert base64.urlsafe_b64decode(code + "==").decode() == lead + "REDACTED_PASSWORD_1"


def test_a_value_known_from_another_record_is_found_in_base64(tmp_path):
    def line(text):
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Done."}]
        return json.dumps({"messages": messages}) + "\n"

    code = encode("as hunter2-x9")
    (tmp_path / "log.jsonl").write_text(
        line(f"It is {code} there.") + line("My password is hunter2-x9") + line(code)[:-8] + "\n"
    )
    report = ingest(IngestConfig(paths=(str(tmp_path / "log.jsonl"),)), tmp_path / "out")
    assert report["redacted"] == {"password": 3}
    import pandas

    said = pandas.read_parquet(tmp_path / "out/traces.parquet")["messages"][0]
    assert encode("as REDACTED_PASSWORD_1") in said
    assert code not in (tmp_path / "out/quarantine.jsonl").read_text()


def test_other_base64_and_percent_signs_stay():
    drawn = random.Random(7)
    blob = drawn.randbytes(30_000)
    ordinary = [
        base64.b64encode(b"\x89PNG\r\n\x1a\n" + blob).decode(),
        "data:image/jpeg;base64," + base64.b64encode(blob[:20_000]).decode(),
        encode("<svg xmlns='http://www.w3.org/2000/svg'><path d='M 415 867 5309 L 30 901 820 1.2.3.4'/></svg>"),
        encode(json.dumps({"alg": "HS256", "phone": "415-867-5309", "token_type": "bearer"})),
        encode("The password is required, and the token must be renewed."),
        *(drawn.randbytes(32).hex() for _ in range(50)),
        *(base64.b64encode(drawn.randbytes(64)).decode() for _ in range(200)),
        "100%25 of /a%20b/c%2Fd?q=caf%C3%A9%20au%20lait&v=%7B%22a%22%3A1%7D and 50%",
        "/usr/lib/python3/site-packages/sklearn/linear_model/_logistic.py:internationalizationOfCamelCaseNames",
    ]
    for text in ordinary:
        assert redact(text) == (text, Counter()), text[:100]
