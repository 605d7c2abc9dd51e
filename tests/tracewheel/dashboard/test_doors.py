"""What a request can reach: no file by its path, nothing by a forged form, and one way to write only."""

import json
import shutil
from http.cookies import SimpleCookie

import pytest
from starlette.testclient import TestClient

from tracewheel.core.errors import DataError
from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.guard import MOST_BYTES, POLICY, Access
from tracewheel.dashboard.library import Library

ACCESS = Access()
PATHS = [
    "..", "../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..%5cwindows",
    "%2fetc%2fpasswd", "....//....//etc/passwd", "summary.json", "%00", "a%00.parquet", "-", "%20", "*", "evaluate-*", "~",
    "$HOME", "%F0%9F%92%A9", "%ff%fe", "a" * 4000, "'; DROP TABLE episodes; --", "' OR 1=1 --", "file:%2f%2f%2fetc%2fpasswd",
]  # fmt: skip
QUERIES = (
    "q place run left right at user session trace road from sort why entry part split family policy iteration kind outcome "
    "tool state task page"
)


@pytest.fixture
def desk(shown, tmp_path):
    """A dashboard over a copy, the record of a run in it, and what was decided."""
    work = tmp_path / "demo"
    shutil.copytree(shown, work, ignore=shutil.ignore_patterns(".dashboard*"))
    decided = []

    def decide(record, decision, by, note):
        if by == "Nobody":
            raise DataError("run is approved, and not champion: version 2 is champion since")
        decided.append((record.run_id, decision, by, note))

    app = create_app(Library([work]), ACCESS, decide)
    visitor = TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)
    run = sorted(path.parent.name for path in work.glob("*/lineage.json"))[0]
    return visitor, work / run, decided


def of(record):
    return f"/runs/demo/{record.name}"


def form(**more):
    return {"form_token": ACCESS.form_token, "who": "Ada", "decision": "approved", **more}


def test_forms_of_other_sites_and_kinds_are_refused(desk):
    visitor, record, decided = desk
    address = f"{of(record)}/decision"
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        assert visitor.post(address, data=form(), headers=headers).status_code == 403
    assert visitor.post(address, json=form()).status_code == 422, "only forms"
    assert visitor.post(address, data=form(form_token="x")).status_code == 403
    assert visitor.post(address, data=form(note="a" * MOST_BYTES)).status_code == 422
    assert visitor.get(address).status_code in (404, 405)
    assert visitor.post(address, data=form(), headers={"host": "evil.example"}).status_code == 421
    assert not decided


def test_a_decision_is_handed_on_and_its_refusal_is_shown(desk):
    visitor, record, decided = desk
    send = lambda **more: visitor.post(f"{of(record)}/decision", data=form(**more))  # noqa: E731
    answer = send(note="go")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{of(record)}/review")
    cookie = SimpleCookie(answer.headers["set-cookie"])["tracewheel_reviewer"]
    assert cookie.value == "Ada" and cookie["httponly"] and cookie["samesite"] == "strict"
    assert decided == [(record.name, "approved", "Ada", "go")]
    lost = send(who="Nobody")
    assert lost.status_code == 422 and "version 2 is champion since" in lost.text
    assert send(decision="perhaps").status_code == 422
    assert len(decided) == 1


def test_a_run_that_waits_shows_both_answers_and_the_command_where_the_page_cannot(desk, shown):
    visitor, record, _ = desk
    (record / "approval.json").write_text(json.dumps({"asked": "2026-11-23T14:00:00+00:00"}))
    page = visitor.get(f"{of(record)}/review").text
    assert "Waits for approval" in page and 'value="approved"' in page and 'value="refused"' in page
    without = TestClient(create_app(Library([record.parent])), base_url="http://127.0.0.1")
    page = without.get(f"{of(record)}/review").text
    assert "tracewheel champion approve" in page and 'value="approved"' not in page


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD", "PROPFIND"])
def test_pages_are_read_and_forms_are_sent_and_nothing_else(client, method):
    answer = client.request(method, "/")
    assert answer.status_code == 405
    assert answer.headers["content-security-policy"] == POLICY


def test_a_post_to_a_page_is_refused(client):
    assert client.post("/", data={"form_token": "x"}).status_code == 405


@pytest.mark.parametrize("paths", [PATHS[1::8], pytest.param(PATHS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_no_part_of_an_address_leads_to_a_file(client, run_ids, paths):
    """Each part of each route, and each name of a query, with paths, marks and halves of statements."""
    real = {"place": "demo", "run_id": run_ids[0]}
    for route in _routes(client.app):
        names = [part[1:-1] for part in route.split("/") if part.startswith("{")]
        for name in names:
            for bad in paths:
                address = route
                for other in names:
                    address = address.replace(f"{{{other}}}", bad if other == name else real.get(other, "x-00000000"))
                answer = client.get(address)
                assert answer.status_code < 500, address
                assert "root:" not in answer.text and answer.headers["content-security-policy"] == POLICY, address
    for where in ("/", "/search", "/lineage", f"/runs/demo/{run_ids[0]}/lineage", "/static/../app.py"):
        for name in QUERIES.split():
            for bad in paths:
                answer = client.get(f"{where}?{name}={bad}")
                assert answer.status_code < 500, (where, name, bad)
                assert "root:" not in answer.text
    for bad in paths:
        answer = client.get(f"/static/{bad}")
        left = not answer.request.url.path.startswith("/static/")  # the client itself has gone a folder up
        assert answer.status_code in (400, 404, 405, 414) or left, bad
        assert "root:" not in answer.text and "import " not in answer.text, bad


def test_the_token_is_asked_for_on_every_page_and_form(library):
    access = Access(token="correct-horse-battery")
    with TestClient(create_app(library, access), base_url="http://127.0.0.1", follow_redirects=False) as visitor:
        for address in ("/", "/lineage", "/runs/demo/x/review", "/static/style.css"):
            assert visitor.get(address).status_code == 401
            assert visitor.get(f"{address}?token=correct-horse-batterz").status_code == 401
        answer = visitor.post("/runs/demo/x/decision?token=correct-horse-battery", data=form())
        assert answer.status_code == 401, "a form does not bring the token in its address"
        welcome = visitor.get("/lineage?user=a&token=correct-horse-battery")
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/lineage?user=a")
        cookie = SimpleCookie(welcome.headers["set-cookie"])["tracewheel_dashboard"]
        assert cookie["httponly"] and cookie["samesite"] == "strict" and cookie["path"] == "/"
        assert visitor.get("/lineage").status_code == 200


def _routes(app):
    """All GET routes, those of included routers too."""
    found = set()

    def walk(routes):
        for route in routes:
            inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
            if inner and not hasattr(route, "endpoint"):
                walk(inner)
            elif "GET" in (getattr(route, "methods", None) or ()):
                found.add(route.path)

    walk(app.routes)
    assert len(found) > 12, found
    return sorted(found)
