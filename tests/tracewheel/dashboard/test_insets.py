"""What a wheel shows within a page of the core, and the forms that it takes."""

import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard import app, view
from tracewheel.dashboard.guard import Access
from tracewheel.dashboard.view import OF_RUN, Tab, form, page

TEMPLATE = '<form method="post" id="sizes">{{ size }} {{ form_token }} {{ who }} {{ run.run_id }}</form>'


@pytest.fixture
def visitor(library, tmp_path, monkeypatch):
    """A dashboard with a wheel that has an inset on Review and a form; and what the form took."""
    (tmp_path / "sizes.html").write_text(TEMPLATE)
    taken = []

    @page(f"{OF_RUN}/review", "sizes.html", tab=Tab("Sizes", "sizes", 0), folder=tmp_path, is_inset=True)
    def sizes(ask):
        return {"size": f"<b>{ask.query.get('size', '')}</b>"}

    @form(f"{OF_RUN}/size")
    def take(ask, fields):
        taken.append((ask.run.run_id, ask.at, fields["size"]))
        return ask.address("review", size=fields["size"])

    for module in (view, app):
        monkeypatch.setattr(module, "wheel_pages", lambda: (sizes, take))
    view.environment.cache_clear()
    with TestClient(app.create_app(library, Access(secret="s")), base_url="http://127.0.0.1") as client:
        yield client, taken
    view.environment.cache_clear()


def test_an_inset_stands_within_its_page_escaped_and_its_form_comes_back(visitor, run_ids):
    client, taken = visitor
    address, token = f"/runs/demo/{run_ids[0]}", Access(secret="s").form_token
    text = client.get(f"{address}/review?size=3").text
    assert text.count(f'<form method="post" id="sizes">&lt;b&gt;3&lt;/b&gt; {token}  {run_ids[0]}</form>') == 1
    assert "waits for a person" not in text and ">Sizes</a>" not in text, "no tab, which is for pages"
    answer = client.post(f"{address}/size", data={"size": "7", "form_token": token, "who": "Ada"})
    assert answer.url.path == f"{address}/review" and "&lt;b&gt;7&lt;/b&gt;" in answer.text and " Ada " in answer.text
    ((run_id, at, size),) = taken
    assert (run_id, size) == (run_ids[0], "7") and at.endswith("+00:00")


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        ({"size": "7"}, {}, 403),
        ({"size": "7", "form_token": "0" * 64}, {}, 403),
        ({"size": "7", "form_token": Access(secret="s").form_token}, {"sec-fetch-site": "cross-site"}, 403),
        ({"size": "7", "form_token": Access(secret="s").form_token}, {"origin": "http://evil.example"}, 403),
    ],
)
def test_a_forged_form_reaches_no_wheel(visitor, run_ids, data, headers, status):
    client, taken = visitor
    assert client.post(f"/runs/demo/{run_ids[0]}/size", data=data, headers=headers).status_code == status
    assert client.get(f"/runs/demo/{run_ids[0]}/size").status_code == 405 and not taken


def test_review_without_wheels_says_that_nothing_waits(visitor, library, run_ids, monkeypatch):
    monkeypatch.setattr(app, "wheel_pages", lambda: ())
    client = TestClient(app.create_app(library), base_url="http://127.0.0.1")
    assert "No promotion of this run waits for a person." in client.get(f"/runs/demo/{run_ids[0]}/review").text
