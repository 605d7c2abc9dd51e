"""The report of a run as a reader's browser gets it: self-contained, complete, with the run's own figures, safe."""

import json
import re
import shutil
from html.parser import HTMLParser

import pandas
import pytest

from tracewheel.core.inference import mean_interval, rate_interval, wilson_interval
from tracewheel.core.run_record import RunRecord
from tracewheel.dashboard.files import export_runs
from tracewheel.dashboard.findings import aim_of, headline
from tracewheel.dashboard.text import interval, percent, points
from tracewheel.evaluation.gate import EXPLAINED
from tracewheel.evaluation.pareto import pareto_points
from tracewheel.report.finished_run import FinishedRun
from tracewheel.report.results import Estimate, PolicyResult, Results

FLOOR = {
    "success": 0.305,
    "interval": [0.25, 0.37],
    "n": 200,
    "environments": [],
    "says": "desk: close(<b>refused</b>)",
}
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"x\"><!--\u2028\ud800"


class Page(HTMLParser):
    """Elements with their attributes, and the text outside styles."""

    VOID = ("meta", "br", "hr", "wbr", "input")

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.inside, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in self.VOID:
            self.inside.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.inside.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not self.inside or self.inside[-1] != "style":
            self.words.append(data)


@pytest.fixture(scope="module")
def record(shown, run_ids):
    return RunRecord(shown, run_ids[-1])


