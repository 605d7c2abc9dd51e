"""Redaction: planted values vanish everywhere, other text stays unchanged, tasks stay solvable."""

import base64
import dataclasses
import json
import random
import re
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.config import RedactionConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.redaction.detector import Signs
from tracewheel.traces.redaction.patterns import secret_detectors
from tracewheel.traces.redaction.personal_data import luhn_digit, personal_detectors
from tracewheel.traces.redaction.pseudonyms import KEY_VARIABLE, Pseudonyms, is_pseudonym
from tracewheel.traces.redaction.redactor import Redactor
from tracewheel.traces.redaction.unescaped import Unescaped

LOGS = Path(__file__).parents[4] / "data/traces/workspace.jsonl"
CHARACTERS = st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs",))
REDACTOR = Redactor(RedactionConfig())
KEY_BODY = "MIIEowIBAAKCAQEAx8fJ2mQ0v5pQ1c7dU3nXw9kT4rLsY6hBzE0aGfVjKoPqWtMn\nZ1yRk2bC"
# Kind, secret, and a sentence with the secret.
PLANTED = [
    ("api_key", "sk-proj-Zk39xQm2LpW8vTnB4rYc71HdUs", "Use {} for the model."),
    ("api_key", "sk-ant-api03-qW3eR5tY7uI9oP1aS3dF5gH7jK9lZ1x", "The key {} is new."),
    ("aws_access_token", "AKIA2X7QPLMN4WEKRT6Z", "export AWS_ACCESS_KEY_ID={}"),
    ("secret", "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", "aws_secret_access_key = {}"),
    ("github_pat", "ghp_" + "a1B2c3D4e5F6" * 3, "git clone https://x-access-token:{}@github.com/o/r"),
    ("slack_bot_token", "xoxb-" + "2048123456-" + "2048654321987-" + "AbCdEfGhIjKlMnOpQrStUvWx", "Post with {}."),
    ("stripe_access_token", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "{}"),
    ("gcp_api_key", "AIza" + "SyD4x7Qm2LpW8vTnB4rYc71HdUs_9kL2m3N", "maps?key={}"),
    ("huggingface_access_token", "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi", "login with {}"),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJlLW9mLWFsaWNl", "session {}"),
    ("private_key", f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\n-----END RSA PRIVATE KEY-----", "the key:\n{}\nis in place"),
    ("authorization", "Zm9vOmJhcjEyMzQ1Njc4OQ==", "Authorization: Basic {}"),
    ("authorization", "9f8e7d6c5b4a39281706", 'curl -H "Authorization: Bearer {}" host'),
    ("password", "hunter2-and-more", "My password is {}."),
    ("password", "hunter2", "My password is {}. Do not tell."),
    ("password", "s3cr3tWord", "postgresql://app:{}@db.internal:5432/app"),
    ("password", "correct horse battery staple", '"db_password": "{}"'),
    ("cookie", "sid=8f14e45fceea167a5a36dedd4bea2543; theme=dark", "Cookie: {}"),
    ("email", "maria.garcia@corp.co.uk", "Write to {} please."),
    ("email", "jürgen@müller.de", "An {}."),
    ("phone", "+49 30 901820", "Call {} today."),
    ("phone", "(415) 867-5309", "Call {} today."),
    ("phone", "555-123-4567", "or {}"),
    ("phone", "4158675309", "my phone number is {}"),
    ("phone", "06 12 34 56 78", "mon numéro: {}"),
    ("card", "4111 1111 1111 1111", "Charge {}."),
    ("card", "378282246310005", "amex {}"),
    ("iban", "DE89 3704 0044 0532 0130 00", "to {} please"),
    ("iban", "GB29NWBK60161331926819", "to {}"),
    ("ip", "185.220.101.77", "from {}."),
    ("ip", "2a00:1450:4001:82b::200e", "ping {}"),
]
HARMLESS = [
    "see git@github.com:org/repo, v1.2.3.4, numpy==1.2.3.4 and Chrome/120.0.0.0",
    "2026-10-01T08:06:46.325247Z 10:30:45 2024-05-17 12:00 01-02-2024",
    "550e8400-e29b-41d4-a716-446655440000 da39a3ee5e6b4b0d3255bfef95601890afd80709 call_00123456789",
    "512 768 1024 2048, 3.14159265358979, 1748459284123456789, order 7726612, #W2378156",
    "password: str\ndef f(password: SecretStr, token=create_token(), secret=None): ...\npassword = os.environ['DB_PASSWORD']",
    "The password is required. Enter your password: max_tokens: 4096, token_count = 123456789012",
    '{"type": "object", "properties": {"password": {"type": "string"}}, "required": ["password"]}',
    "#sk-container-id-1 div.sk-parallel-item { color: red } std::vector<int> a::b 127.0.0.1 0.0.0.0",
    "https://oauth2:${GITLAB_TOKEN}@gitlab.com {{password}} <your-api-key> Basic economy, @pytest.mark.skip",
    "api_key=YOUR_API_KEY, secret: ****, Authorization: Bearer <token>, 4111 1111 1111 1112, DE89 3704 0044 0532 0130 01",
]


def trace_of(messages, **fields):
    values = {
        "id": "t1", "messages": messages, "tools": [], "environment": None, "session": None, "user": None, "created": None,
        "model": None, "outcome": None, "source_file": "log.jsonl", "source_line": 1,
    }  # fmt: skip
    return Trace(**{**values, **fields})


def said(text):
    """A trace with a text in every field, and at several depths."""
    nested = json.dumps({"result": json.dumps({"note": text})})
    call = {"id": "c1", "type": "function", "function": {"name": "save", "arguments": json.dumps({"text": text})}}
    return trace_of(
        [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "reasoning": f"They say {text}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "name": "save", "content": nested},
            {"role": "assistant", "content": f"```\n{text}\n```"},
        ],
        tools=[{"type": "function", "function": {"name": "save", "description": text, "parameters": {"default": text}}}],
        environment={"kind": "k", "files": {f"/home/{text}": text}},
        info={"notes": [text, {"deep": nested}]},
    )


def whole(trace):
    return json.dumps(dataclasses.asdict(trace), ensure_ascii=False)


def kinds_in(text, redactor=None):
    """The kinds of values that a redactor finds in a text."""
    _, counts = (redactor or REDACTOR).record_bytes(text.encode("utf-8", "surrogatepass"))
    return sorted(counts)


def core(secret):
    """A part of a secret that no way of writing it down changes."""
    return max(re.findall(r"[A-Za-z0-9]+", secret), key=len)


@pytest.mark.parametrize(("kind", "secret", "sentence"), PLANTED)
def test_planted_values_are_redacted_everywhere(kind, secret, sentence):
    redacted, counts = REDACTOR.trace(said(sentence.format(secret)))
    text = whole(redacted)
    assert core(secret) not in text
    assert kinds_in(text) == []
    assert set(counts) == {kind}
    assert counts[kind] >= 9
    words = {word for word in re.findall(r"[A-Za-z]{4,}", sentence.replace("{}", " ")) if word not in secret}
    assert all(word in text for word in words)
    assert [message["role"] for message in redacted.messages] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(redacted.messages[1]["tool_calls"][0]["function"]["arguments"])["text"] == redacted.messages[0]["content"]


@pytest.mark.parametrize(("kind", "secret", "sentence"), PLANTED)
@pytest.mark.parametrize("escaped", [False, True])
def test_planted_values_are_redacted_in_damaged_records(kind, secret, sentence, escaped):
    line = json.dumps({"messages": [{"role": "user", "content": sentence.format(secret)}]}, ensure_ascii=escaped).encode()
    for raw in (line, line[:-4], b"\xff\xfe broken " + line, line.decode().encode("utf-16")):
        redacted, counts = REDACTOR.record_bytes(raw)
        assert core(secret).encode() not in redacted.replace(b"\0", b"")
        assert counts[kind] >= 1


def test_escaped_values_are_found():
    for written in (
        r"mail maria\u0040corp.com now",
        r"https:\/\/bob:s3cr3tWord@host\/x",
        r"line\nmaria@corp.com",
        "maria%40corp.com",
    ):
        redacted, counts = REDACTOR.record_bytes(written.encode())
        assert counts
        assert b"maria" not in redacted
        assert b"s3cr3t" not in redacted
        assert kinds_in(redacted.decode()) == []
    assert REDACTOR.record_bytes(rb"line\nmaria@corp.com")[0] == rb"line\nuser1@redacted.example.com"


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays(text):
    trace = said(text)
    assert REDACTOR.trace(trace) == (trace, Counter())
    assert REDACTOR.record_bytes(text.encode()) == (text.encode(), Counter())


def test_the_logs_that_ship_stay_byte_for_byte():
    traces = 0
    for line in LOGS.read_bytes().splitlines():
        assert REDACTOR.record_bytes(line) == (line, Counter())
        try:
            record = json.loads(line)
        except ValueError:
            continue  # some lines are damaged on purpose
        if isinstance(record, dict):
            names = {"messages", "tools", "environment", "session", "user", "created", "model"} & set(record)
            trace = trace_of(**{"messages": [], **{name: record[name] for name in names}})
            redacted, counts = REDACTOR.trace(trace)
            assert redacted is trace
            assert not counts
            traces += 1
    assert traces > 700


def test_one_value_has_one_pseudonym_that_tools_accept():
    call = {"name": "look_up", "arguments": json.dumps({"email": "maria@corp.com"})}
    trace = trace_of(
        [
            {
                "role": "user",
                "content": "I am Maria@corp.com, my colleague is bob@corp.com, call (415) 867-5309 or 415-867-5309",
            },
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": "c", "content": '{"card": "4111-1111-1111-1111", "again": 4111111111111111}'},
        ],
        environment={"kind": "shop", "cards": [4111111111111111]},
    )
    redacted, counts = REDACTOR.trace(trace)
    assert redacted.messages[0]["content"] == (
        "I am user1@redacted.example.com, my colleague is user2@redacted.example.com, call (202) 555-0101 or 202-555-0101"
    )
    assert json.loads(redacted.messages[1]["tool_calls"][0]["function"]["arguments"]) == {"email": "user1@redacted.example.com"}
    reply = json.loads(redacted.messages[2]["content"])
    assert reply["card"].replace("-", "") == str(reply["again"]) == str(redacted.environment["cards"][0])
    assert luhn_digit(str(reply["again"])[:-1]) == str(reply["again"])[-1]
    assert counts == {"email": 3, "phone": 2, "card": 3}
    assert REDACTOR.trace(redacted) == (redacted, Counter())


def test_a_secret_is_found_again_without_context():
    redacted, counts = REDACTOR.trace(
        trace_of(
            [
                {"role": "user", "content": "the password is hunter2"},
                {"role": "assistant", "content": "I typed hunter2 twice: hunter2"},
            ]
        )
    )
    assert redacted.messages[1]["content"] == "I typed REDACTED_PASSWORD_1 twice: REDACTED_PASSWORD_1"
    assert counts == {"password": 3}


def test_a_value_found_in_a_trace_is_redacted_in_the_user_too():
    said = [{"role": "user", "content": "My password is hunter2-and. Call (415) 867-5309, or was it 4158675309?"}]
    redacted, counts = REDACTOR.trace(trace_of(said, user="hunter2-and", session="4158675309"))
    assert redacted.messages[0]["content"] == "My password is REDACTED_PASSWORD_1 Call (202) 555-0101, or was it 2025550101?"
    assert re.fullmatch(r"user-[0-9a-f]{16}", redacted.user)
    assert re.fullmatch(r"session-[0-9a-f]{16}", redacted.session)
    assert counts == {"password": 2, "phone": 3}


def test_users_and_sessions_stay_linkable_across_traces_and_plain_ones_stay():
    first, _ = REDACTOR.trace(
        trace_of([{"role": "user", "content": "a"}], user="maria@corp.com", session="s1", task="retail-4")
    )
    second, counts = REDACTOR.trace(
        trace_of([{"role": "user", "content": "b"}], user="maria@corp.com", session="+49 30 901820")
    )
    other, _ = REDACTOR.trace(trace_of([{"role": "user", "content": "b"}], user="bob@corp.com"))
    assert first.user == second.user != other.user
    assert re.fullmatch(r"user-[0-9a-f]{16}", first.user)
    assert (first.session, first.task) == ("s1", "retail-4")
    assert counts == {"email": 1, "phone": 1}
    assert first.messages == [{"role": "user", "content": "a"}]


def test_a_key_changes_the_hashes_of_users(monkeypatch):
    trace = trace_of([{"role": "user", "content": "a"}], user="maria@corp.com")
    plain = REDACTOR.trace(trace)[0].user
    monkeypatch.setenv("TRACEWHEEL_REDACTION_KEY", "long and random")
    assert Redactor(RedactionConfig()).trace(trace)[0].user != plain


def test_pseudonyms_over_the_whole_dataset_need_a_key_and_do_not_depend_on_order(monkeypatch):
    config = RedactionConfig(scope="dataset")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=KEY_VARIABLE):
        Redactor(config)
    monkeypatch.setenv(KEY_VARIABLE, "long and random")
    redactor = Redactor(config)
    texts = ["maria@corp.com then bob@corp.com from 185.220.101.7, 4111 1111 1111 1111", "bob@corp.com then maria@corp.com"]
    one, two = (redactor.trace(trace_of([{"role": "user", "content": text}]))[0].messages[0]["content"] for text in texts)
    hidden, counts = redactor.record_bytes(rb'{"password": "half\ud800pair77"}')
    assert b"half" not in hidden
    assert counts == {"password": 1}
    assert one.split()[:3] == two.split()[::-1]
    assert kinds_in(f"{one} {two}", redactor) == []


