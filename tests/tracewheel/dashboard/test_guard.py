"""Who may ask the dashboard, and what comes with each answer."""

import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.guard import COOKIE, POLICY, Access

TOKEN = "a-token-of-enough-characters"


@pytest.fixture
def guarded(library):
    def visitor(**options) -> TestClient:
        app = create_app(library, Access(hosts=("box.example", "127.0.0.1"), token=TOKEN))
        return TestClient(app, base_url="http://box.example:8600", follow_redirects=False, **options)

    return visitor


def test_each_answer_has_the_policy(client, run_ids):
    for address in ("/", f"/runs/demo/{run_ids[0]}", "/runs/demo/nothing", "/static/style.css", "/nowhere"):
        answer = client.get(address)
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:8600", "[::2]"])
def test_a_name_that_is_not_ours_is_refused(client, host):
    """A page of another site may have a name that leads to 127.0.0.1 (DNS rebinding)."""
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:8600", "LOCALHOST"])
def test_names_of_this_machine_are_ours(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_the_token_becomes_a_cookie_that_no_script_reads(guarded):
    visitor = guarded()
    assert visitor.get("/").status_code == 401
    assert visitor.get("/static/style.css").status_code == 401
    assert visitor.get("/?token=wrong").status_code == 401
    assert visitor.get("/?token=").status_code == 401
    answer = visitor.get(f"/?q=a b&token={TOKEN}&state=promoted")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?q=a+b&state=promoted"
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"{COOKIE}={TOKEN}") and "httponly" in cookie and "samesite=strict" in cookie
    assert visitor.get("/").status_code == 200
    visitor.cookies.set(COOKIE, TOKEN[:-1])
    assert guarded(cookies={COOKIE: TOKEN[:-1]}).get("/").status_code == 401


def test_the_way_back_from_the_token_stays_here(guarded):
    answer = guarded().get(f"//evil.example/?token={TOKEN}")
    assert not answer.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)
def test_another_site_writes_nothing(client, headers):
    answer = client.post("/", headers=headers)
    assert answer.status_code == 403


def test_only_reading_at_pages(client):
    for method in ("post", "put", "patch", "delete"):
        assert getattr(client, method)("/").status_code == 405
