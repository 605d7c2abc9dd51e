"""A request that is too much is refused before it is read."""

import json

import httpx
import pytest

from tests.tracewheel.gateway.test_doors import OWN, door, patient, slowest, talk  # noqa: F401


@pytest.mark.parametrize(
    ("path", "body"),
    [("messages", {"messages": talk(10_001), "max_tokens": 9}), ("responses", {"input": talk(10_001)})],
)
def test_too_much_is_refused_before_it_is_read(patient, path, body):  # noqa: F811
    raw = json.dumps({"model": "policy", **body}, separators=(",", ":"))
    with slowest(patient.url()) as took:
        reply = httpx.post(f"{patient.openai_url()}/{path}", content=raw, headers=OWN, timeout=60)
    assert reply.status_code == 413 and "10000" in reply.json()["error"]["message"]
    assert took[0] < 0.7
