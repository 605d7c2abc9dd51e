"""The core's door, server and clients, with Anthropic's client and the paths of this wheel."""

import anthropic
import pytest

from tests.tracewheel.gateway.conftest import (  # noqa: F401
    gateway,
    limits,
    model,
    plain_agent,
    talk_with,
    thread,
    together,
)
from tests.tracewheel.gateway.dialects.conftest import (  # noqa: F401
    EPISODE,
    KEY,
    chat,
    clients,
    door,
    events_of,
    exactly,
    http,
    replaceable,
    served,
)

MESSAGES = [{"role": "user", "content": "hi"}]
BODIES = {
    "messages": {"model": "m", "max_tokens": 9, "messages": MESSAGES},
    "responses": {"model": "m", "input": "hi"},
}


@pytest.fixture(scope="session")
def claude_client(served):  # noqa: F811
    with anthropic.Anthropic(base_url=served.url(EPISODE), api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture
def claude(claude_client, door):  # noqa: F811
    """Anthropic's client before this test's door."""
    return claude_client


@pytest.fixture(params=BODIES)
def spoken(request):
    """A path that asks for a turn, and a sound body."""
    return request.param, BODIES[request.param]
