"""Text of traces cannot do anything: hostile texts in every field of a run, and every page looked at."""

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from starlette.testclient import TestClient

from tracewheel.core.run_record import RunRecord
from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.files import export_runs
from tracewheel.dashboard.guard import POLICY
from tracewheel.dashboard.library import Library

pytestmark = pytest.mark.slow
TEXTS = json.loads((Path(__file__).parent / "hostile.json").read_text(encoding="utf-8"))
ALL = " ".join(TEXTS)
HUGE = "<b>" + "A" * 300_000
DEEP = '{"a":' * 900 + '"<script>alert(0)</script>"' + "}" * 900
# Columns that are shown and name nothing.
POISONED = {
    "detail", "stop_reason", "family", "prompt", "user", "session", "model", "source_file", "format", "road", "failure_kind",
    "failure_detail", "created", "opening", "traceback", "fault", "answer", "explanation",
}  # fmt: skip
MOST_OF_A_KIND = 3
SCRIPTS = {"/static/theme.js", "/static/htmx.min.js", "/static/dashboard.js"}
KNOWN = (
    "html head meta title link script body a header div nav button main section article footer p h1 h2 h3 h4 ol ul li dl dt dd "
    "table thead tbody tfoot tr th td caption form label input select option optgroup textarea fieldset legend noscript span b "
    "i em strong small code pre kbd br hr details summary figure figcaption svg g path rect circle line polyline polygon text "
    "tspan desc defs marker mark del ins sub sup time abbr progress meter datalist output colgroup col wbr"
)
TAGS = frozenset(KNOWN.split())
OF_A_RUN = ("/review", "/traces", "/lineage", "/rollouts", "/live")
WORDS = (
    "name message reasons says family note text title prompt advice evidence headline detail logged replayed finding threshold"
)
FIXED = "runs tasks groups episodes tokens pair rollouts traces lineage review live search compare help static everything"


@pytest.fixture(scope="module")
def poisoned(shown, tmp_path_factory):
    """A copy of the shipped runs with a hostile text wherever a trace, a model or a person could have written one."""
    work = tmp_path_factory.mktemp("hostile") / "demo"
    shutil.copytree(shown, work, ignore=shutil.ignore_patterns(".dashboard*"))
    numbers = count()
    for file in work.rglob("*.parquet"):
        if file.is_file() and ".beside" not in file.parts:
            _poison_table(file, numbers)
    for record in [path.parent for path in work.glob("*/lineage.json")]:
        _poison_record(record)
    waits = {"planned": 9, "nights": [{"run": text, "at": text, "tasks": 1, "difference": 0.1} for text in TEXTS]}
    gates = [dict.fromkeys(("run", "baseline", "began", "verdict", "why"), ALL) | {"candidate": waits}]
    (work / "gates.json").write_text(json.dumps(gates))
    for ingest in work.glob("store/ingest-*"):
        report = json.loads((ingest / "report.json").read_text())
        report |= {"redacted": {ALL: 3}, "by_format": {ALL: 1}, "by_reason": {ALL: 2, "not JSON": 2}}
        (ingest / "report.json").write_text(json.dumps(report))
        lines = [{"file": text, "line": 1, "offset": 3, "reason": ALL, "detail": text, "raw": text} for text in TEXTS]
        lines += [{"file": "a", "line": 2, "offset": 0, "reason": "not JSON", "detail": ALL, "raw": HUGE}]
        (ingest / "quarantine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for curated in work.glob("store/curate-*"):
        for name in ("quality.json", "report.json"):
            values = json.loads((curated / name).read_text())
            (curated / name).write_text(json.dumps(_poison(values)))
    return work


@pytest.fixture(scope="module")
def pages(poisoned):
    """Address to answer: every page that links lead to, at most `MOST_OF_A_KIND` of one form."""
    app = create_app(Library([poisoned]))
    found, seen = {}, {}
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False, raise_server_exceptions=False) as visitor:
        for place in app.state.desk.library.places.values():
            while not app.state.desk.digests.of(place).is_whole:
                pass
        starts = ["/", "/candidates", "/search?q=alert", "/lineage", "/help"]
        for place, run_id in app.state.desk.library.runs():
            starts += [f"/runs/{place.name}/{run_id}{path}" for path in OF_A_RUN]
        waiting = [*starts, *(f"/lineage?user={name}" for name in ("x%3Cscript%3E", "%22%3E%3Cimg%20src%3Dx%3E"))]
        while waiting:
            address = waiting.pop(0)
            form = _form(address)
            most = 1 if "everything" in form else MOST_OF_A_KIND  # which looks through the whole store
            if address in found or seen.get(form, 0) >= most:
                continue
            seen[form] = seen.get(form, 0) + 1
            answer = found[address] = visitor.get(address)
            if answer.headers["content-type"].startswith("text/html"):
                waiting += [link for link in _look(answer.text).links if link.startswith("/")]
    return found