@pytest.fixture(scope="module")
def file(record, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "report.html"
    export_runs([record], out)
    return out


@pytest.fixture(scope="module")
def page(file):
    return Page(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(record, tmp_path_factory):
    """The report of the run with another summary, as at its end."""

    def write(**summary):
        out = tmp_path_factory.mktemp("written") / "report.html"
        export_runs([record], out, ending={**record.summary, **summary})
        return Page(out.read_text(encoding="utf-8"))

    return write


@pytest.fixture(scope="module")
def fuller(written):
    """The report with all that a summary may also have: each report takes seconds, so it is written once."""
    candidates = {
        "rl-2": {"success": 0.75, "<b>safety": 0.5},
        "rl-4": {"success": 0.5, "<b>safety": 0.25},
        "rl-6": {"success": 0.25, "<b>safety": None},
    }
    front = [point.to_record() for point in pareto_points(candidates)]
    return written(constant_policy=FLOOR, pareto=front, leaks="user <b>u1 is in held_out and train")


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs(file, page):
    text = file.read_text(encoding="utf-8")
    links = [value for _, found in page.elements for name, value in found.items() if name in ("src", "href", "action")]
    assert links and all(link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|https?://|fetch\(", text)
    assert not {tag for tag, _ in page.elements} & {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
    policy = next(found["content"] for _, found in page.elements if found.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "script-src" not in policy
    assert "prefers-color-scheme: dark" in text and str(file.parent) not in text


def test_it_is_well_formed_and_its_anchors_exist(page):
    assert not page.inside, "every element is closed"
    assert len(page.ids) == len(set(page.ids))
    for tag, found in page.elements:
        assert tag != "a" or found["href"][1:] in page.ids, found
        assert found.get("aria-labelledby", page.ids[0]) in page.ids, found


def test_its_figures_are_those_of_the_run(page, record):
    run, summary = FinishedRun(record), record.summary
    tables = {name: pandas.read_parquet(run.evaluation(name).path / "results.parquet") for name in run.policies}
    for name, table in tables.items():
        solved = int(table["greedy"].sum())
        shown = f"{percent(solved / len(table))} {interval(wilson_interval(solved, len(table)))}, n = {len(table)}"
        assert shown in page.text, (name, shown)
        assert summary["success"][name] == solved / len(table)
    new, old = (tables[name].sort_values("task_id")["greedy"].to_numpy() for name in ("rl", run.baseline))
    gain, ends = float((new - old).mean()), mean_interval(new - old, new - old, 0.025)
    assert f"{points(gain)} {interval(ends, signed=True)}" in page.text
    for kind in ("sampled", "harder"):
        assert percent(summary[kind]["rl"]) in page.text
    sampled = tables["rl"]["sampled_successes"] / tables["rl"]["sampled_attempts"]
    assert f"{percent(sampled.mean())} {interval(rate_interval(sampled))}" in page.text
    gate = run.gate
    assert all(reason in page.text for reason in gate["reasons"])
    assert f"{points(gate['difference'])} {interval(gate['interval'], signed=True)}" in page.text
    for name, seconds in summary["seconds"].items():
        assert name.replace("_", " ") in page.text and seconds >= 0
    assert f"{sum(summary['tokens'].values()):,}" in page.text
    changes = json.loads((record.path / "changes.json").read_text())
    assert all(change["task_id"] in page.text for change in changes)
    for said in ("Validation success", "Zero-variance share", "By tier", "By family, held-out", "Deployed agent, as logged"):
        assert said in page.text, said
    assert (run.lineage["git"] or {}).get("commit", "") in page.text and "All " in page.text


def test_changed_tasks_lead_to_their_episodes_side_by_side(page, record):
    changes = json.loads((record.path / "changes.json").read_text())
    both = [change for change in changes if all(change[side].get("trajectory") for side in ("baseline", "challenger"))]
    assert both and page.text.count("side by side") >= len(both)
    assert page.text.count("First difference") >= len(both) and "lost: held out" in page.text


def test_the_best_constant_policy_is_the_first_row(fuller):
    assert "Best constant policy 30.5% 25.0% to 37.0%, n = 200" in fuller.text and "close(<b>refused</b>)" in fuller.text
    assert fuller.text.index("Best constant policy 30.5%") < fuller.text.index("Deployed agent, as logged")


def test_the_pareto_front_and_an_allowed_leak_are_shown_where_there_are_any(page, fuller):
    assert "Pareto front" not in page.text and "in doubt" not in page.text
    for said in ("rl-2 0.750 0.500 on the front", "rl-4 0.500 0.250 beaten by rl-2", "rl-6 0.250 – not compared", "<b>safety"):
        assert said in fuller.text
    doubt = "every figure of this run is in doubt. user <b>u1 is in held_out and train"
    assert doubt in fuller.text and fuller.text.index(doubt) < fuller.text.index("The gate's evidence")


def test_hostile_words_of_a_summary_stay_text_and_what_was_not_measured_is_said(written):
    unmeasured = FLOOR | {"success": None, "interval": None, "n": 0, "says": "code: not measured"}
    hostile = {"name": HOSTILE, "leaks": HOSTILE, "worth": {"says": HOSTILE}, "rollouts": {HOSTILE: {"mode": HOSTILE}}}
    page = written(constant_policy=unmeasured, **hostile)
    assert not page.inside and not {tag for tag, _ in page.elements} & {"script", "img"}
    assert "<script>document.title='owned'</script>" in page.text
    assert "Best constant policy –" in page.text and "code: not measured" in page.text


def test_equal_runs_give_equal_bytes_and_a_run_without_its_store_has_a_report(file, record, tmp_path):
    export_runs([record], tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == file.read_bytes()
    bare = RunRecord(tmp_path, record.run_id)
    shutil.copytree(record.path, bare.path)
    export_runs([bare], tmp_path / "bare.html")
    text = Page((tmp_path / "bare.html").read_text()).text
    assert f"After RL {percent(record.summary['success']['rl'])}" in text and "the store no longer has it" in text


def test_the_headline_and_the_aim_in_words(record):
    rate = Estimate(0.42, 0.328, 0.518, 100)
    run = FinishedRun(record)
    run.__dict__["settings"] = {"aims": {"harder": 0.5}}
    met, sentence = aim_of(run, PolicyResult("rl", harder=rate))
    assert not met
    ends = "(95% interval 32.8% to 51.8%, n = 100)"
    assert sentence == f"The aim of 50.0% for harder-tier success, greedy, is not met: 42.0% {ends}."
    assert "not measured" in aim_of(run, PolicyResult("rl"))[1] and aim_of(run, None) is None
    assert headline(Results()) == "No policy was evaluated after RL."
    rows = [PolicyResult("deployed", greedy=rate), PolicyResult("rl", greedy=rate)]
    assert headline(Results(rows)) == "Held-out success goes from 42.0% (deployed agent, as logged) to 42.0% after RL."


def test_what_the_gate_made_of_an_audit(record, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(record.path, work / record.run_id)
    rate = {"wrong": 0, "probes": 900, "rate": 0.0, "low": 0.0, "high": 0.0042}
    found = {
        "kind": "workspace", "verdict": "passed", "reasons": [], "false_accept": rate, "false_reject": rate, "unscored": 0,
        "exploitable": {"tasks": 0, "of": 24, "upper": 0.1173}, "doubtful": 0, "examples": [],
        "repeats": {"differ": {"order": 0}, "error": ""},
    }  # fmt: skip
    audit = {"tasks": 24, "without_solution": 0, "environments": ["workspace"], "verifiers": {"workspace": found}, "judges": {}}
    (work / record.run_id / "audit.json").write_text(json.dumps(audit))
    reasons = ["fell", f"{EXPLAINED}: if graders accept 40%"]
    (work / record.run_id / "gate.json").write_text(json.dumps({"verdict": "refused", "reasons": reasons}))
    export_runs([RunRecord(work, record.run_id)], tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text()).text
    assert "at most 11.7%" in text and "0.0% to 0.4%, 0 of 900" in text
    assert text.count(EXPLAINED) == 3 and "The gate: false accepts" in text and "they cannot" not in text
