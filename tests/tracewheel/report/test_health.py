"""The doctor's findings on the page."""

import re
from dataclasses import replace

import pytest

from tracewheel.report import load_report_data, write_report
from tracewheel.report.doctor import Finding

HOSTILE = "</td><script>document.title='owned'</script>"
FINDINGS = [
    Finding("truncation", "healthy", {"share": 0.012345, "by_iteration": {1: 0.01}}),
    Finding("invented_tools", "severe", {"share": 0.5, "in all, names": [HOSTILE, "b"]}, "Offer them.", (2, 3, 4)),
    Finding("sampler_mismatch", "not_checked", {}, "No update has the metric."),
    Finding("kl_explosion", "warning", {"kl": 0.4}, "Slow down.", (3,), "content"),
]


@pytest.fixture
def page(run, tmp_path):
    """Renders the page with the given findings."""

    def render(findings):
        finished = run()
        data = load_report_data(replace(finished.results, findings=findings))
        return write_report(data, tmp_path / "report.html").read_text()

    return render


def test_the_worst_is_first_with_evidence_and_advice(page):
    html = page(FINDINGS)
    section = html[html.index('<section id="health"') : html.index('<section id="viewer"')]
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", section))
    order = [text.index(name) for name in ("Invented tools", "content: Kl explosion", "Sampler mismatch", "Truncation")]
    assert order == sorted(order)
    for said in ("severe", "2–4", "Offer them.", "not checked", "No update has the metric.", "share 0.0123", "Slow down."):
        assert said in text, said
    assert "by_iteration" not in section
    assert '<a href="#health">' in html


def test_names_invented_by_a_policy_are_shown_as_text(page):
    html = page(FINDINGS)
    assert "<script>document.title" not in html
    assert "&lt;script&gt;document.title" in html


def test_without_findings_there_is_no_section(page):
    assert "health-title" not in page([])