def test_allowed_values_stay_and_custom_kinds_are_redacted():
    config = RedactionConfig(
        personal=("email",),
        allow=("help@corp.com",),
        allow_patterns=(r".*@example\.org",),
        patterns={"badge": r"badge (\d{4}-\w+)"},
    )
    redactor = Redactor(config)
    text = "help@corp.com a@example.org maria@corp.com (415) 867-5309 badge 1234-xyz"
    redacted, counts = redactor.record_bytes(text.encode())
    assert redacted.decode() == "help@corp.com a@example.org user1@redacted.example.com (415) 867-5309 badge REDACTED_BADGE_1"
    assert counts == {"email": 1, "badge": 1}
    assert kinds_in(text, redactor) == ["badge", "email"]
    off = Redactor(RedactionConfig(enabled=False))
    assert off.record_bytes(text.encode()) == (text.encode(), Counter())


@pytest.mark.parametrize(
    "patterns", [{"patterns": {"x": "("}}, {"patterns": {"x": "a*"}}, {"allow_patterns": ("[",)}, {"patterns": {"X Y": "a"}}]
)
def test_an_unusable_pattern_is_an_error_at_the_start(patterns):
    with pytest.raises(ValueError, match="pattern|expression"):
        RedactionConfig(**patterns)


TODAY = {
    "firecrawl_key": "fc-" + "3859a10d43f7d7a2" * 2,
    "posthog_personal_api_key": "phx_" + "a1B2c3D4e5F" * 4,
    "runpod_api_key": "rpa_" + "A1B2C3D4E5F" * 4 + "g7",
    "1password_service_account_token": "ops_eyJ" + "a1B2c3D4" * 40,
    "resend_api_key": "re_a1B2c3D4_" + "e5F6g7H8" * 3,
    "gemini_key": "AQ.Ab8" + "k2zB4kgk" * 6,
    "pinecone_api_key": "pcsk_a1B2c3_" + "d4E5f6G7h" * 7,
}