def test_no_page_breaks_and_each_has_the_policy(pages):
    assert len(pages) > 25
    for address, answer in pages.items():
        assert answer.status_code < 500, address
        assert answer.headers["content-security-policy"] == POLICY, address
        assert answer.headers["x-content-type-options"] == "nosniff"
    forms = {_form(address) for address, answer in pages.items() if answer.status_code == 200}
    assert {"/runs/*/*/traces", "/runs/*/*/lineage", "/runs/*/*/review", "/runs/*/*/tasks", "/runs/*/*/episodes/*/*/*"} <= forms


def test_nothing_hostile_is_more_than_text(pages):
    for address, answer in pages.items():
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        look = _look(answer.text)
        assert not look.tags - TAGS, (address, look.tags - TAGS)
        assert look.scripts <= SCRIPTS, address
        assert not look.handlers, (address, look.handlers)
        assert not look.inline, address
        for link in [*look.links, *look.sources]:
            assert link.startswith(("/", "#", "?")) and not link.startswith("//"), (address, link)


def test_what_nobody_sees_is_named(pages):
    unseen = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
    for address, answer in pages.items():
        found = unseen.search(answer.text.replace("\r", ""))
        assert not found, (address, answer.text[found.start() - 60 : found.end() + 20])
    assert any("⟦U+202E⟧" in answer.text for answer in pages.values())
    assert any("⟦U+001B⟧" in answer.text for answer in pages.values())


def test_the_texts_are_shown(pages):
    """They were rendered, as text: a suite in which nothing hostile reaches a page proves nothing."""
    every = "".join(answer.text for answer in pages.values())
    for text in ("&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;img src=x onerror=alert(4)&gt;", "javascript:alert(17)"):
        assert text in every
    assert "{{ &#39;&#39;.__class__" in every
    assert "&amp;lt;script&amp;gt;alert(39)" in every, "what is escaped in a trace is shown as it is"
    form = lambda name: [a for at, a in pages.items() if _form(at) == name and a.status_code == 200]  # noqa: E731
    for name in ("/runs/*/*/episodes/*/*/*", "/runs/*/*/traces", "/runs/*/*/review", "/runs/*/*/lineage"):
        assert any("alert(" in answer.text for answer in form(name)), name


def test_a_mailed_copy_holds_nothing_that_runs_or_loads(poisoned, tmp_path):
    run = sorted(path.parent.name for path in poisoned.glob("*/lineage.json"))[0]
    result = export_runs([RunRecord(poisoned, run)], tmp_path / "run.html")
    assert {"Overview", "Traces", "Lineage", "Review"} <= set(result["pages"])
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    look = _look(text)
    assert not look.scripts and not look.handlers and not look.inline and not look.sources
    assert not look.tags & {"script", "form", "input", "button", "iframe", "object", "img", "link", "base"}
    assert all(link.startswith("#") for link in look.links), look.links
    names = re.findall(r'\sid="([^"]*)"', text)
    assert len(names) == len(set(names)), "each id once, though the pages had the same"
    assert {link[1:] for link in look.links} <= set(names)
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert "alert(" in text


