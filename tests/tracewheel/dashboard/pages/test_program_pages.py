"""Branches, fidelity and attributed errors as a visitor finds them, in a run whose other files know none of them."""

import json
from functools import partial

import pandas
import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.library import Library


@pytest.fixture(scope="module")
def page(programs, whole_page):
    app = create_app(Library([programs]))
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as visitor:
        yield partial(whole_page, visitor)


@pytest.fixture(scope="module")
def run(programs):
    return "/runs/programs/" + sorted(path.parent.name for path in programs.glob("*/loop.json"))[0]


@pytest.fixture(scope="module")
def episodes(programs, run):
    """The addresses of the two episodes that were changed."""
    loop = json.loads((programs / run.rpartition("/")[2] / "loop.json").read_text())
    entry = loop["iterations"]["1"]["rollouts"][0]
    ids = pandas.read_parquet(programs / "store" / entry / "trajectories.parquet")["id"]
    return [f"{run}/episodes/{entry}/-/{name}" for name in ids[:2]]


def test_an_episode_with_branches(page, episodes):
    text = page(episodes[0])
    assert 'class="tree ' in text and "a reply came back changed" in text and "&lt;b&gt;left&lt;/b&gt;" in text
    assert text.count('<section class="lane"') == 2 and "3 requests hold" in text and "7 sampled tokens are lost" in text
    assert "forty-two" in text and "because of &lt;u&gt;that" in text
    assert 'class="tree' not in page(episodes[1])


def test_an_error_with_its_traceback_and_the_programs_output(page, episodes):
    text = page(episodes[1])
    assert "at fault: environment" in text and "Traceback: &lt;script&gt;alert(1)" in text
    assert "what it printed &lt;i&gt;" in text and "exit code 3" in text and "&#34;sum&#34;: 4" in text


@pytest.mark.parametrize(
    ("asked", "which"),
    [("branches=2", 0), ("reason=edited", 0), ("unmatched=1", 0), ("lost=7", 0), ("blame=environment", 1)],
)
def test_they_are_found_by_filters(page, run, episodes, asked, which):
    text = page(f"{run}/episodes?{asked}")
    assert text.count("<tr data-row>") == 1 and episodes[which] in text


def test_they_are_found_over_all_runs(page, episodes):
    assert episodes[1] in page("/search?blame=environment")
    assert episodes[0] in page("/search?reason=edited")
    assert "0 episodes" in page("/search?reason=retry")


def test_fidelity_of_a_run_leads_to_its_failures(page, run):
    text = page(run)
    section = text.split('<h2 id="fidelity">')[1].split("</section>")[0]
    assert "Below that: iteration 1." in section and section.count("<tr data-row>") == 1
    assert f"{run}/episodes?iteration=1&amp;unmatched=1" in section and "edited 1</a>" in section
    other = next(line for line in page("/").split('"') if line.startswith("/runs/programs/") and run not in line)
    assert '<h2 id="fidelity">' not in page(other)


def test_errors_over_the_iterations(page, run):
    text = page(f"{run}/rollouts?from=1&to=2")
    assert "Who is at fault" in text and "move_file: OSError" in text and f"{run}/episodes?blame=environment" in text
    assert "by who is at fault" not in page(f"{run}/rollouts?from=2&to=2")
