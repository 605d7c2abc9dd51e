"""Labels by the dashboard's forms: kept where they belong, shown, and none of a forged form."""

import json
import re
import shutil
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.guard import MOST_BYTES, POLICY, Access
from tracewheel.dashboard.library import Library
from tracewheel_labels.labels import labels_of

ACCESS = Access()


@pytest.fixture
def desk(shown, tmp_path):
    """A dashboard over a copy, the record of a run in it, and a trajectory of that run."""
    work = tmp_path / "demo"
    shutil.copytree(shown, work, ignore=shutil.ignore_patterns(".dashboard*"))
    visitor = TestClient(create_app(Library([work]), ACCESS), base_url="http://127.0.0.1", follow_redirects=False)
    run = sorted(path.parent.name for path in work.glob("*/lineage.json"))[0]
    changes = json.loads((work / run / "changes.json").read_text())
    entry, part, _ = changes[0]["challenger"]["file"].split("/")
    return visitor, work / run, {"entry": entry, "part": part, "trajectory": changes[0]["challenger"]["trajectory"]}


def of(record):
    return f"/runs/demo/{record.name}"


def form(values, **more):
    return {"form_token": ACCESS.form_token, "who": "Ada", "label": "right", **values, **more}


def test_a_label_is_kept_shown_and_counted(desk):
    visitor, record, where = desk
    answer = visitor.post(f"{of(record)}/label", data=form(where, note="<b>well</b> done", why="lost"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"{of(record)}/review")
    (label,) = labels_of(record)
    assert (label.label, label.note, label.why) == ("right", "<b>well</b> done", "lost")
    page = visitor.get(f"{of(record)}/review").text
    assert "&lt;b&gt;well&lt;/b&gt; done" in page and "all labelled" in page
    episode = visitor.get(f"{of(record)}/episodes/{where['entry']}/{where['part']}/{where['trajectory']}").text
    assert "&lt;b&gt;well&lt;/b&gt; done" in episode and 'value="Ada"' in episode
    visitor.post(f"{of(record)}/label", data=form(where, label="withdrawn"))
    assert labels_of(record) == []


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"form_token": ""}, 403),
        ({"form_token": "0" * 64}, 403),
        ({"label": "perhaps"}, 422),
        ({"who": ""}, 422),
        ({"who": "a\nb"}, 422),
        ({"note": "\x1b]8;;x\x07"}, 422),
        ({"note": "a" * 1001}, 422),
        ({"note": "a" * (MOST_BYTES + 1)}, 422),
        ({"trajectory": "../../../etc/passwd"}, 422),
        ({"trajectory": "' OR 1=1 --"}, 422),
        ({"entry": "../../.."}, 422),
        ({"entry": "evaluate-0000000000000000"}, 422),
        ({"part": "../greedy"}, 422),
    ],
)
def test_forged_or_unusable_labels_change_nothing(desk, change, status):
    visitor, record, where = desk
    answer = visitor.post(f"{of(record)}/label", data=form(where) | change)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == POLICY
    assert not (record / "labels.jsonl").exists()


def test_forms_of_other_sites_and_kinds_are_refused(desk):
    visitor, record, where = desk
    address, good = f"{of(record)}/label", form(where)
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        assert visitor.post(address, data=good, headers=headers).status_code == 403
    assert visitor.post(address, json=good).status_code == 422, "only forms"
    assert visitor.get(address).status_code in (404, 405)
    assert visitor.post(address, data=good, headers={"host": "evil.example"}).status_code == 421
    assert not (record / "labels.jsonl").exists()


def test_the_queue_leads_to_the_form_which_keeps_why(desk):
    visitor, record, _ = desk
    address = re.findall(r'href="([^"]*)">Label</a>', visitor.get(f"{of(record)}/review").text)[0]
    _, entry, part, trajectory = urlsplit(address).path.rsplit("/", 3)
    assert address == f"{of(record)}/episodes/{entry}/{part}/{trajectory}?why=random", "nothing is lost in this run"
    page = visitor.get(address).text
    assert 'name="why" value="random"' in page and 'href="#label">Label it</a>' in page and 'value="withdrawn"' not in page
    where = {"entry": entry, "part": part, "trajectory": trajectory}
    assert visitor.post(f"{of(record)}/label", data=form(where, why="random")).status_code == 303
    assert 'value="withdrawn"' in visitor.get(address).text, "who labelled may take it back"
    assert labels_of(record)[0].why == "random"


def test_damaged_labels_are_named_on_the_pages_that_need_them(desk):
    visitor, record, _ = desk
    (record / "labels.jsonl").write_text('{"entry": 3}\n')
    answer = visitor.get(f"{of(record)}/review")
    assert answer.status_code == 422 and "labels.jsonl:1: no label" in answer.text
