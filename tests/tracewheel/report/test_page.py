"""The page as a reader's browser gets it: self-contained, complete, and safe against hostile text."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tracewheel.core.pages import percent
from tracewheel.evaluation.changes import changed_tasks, noise_floor
from tracewheel.evaluation.gate import EXPLAINED
from tracewheel.evaluation.pareto import pareto_points
from tracewheel.report import ReportData, load_report_data, write_report
from tracewheel.report.page import aim_sentence, duration, embedded_json, gate_axis, points
from tracewheel.report.report_data import Aim, Estimate

# Parquet holds UTF-8, so half a surrogate pair can only come from elsewhere, for instance a prompt made by hand.
STORABLE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><!--<script>&amp;\u2028"
)
HOSTILE = STORABLE + "\ud800"


class Page(HTMLParser):
    """Elements with their attributes, the text outside scripts and styles, and the scripts."""

    VOID = ("meta", "br")

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.scripts, self.inside, self.ids = [], [], {}, [], []
        self.feed(text)
        self.close()
        self.text = re.sub(r"\s+", " ", " ".join(self.text))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in self.VOID:
            self.inside.append((tag, attributes))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.inside.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        tag, attributes = self.inside[-1] if self.inside else ("", {})
        if tag == "script":
            self.scripts[attributes.get("type", "javascript")] = data
        elif tag != "style":
            self.text.append(data)

    def tags(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture
def page(run, tmp_path):
    finished = run()
    return write_report(load_report_data(finished.results), tmp_path / "report.html")


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def test_nothing_is_loaded_from_elsewhere(page):
    text, parsed = page.read_text(encoding="utf-8"), read(page)
    links = [
        value for _, attributes in parsed.elements for name, value in attributes.items() if name in ("src", "href", "action")
    ]
    assert links and all(link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest|import\(", text)
    assert not {tag for tag, _ in parsed.elements} & {"img", "link", "iframe", "object", "embed", "base", "form"}
    policy = next(meta["content"] for meta in parsed.tags("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and re.search(r"script-src 'sha256-[\w+/=]+'", policy)


def test_the_page_is_well_formed_and_its_anchors_exist(page):
    parsed = read(page)
    assert not parsed.inside, "every element is closed"
    assert len(parsed.ids) == len(set(parsed.ids))
    for attributes in parsed.tags("a"):
        assert attributes["href"][1:] in parsed.ids
    for _, attributes in parsed.elements:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in parsed.ids
    assert all(svg["aria-label"] for svg in parsed.tags("svg"))


def test_the_page_shows_gate_policies_curves_and_cost(page):
    parsed = read(page)
    for said in (
        "Gate: promoted",
        "Deployed agent, as logged",
        "Warm start, verified logs",
        "By tier",
        "By family, harder tier",
        "Validation success",
        "Harder tier over iterations",
        "Zero-variance share",
        "KL",
        "Entropy",
        "Resolved configuration",
        "4f1d2c3",
        "sha256:77aa",
        "722,345",
        "1 min 24 s",
        "reused",
    ):
        assert said in parsed.text, said
    viewer = json.loads(parsed.scripts["application/json"])
    assert (viewer["before"], viewer["after"]) == ("warm_start", "rl")
    assert len(viewer["tasks"]) == 36
    assert {task["split"] for task in viewer["tasks"]} == {"held_out", "harder"}
    first = viewer["tasks"][0]
    assert first["episodes"]["rl"]["messages"][1]["content"] == first["prompt"]
    assert first["episodes"]["rl"]["breakdown"]["workspace.manifest"] in (0.0, 1.0)


def test_the_pareto_front_is_shown_where_there_are_objectives(run, tmp_path):
    finished = run()
    plain = write_report(load_report_data(finished.results), tmp_path / "plain.html")
    assert "Pareto front" not in read(plain).text
    candidates = {
        "rl-2": {"success": 0.75, "<b>safety": 0.5},
        "rl-4": {"success": 0.5, "<b>safety": 0.25},
        "rl-6": {"success": 0.25, "<b>safety": None},
    }
    finished.summary["pareto"] = [point.to_record() for point in pareto_points(candidates)]
    text = read(write_report(load_report_data(finished.results), tmp_path / "front.html")).text
    for said in ("rl-2 0.750 0.500 on the front", "rl-4 0.500 0.250 beaten by rl-2", "rl-6 0.250 – not compared", "<b>safety"):
        assert said in text


def test_tasks_lost_and_gained_link_to_their_trajectories_and_the_noise_floor_is_beside_the_gain(run, tmp_path):
    finished = run()
    held_out = {key: folders[0] for key, folders in finished.results.evaluations.items()}
    changes = changed_tasks(held_out["rl"], held_out["warm_start_verified"])
    noise = noise_floor(held_out["warm_start_verified"], held_out["base"], confidence=0.95, resamples=100, seed=0)
    summary = {**finished.results.summary, "noise_floor": noise}
    data = load_report_data(replace(finished.results, summary=summary, changes=changes, store="../store"))
    parsed = read(write_report(data, tmp_path / "report.html"))
    links = [attributes["href"] for attributes in parsed.tags("a")]
    viewed = {item.task_id for item in data.comparisons}
    gate = finished.results.summary["gate"]
    assert len(changes) == gate["gained"] + gate["lost"] > 0
    for row in changes:
        assert row["task_id"] in viewed and f"#task={row['task_id']}" in links
        assert {f"../store/{row[side]['file']}" for side in ("baseline", "challenger")} <= set(links)
    assert f"{gate['lost']} lost, {gate['gained']} gained" in parsed.text
    assert f"{noise['greedy']['flipped']} of {noise['greedy']['pairs']}" in parsed.text
    assert json.loads(parsed.scripts["application/json"])["baseline"] == "warm_start_verified"


def test_an_allowed_leak_is_shown_before_all_figures(run, tmp_path):
    finished = run()
    plain = write_report(load_report_data(finished.results), tmp_path / "plain.html")
    assert "in doubt" not in read(plain).text
    finished.summary["leaks"] = "user <b>u1 is in held_out and train"
    text = read(write_report(load_report_data(finished.results), tmp_path / "leaks.html")).text
    assert "every figure of this run is in doubt. user <b>u1 is in held_out and train" in text
    assert text.index("in doubt") < text.index("Gate: promoted")


def test_equal_data_gives_equal_bytes(page, run, tmp_path):
    first = page.read_bytes()
    assert str(tmp_path).encode() not in first
    second = run_again(run, tmp_path / "again")
    assert second.read_bytes() == first


def run_again(run, out):
    out.mkdir()
    for name in ("curated", "evaluations"):
        shutil.rmtree(out.parent / name)
    finished = run()
    return write_report(load_report_data(finished.results), out / "report.html")


@pytest.fixture
def hostile_page(run, tmp_path):
    def respond(key, item):
        call = {"id": "c", "type": "function", "function": {"name": STORABLE, "arguments": json.dumps({STORABLE: STORABLE})}}
        messages = [
            *item.messages[:2],
            {"role": "assistant", "content": STORABLE, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "name": STORABLE, "content": STORABLE},
        ]
        return replace(item, messages=messages, final_state=item.final_state | {"note": STORABLE})

    finished = run(respond)
    data = load_report_data(finished.results)
    task = replace(data.comparisons[0], prompt=HOSTILE, family=HOSTILE, task_id=HOSTILE)
    groups = {HOSTILE: [replace(group, name=HOSTILE) for group in data.groups["By tier"]]}
    gate = {**data.gate, "reasons": [HOSTILE], "families": {HOSTILE: 0.1}, "baseline": HOSTILE, "verdict": HOSTILE}
    curves = [replace(data.curves[0], title=HOSTILE, note=HOSTILE, series={HOSTILE: [(0, 0.5), (1, 0.6)]})]
    rows = [replace(row, key=row.key if row.key == "rl" else HOSTILE, label=HOSTILE, short=HOSTILE) for row in data.policies]
    hostile = replace(
        data,
        run_id=HOSTILE,
        name=HOSTILE,
        gate=gate,
        groups=groups,
        curves=curves,
        policies=rows,
        comparisons=[task, *data.comparisons[1:]],
        links={HOSTILE: HOSTILE},
        lineage={HOSTILE: {HOSTILE: {"nested": HOSTILE}}},
        config={HOSTILE: HOSTILE},
        costs=[replace(data.costs[0], stage=HOSTILE)],
    )
    return write_report(hostile, tmp_path / "hostile.html")


def test_hostile_text_stays_text(hostile_page):
    parsed = read(hostile_page)
    assert not parsed.inside
    assert [attributes.get("type") for attributes in parsed.tags("script")] == ["application/json", None]
    assert not parsed.tags("img")
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    viewer = json.loads(parsed.scripts["application/json"])
    assert viewer["tasks"][0]["prompt"] == STORABLE + "?", "the reader sees what was said, to the letter"
    assert "<" not in parsed.scripts["application/json"]
    assert "<script>document.title='owned'</script>" in parsed.text


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("which", ["page", "hostile_page"])
def test_a_real_browser_shows_the_viewer_and_runs_no_other_script(which, request, tmp_path):
    path = request.getfixturevalue(which)
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --dump-dom --virtual-time-budget=2000"
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    html = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()
    parsed = Page(html)
    assert "owned" not in re.search(r"<title>(.*?)</title>", html, re.DOTALL)[1].split("·")[-1]
    assert "1 of 36" in parsed.text, "the viewer's script ran"
    assert "hidden" not in next(attributes for tag, attributes in parsed.elements if attributes.get("id") == "viewer-body")
    assert "observation" in parsed.text and "turn 1" in parsed.text
    assert not parsed.tags("img")


def test_a_nearly_empty_report_is_still_a_page(tmp_path):
    path = write_report(ReportData(run_id="r", name="", gate={}, policies=[]), tmp_path / "report.html")
    parsed = read(path)
    assert "No policy was evaluated after RL." in parsed.text
    assert not parsed.tags("svg")


def test_a_refusal_with_no_pairs_and_missing_measures(run, tmp_path):
    finished = run()
    data = load_report_data(finished.results)
    gate = {
        "verdict": "refused",
        "reasons": ["only 0 tasks"],
        "difference": None,
        "interval": None,
        "families": {"list": None},
        "baseline": "gone",
        "pairs": 0,
        "gained": 0,
        "lost": 0,
    }
    bare = [
        replace(row, greedy=None, sampled=None, pass_at={}, harder=None, gain=None, gain_harder=None) for row in data.policies
    ]
    aims = [Aim("harder-tier success", 0.5, None)]
    parsed = read(write_report(replace(data, gate=gate, policies=bare, aims=aims, costs=()), tmp_path / "report.html"))
    assert "Gate: refused" in parsed.text and "only 0 tasks" in parsed.text
    assert "was not measured" in parsed.text


def test_sentences_about_aims():
    met, sentence = aim_sentence(Aim("harder-tier success", 0.5, Estimate(0.42, 0.328, 0.518, 100)))
    assert not met
    assert sentence == "The aim of 50.0% for harder-tier success is not met: 42.0% (95% interval 32.8% to 51.8%, n = 100)."
    assert aim_sentence(Aim("x", 0.5, Estimate(0.5, 0.4, 0.6, 100)))[0]


def test_number_formats():
    assert (percent(0.9649), points(-0.1), points(0.052)) == ("96.5%", "−10.0", "+5.2")
    assert [duration(s) for s in (0.84, 59.97, 84.2, 7265)] == ["0.8 s", "1 min 0 s", "1 min 24 s", "2 h 1 min"]


def test_embedded_json_holds_no_markup_and_no_nan():
    text = embedded_json({"a": HOSTILE, "b": [float("nan"), float("inf"), 1.5]})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": HOSTILE, "b": [None, None, 1.5]}


def test_the_gate_axis_holds_zero_and_every_value():
    low, high = gate_axis({"difference": 0.2, "interval": [0.1, 0.3], "families": {"list": -0.2, "content": None}})
    assert low < -0.2 and high > 0.3
    low, high = gate_axis({"difference": None, "interval": None, "families": {}})
    assert low < 0 < high


def test_an_audit_shows_with_what_the_gate_made_of_it(run, tmp_path):
    rate = {"wrong": 0, "probes": 900, "rate": 0.0, "low": 0.0, "high": 0.0042}
    found = {
        "kind": "workspace", "verdict": "passed", "reasons": [], "false_accept": rate, "false_reject": rate, "unscored": 0,
        "exploitable": {"tasks": 0, "of": 24, "upper": 0.1173}, "doubtful": 0, "examples": [],
        "repeats": {"differ": {"order": 0}, "error": ""},
    }  # fmt: skip
    audit = {"tasks": 24, "without_solution": 0, "environments": ["workspace"], "verifiers": {"workspace": found}}
    data = load_report_data(replace(run().results, audit=audit))
    promoted = data.gate | {"verdict": "promoted", "reasons": []}
    asked = data.config | {"gate": {**data.config["gate"], "false_accepts": "audit"}}
    text = read(write_report(replace(data, gate=promoted, config=asked), tmp_path / "promoted.html")).text
    assert "at most 11.7%" in text and "0.0% to 0.4%, 0 of 900" in text and "they cannot" in text

    refused = data.gate | {"verdict": "refused", "reasons": ["fell", f"{EXPLAINED}: if graders accept 40%"]}
    text = read(write_report(replace(data, gate=refused, config=asked), tmp_path / "refused.html")).text
    assert text.count(EXPLAINED) == 2 and "The gate: false accepts" in text and "they cannot" not in text


def test_the_best_constant_policy_is_the_floor_of_the_table(run, tmp_path):
    finished = run()
    row = {"environment": "refund_desk", "does": "close(outcome=<b>refused</b>)", "success": 0.305, "n": 200}
    floor = {
        "success": 0.305,
        "interval": [0.25, 0.37],
        "n": 200,
        "environments": [row],
        "says": f"refund_desk: {row['does']} (30.5%)",
    }
    results = replace(finished.results, summary={**finished.results.summary, "constant_policy": floor})
    page = Page(write_report(load_report_data(results), tmp_path / "floor.html").read_text())
    assert "Best constant policy 30.5%" in page.text and "close(outcome=<b>refused</b>)" in page.text
    none = floor | {"success": None, "interval": None, "n": 0, "says": "code: not measured: its tools run boxes"}
    results = replace(results, summary={**finished.results.summary, "constant_policy": none})
    page = Page(write_report(load_report_data(results), tmp_path / "none.html").read_text())
    assert "Best constant policy –" in page.text and "not measured: its tools run boxes" in page.text
