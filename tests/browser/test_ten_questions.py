"""Ten questions of a reviewer before the list of runs, each answered by a browser in at most three clicks."""

import re

import pytest

pytestmark = pytest.mark.browser
MOST_CLICKS = 3


@pytest.fixture
def reviewer(visit):
    """At the list of runs; after the test, no more clicks than a reviewer has patience for."""
    visit.open("/")
    yield visit
    assert 0 < visit.clicks <= MOST_CLICKS, visit.clicks
    assert not visit.complaints


def open_run(reviewer, state):
    """Click the run in the list that ended so."""
    row = reviewer.page.locator("tr[data-row]").filter(has_text="demo").filter(has_text=state).first
    row.locator("th a").first.click()
    reviewer.page.wait_for_load_state()
    reviewer.clicks += 1


def test_why_was_this_refused(reviewer):
    open_run(reviewer, "refused")
    said = reviewer.page.inner_text("main")
    assert re.search(r"Not promoted: .* points on 60 tasks against the champion", said)
    assert re.search(r"lies between -.* and \+.* points \(.*% confidence\)", said)


def test_which_tasks_got_worse(reviewer):
    open_run(reviewer, "refused")
    reviewer.click(re.compile(r"\d+ lost"))
    row = reviewer.page.locator("tr[data-row]").first.inner_text()
    assert "lost" in row and re.search("workspace-[0-9a-f]{16}", row)


def test_show_me_one_of_them_before_and_after(reviewer):
    open_run(reviewer, "refused")
    reviewer.click("side by side")
    assert "/pair?" in reviewer.page.url
    assert reviewer.says("solved") and reviewer.says("failed") and reviewer.says("move_file")


def test_what_did_the_policy_see_at_this_token(reviewer):
    open_run(reviewer, "refused")
    reviewer.page.locator("a[href*='/episodes/evaluate-']").first.click()
    reviewer.page.wait_for_load_state()
    reviewer.clicks += 1
    reviewer.click(re.compile("^Tokens"))
    token = reviewer.page.locator("[id^='t']").nth(60)
    assert reviewer.page.url.endswith("/tokens") and token.inner_text()


def test_did_the_grader_err(reviewer):
    open_run(reviewer, "refused")
    reviewer.click("Review")
    reviewer.page.get_by_role("link", name="Label").first.click()
    reviewer.page.wait_for_load_state()
    reviewer.clicks += 1
    assert reviewer.page.get_by_label(re.compile("grader", re.I)).count() > 0, "the episode, its score, and a place to say so"
    assert reviewer.says("move_file")


def test_what_did_this_run_cost_per_point(reviewer):
    open_run(reviewer, "promoted")
    assert re.search(r"\d+ (s|min).* for a point", reviewer.page.inner_text("main"))


def test_which_traces_taught_this_adapter(reviewer):
    open_run(reviewer, "promoted")
    reviewer.page.get_by_label("Run ").get_by_role("link", name="Lineage").click()
    reviewer.page.wait_for_load_state()
    reviewer.clicks += 1
    assert re.search(r"chat-[0-9a-f]{12}", reviewer.page.inner_text("main")) and reviewer.says("monday.jsonl:")


def test_is_the_run_still_healthy(reviewer):
    open_run(reviewer, "refused")
    reviewer.click("Doctor")
    assert reviewer.says("observation_loss") or reviewer.says("observation loss")


def test_what_changed_since_the_last_run(reviewer):
    open_run(reviewer, "refused")
    reviewer.click("Settings")
    assert reviewer.says("5f7f05e3ce39") or reviewer.says("parent")


def test_whose_data_is_in_it(reviewer):
    open_run(reviewer, "promoted")
    reviewer.page.get_by_label("Run ").get_by_role("link", name="Lineage").click()
    reviewer.page.wait_for_load_state()
    reviewer.clicks += 1
    name = reviewer.page.get_by_role("link", name=re.compile(r"^user-\d+$")).first.inner_text()
    reviewer.click(name)
    assert f"user={name}" in reviewer.page.url and reviewer.says("adapter")
