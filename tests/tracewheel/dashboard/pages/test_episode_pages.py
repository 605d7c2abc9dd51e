"""Tasks, groups, trajectories, tokens, pairs, episodes and search of a real run, as a visitor gets them."""

import html
import importlib
import re

import pandas
import pytest

from tracewheel.dashboard.groups import LEARNER, advantages_of
from tracewheel.dashboard.sources import rollouts_of


@pytest.fixture(scope="module")
def run(library, run_ids, shelf):
    """The second run: it has a champion, and a gate that compared with it."""
    importlib.import_module(LEARNER)
    return library.run(next(iter(library.places)), run_ids[-1])


@pytest.fixture(scope="module")
def here(library, run):
    return f"/runs/{next(iter(library.places))}/{run.run_id}"


@pytest.fixture(scope="module")
def page(client):
    def ask(address, status=200):
        answer = client.get(address)
        assert answer.status_code == status, (address, answer.text[-500:])
        return answer.text

    return ask


def links(text, part):
    return [html.unescape(link) for link in re.findall(r'href="([^"]+)"', text) if part in link]


def test_the_matrix_counts_what_the_gate_counted(page, here, run):
    text = page(f"{here}/tasks")
    changed = _changes(run)
    assert f"{changed['gained']} gained" in text and f"{changed['lost']} lost" in text
    lost = page(f"{here}/tasks?change=lost")
    assert lost.count("▼ lost</span>") == changed["lost"]
    assert "not run" not in text and text.count("<tr data-row>") == 60
    family = re.search(r'<option value="(\w+)">', text.split('name="family"')[1])[1]
    assert 0 < page(f"{here}/tasks?family={family}").count("<tr data-row>") < 60
    for split in ("harder", "validation", "train"):
        assert "<tr data-row>" in page(f"{here}/tasks?split={split}")


def _changes(run):
    base, rl = (
        pandas.read_parquet(run.evaluation(policy).path / "results.parquet").set_index("task_id")["greedy"]
        for policy in (run.baseline, "rl")
    )
    return {"gained": int((rl > base).sum()), "lost": int((rl < base).sum())}


def test_a_task_leads_to_before_and_after(page, here):
    pair = links(page(f"{here}/tasks?change=changed"), "/pair?")[0]
    text = page(pair)
    assert "First difference" in text and text.count('id="differs"') == 1 and text.count("reward ") == 2
    task = links(page(f"{here}/tasks"), "/tasks/")[0]
    text = page(task)
    assert "Over all runs" in text and "In this run" in text and "posterior" in text
    page(f"{here}/tasks/no-such-task", 404)
    assert "Give two of them" in page(f"{here}/pair")
    page(f"{here}/pair?left=../../etc/passwd&right=x", 404)


def test_advantages_of_a_group_are_the_learners(page, here, run):
    text = page(f"{here}/groups?iteration=1&kind=mixed")
    address = links(text, "/groups/")[0]
    group = page(address)
    sources = rollouts_of(run)[1]
    found = advantages_of(run, sources)
    assert not found.why
    scores = pandas.concat([pandas.read_parquet(source.scores) for source in sources])
    rows = scores[scores["group"] == address.rpartition("/")[2]]
    assert len(rows) == 8
    mean, spread = rows["total"].mean(), rows["total"].std(ddof=1)
    for row in rows.to_dict("records"):
        (value,) = set(found.of(row["trajectory_id"]))
        assert value == pytest.approx((row["total"] - mean) / spread, abs=1e-3)
        assert f"{value:+.3f}" in group
    assert "no signal" in page(f"{here}/groups?iteration=1&kind=solved")
    page(f"{here}/groups/{sources[0].entry}/nobody", 404)


def test_a_trajectory_and_what_the_policy_saw_at_a_token(page, here):
    address = links(page(links(page(f"{here}/groups"), "/groups/")[0]), "/episodes/")[0]
    text = page(address)
    assert "Turn by turn" in text and "Final state" in text and "advantage" in text
    tokens = page(f"{address}/tokens")
    count = len(re.findall(r'<a id="t\d+"', tokens))
    assert f"{count} tokens" in tokens and 'class="tok t-m"' in tokens
    for view in ("logprob", "advantage", "version"):
        assert "aria-current" in page(f"{address}/tokens?by={view}")
    at = int(re.search(r"tokens\?at=(\d+)", text)[1])
    opened = page(f"{address}/tokens?at={at}")
    assert f"What the policy saw here: {at} tokens" in opened and "file-management agent" in opened
    page(f"{address}/tokens?at=99999", 404)
    page(address[:-4] + "0000", 404)


def test_episodes_are_filtered_and_searched(page, here, run):
    every, failed = page(f"{here}/episodes"), page(f"{here}/episodes?outcome=failed&sort=tokens")
    assert "s-solved" in every and "s-solved" not in failed and "s-failed" in failed
    assert page(f"{here}/episodes?outcome=%3Cscript%3E").count("<tr data-row>") == 0
    found = page(f"/search?q=manifest&run={run.run_id}")
    assert "<mark>" in found and set(re.findall(r"<code>([0-9a-f]{12})</code>", found)) == {run.run_id}
    page(links(found, "/episodes/")[0])
    assert "0 episodes" in page("/search?q=nowheretobefound")
    assert "can be searched" in page("/search")
    assert "<script>alert" not in page("/search?q=%3Cscript%3Ealert(1)%3C/script%3E")


def test_pages_of_a_run_that_lost_its_store_say_so(shown, tmp_path, run):
    import shutil

    from starlette.testclient import TestClient

    from tracewheel.dashboard.app import create_app
    from tracewheel.dashboard.library import Library

    work = tmp_path / "bare"
    shutil.copytree(shown / run.run_id, work / run.run_id)
    with TestClient(create_app(Library([work])), base_url="http://127.0.0.1") as visitor:
        for path, words in (
            ("tasks", "No policy was evaluated"),
            ("groups", "No rollouts"),
            ("episodes", "Episodes"),
            ("pair", "Give"),
        ):
            answer = visitor.get(f"/runs/bare/{run.run_id}/{path}")
            assert answer.status_code == 200 and words in answer.text, path