class _Look(HTMLParser):
    """What a page is made of."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.handlers, self.inline, self.links, self.sources = set(), set(), [], [], [], []
        self._in = ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self._in = tag
        values = dict(attrs)
        if tag == "script":
            self.scripts.add(values.get("src", "inline"))
        for name, value in attrs:
            if name.startswith(("on", "hx-on")):
                self.handlers.append((tag, name, value))
            if name in ("style", "srcdoc"):
                self.inline.append((tag, value))
            if name in ("href", "action", "formaction", "xlink:href", "hx-get", "hx-post"):
                (self.links if tag != "link" else self.sources).append((value or "/").removeprefix("http://127.0.0.1"))
            if name in ("src", "data", "poster", "background"):
                self.sources.append(value)

    def handle_data(self, data):
        if self._in == "script" and data.strip():
            self.scripts.add("inline")

    def handle_endtag(self, tag):
        self._in = ""


def _look(text):
    found = _Look()
    found.feed(text)
    return found


def _form(address):
    """An address without what tells one page of a kind from another."""
    parts = urlsplit(address)
    names = [name for name in unquote(parts.path).split("/") if name]
    path = "/" + "/".join(name if name in FIXED.split() else "*" for name in names)
    return path + ("?" + "&".join(sorted({one.partition("=")[0] for one in parts.query.split("&")})) if parts.query else "")


def _poison_table(file, numbers):
    table = _with_program(pq.read_table(file))
    for place, name in enumerate(table.column_names):
        if name in POISONED and pa.types.is_string(table.schema.field(name).type):
            values = [TEXTS[next(numbers) % len(TEXTS)].replace("\x00", "\u2400") for _ in range(table.num_rows)]
        elif name == "messages":
            values = [json.dumps(_messages(text, next(numbers))) for text in table[name].to_pylist()]
        elif name == "branches":
            values = [json.dumps(_branches(text, next(numbers))) for text in table["messages"].to_pylist()]
        elif name == "final_state" and pa.types.is_string(table.schema.field(name).type):
            values = [
                json.dumps({ALL: ALL, "deep": [TEXTS[0]], "program": {"output": ALL, "exit_code": ALL, "result": {ALL: ALL}}})
                for _ in range(table.num_rows)
            ]
        elif name == "breakdown":
            values = [json.dumps({TEXTS[next(numbers) % len(TEXTS)]: 0.5, "success": 0.0}) for _ in range(table.num_rows)]
        else:
            continue
        table = table.set_column(place, name, pa.array(values, pa.string()))
    pq.write_table(table, file)


def _with_program(table):
    """A table of trajectories or scores, as those of programs' episodes are."""
    names = {"action_mask": ("branches", "traceback", "fault"), "trajectory_id": ("answer", "explanation")}
    for sign, added in names.items():
        for name in added if sign in table.column_names and not {"branches", "answer"} & set(table.column_names) else ():
            table = table.append_column(name, pa.array([""] * table.num_rows, pa.string()))
    return table


def _branches(text, number):
    """Two branches, with hostile reasons, agents and messages."""
    first, second = (_messages(text, number + at) for at in (0, 1))
    return [
        {"reason": TEXTS[number % len(TEXTS)], "agent": ALL, "turns": [0], "messages": first, "foreign": 0},
        {"reason": ALL, "agent": TEXTS[(number + 1) % len(TEXTS)], "turns": [1, "x", -1, 999], "messages": [*second, ALL]},
    ]


def _messages(text, number):
    """A conversation with hostile contents, tool names, arguments and ids."""
    messages = json.loads(text)
    for place, message in enumerate(messages):
        hostile = TEXTS[(number + place) % len(TEXTS)]
        message["content"] = hostile + (HUGE if number % 97 == 0 and place == 1 else "") + ("\ud800" if place == 2 else "")
        if "name" in message:
            message["name"] = hostile
        for call in message.get("tool_calls") or []:
            call["function"] = {"name": hostile, "arguments": DEEP if place % 4 == 0 else json.dumps({hostile: [hostile]})}
    return messages


def _poison_record(record):
    for name in ("summary.json", "gate.json", "changes.json", "doctor.json", "decision.json", "intake.json"):
        if (record / name).is_file():
            values = json.loads((record / name).read_text())
            (record / name).write_text(json.dumps(_poison(values)))
    for name in ("state.json", "snapshot.json"):
        values = json.loads((record / name).read_text())
        values |= {"message": ALL, "stage": ALL} if name == "state.json" else {}
        for file in values.get("files", []):
            file["name"] = ALL
        (record / name).write_text(json.dumps(values))
    profile = yaml.safe_load((record / "config.yaml").read_text())
    profile["name"] = ALL
    (record / "config.yaml").write_text(yaml.safe_dump(profile))
    lost = next((one for one in json.loads((record / "changes.json").read_text()) if one["change"] == "lost"), None)
    if lost:
        entry, part, _ = lost["challenger"]["file"].split("/")
        label = {"entry": entry, "part": part, "trajectory": lost["challenger"]["trajectory"], "label": "wrong"}
        lines = [{**label, "who": text, "note": text, "why": text, "at": text} for text in TEXTS]
        (record / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    waits = {"asked": ALL, "decision": "refused", "by": ALL, "note": ALL, "at": ALL, "outcome": "overtaken", "why": ALL}
    (record / "approval.json").write_text(json.dumps(waits))


def _poison(values, name=""):
    """The same structure, with a hostile text in place of the words that people read."""
    if isinstance(values, dict):
        return {key: _poison(value, key) for key, value in values.items()}
    if isinstance(values, list):
        return [_poison(value, name) for value in values]
    return ALL if isinstance(values, str) and name in WORDS.split() else values