@pytest.mark.parametrize("kind", TODAY)
def test_keys_of_today_are_redacted(kind):
    for text in (f"Use {TODAY[kind]} for it.", f"export X={TODAY[kind]}", json.dumps({"value": TODAY[kind]})):
        after, counts = REDACTOR.record_bytes(text.encode())
        assert counts == {kind: 1} and TODAY[kind].encode() not in after


@pytest.mark.parametrize(
    "text",
    [
        '"session_id": "4d5611e5-241a-462a-8d15-5122611a9569"',
        "see @README.md, '@README.md' and look@README.md",
        "Co-Authored-By: Claude <noreply@anthropic.com>",
        "os.environ['AWS_SECRET_ACCESS_KEY'] = 'testing'",
        "tokenizer_model=Qwen/Qwen2.5-7B-Instruct",
        'credential_helper=osxkeychain, credential.helper = "osxkeychain"',
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert REDACTOR.record_bytes(text.encode()) == (text.encode(), Counter())


@pytest.mark.parametrize("text", ['{"password": "swordfish"}', "password = 'swordfish'"])
def test_a_quoted_password_may_be_a_word(text):
    assert b"swordfish" not in REDACTOR.record_bytes(text.encode())[0]


@pytest.mark.parametrize("quote", ["", "'", '"', "`", "<", "-", "&"])
def test_an_address_is_found_after_any_mark(quote):
    assert b"maria" not in REDACTOR.record_bytes(f"to {quote}maria@corp.com now".encode())[0]


def test_of_a_long_record_in_quarantine_an_excerpt_is_kept():
    image = base64.b64encode(random.Random(1).randbytes(10_000)).decode()
    raw = f'{{"image": "{image}", "mail": "maria@corp.com", "rest": "{"word " * 4000}"}}'.encode()
    item, found = REDACTOR.quarantined(Quarantined("log.jsonl", 1, "not JSON", "", raw))
    record = item.to_record()
    assert found == {"email": 1} and record["bytes"] == len(raw) and record["sha256"] == sha256(raw).hexdigest()
    assert len(record["raw"]) <= 4096 and image[:40] not in record["raw"] and "user1@redacted.example.com" in record["raw"]
    assert sha256(image.encode()).hexdigest() in record["raw"]
    assert REDACTOR.quarantined(item)[0] == item


def test_token_ids_are_dropped_with_redacted_text():
    tokens = {"token_ids": [1, 2], "logprobs": [0.0, -1.0], "action_mask": [0, 1]}
    redacted, counts = REDACTOR.trace(trace_of([{"role": "user", "content": "maria@corp.com"}], tokens=tokens))
    assert redacted.tokens is None
    assert counts == {"email": 1, "token_ids": 1}
    clean, _ = REDACTOR.trace(trace_of([{"role": "user", "content": "hello"}], tokens=tokens))
    assert clean.tokens == tokens


DETECTORS = [*secret_detectors(), *personal_detectors(RedactionConfig().personal, ("US", "DE", "GB", "FR"))]


@settings(deadline=None)
@given(st.sampled_from(range(len(DETECTORS))), st.data())
def test_signs_are_in_whatever_patterns_find(index, data):
    """The quick check never misses what a detector finds, and a search around its signs finds the same."""
    detector = DETECTORS[index]
    text = "Note: " + data.draw(st.from_regex(detector.pattern, alphabet=CHARACTERS))
    found = [match.span() for match in detector.matches(text) if detector.identify(match.group(detector.group))]
    ends = Signs([detector]).detectors(text).get(0)
    assert not found or ends
    assert not ends or found == [m.span() for m in detector.matches(text, ends) if detector.identify(m.group(detector.group))]


@given(st.text(max_size=60), st.sampled_from(PLANTED), st.text(max_size=60), st.integers(0, 3))
def test_redacted_json_stays_json(before, planted, after, depth):
    kind, secret, sentence = planted
    value = f"{before} {sentence.format(secret)} {after}"
    for _ in range(depth):
        value = json.dumps({"a": [value, 1]})
    trace = trace_of([{"role": "user", "content": value}])
    redacted, counts = REDACTOR.trace(trace)
    content = redacted.messages[0]["content"]
    for _ in range(depth):
        content = json.loads(content)["a"][0]
    assert core(secret) not in content
    assert content.startswith(before[: len(before) // 2]) or counts[kind] > 1 or set(counts) != {kind}
    assert kinds_in(whole(redacted)) == []


@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_crash_the_redactor(raw):
    redacted, counts = REDACTOR.record_bytes(raw)
    assert (redacted == raw) == (not counts)


@given(st.text(max_size=200))
def test_unescaped_text_maps_back_to_escaped_text(text):
    for written in (text, json.dumps(text), json.dumps(json.dumps([text]), ensure_ascii=False)):
        view = Unescaped(written)
        assert len(view.text) == len(view.plain)
        spans = [view.span(place, place + 1) for place in range(len(view.text))]
        assert "".join(written[start:end] for start, end in spans) == written


@given(
    st.sampled_from(["email", "phone", "card", "iban", "ip", "password"]),
    st.lists(st.text(min_size=1), min_size=2, unique=True),
    st.booleans(),
)
def test_pseudonyms_are_distinct_and_recognised(kind, identities, keyed):
    written = {
        "email": "a@b.de",
        "phone": "+49 30 901820",
        "card": "4111 1111 1111 1111",
        "iban": "GB29 NWBK 6016 1331 9268 19",
        "ip": "1.1.1.1",
    }
    pseudonyms = Pseudonyms(b"key" if keyed else None)
    made = [pseudonyms.of(kind, identity, written.get(kind, "x")) for identity in identities]
    assert len(set(made)) == len(made)
    assert all(is_pseudonym(kind, one) for one in made)
    assert made == [pseudonyms.of(kind, identity, written.get(kind, "x")) for identity in identities]
