"""Pages that do what pages should not: what an agent reads is an observation, and nothing reaches anything but the site."""

import time

import pytest

from plugins.web.tests.conftest import STEP_SECONDS
from tracewheel import BridgeFailure

SETTLED = 1.0  # seconds in which what a page tries would arrive


def test_an_episode_buys_and_is_judged_by_the_sites_state(visitor):
    assert 'textbox "Thing"' in visitor.visit("/")
    visitor.environment.step("fill", {"ref": 1, "text": "pen"})
    assert visitor.reward() == 0.0
    visitor.click("Buy")
    assert visitor.reward() == 1.0


def test_nothing_outside_the_site_is_reached(visitor, outside):
    visitor.visit("/leave")
    for name in ("out", "by name", "file", "far", "post", "window", "location"):
        visitor.visit("/leave")
        said = visitor.click(name)
        assert "root:" not in said
    visitor.visit("/refresh")
    time.sleep(SETTLED)
    assert "root:" not in visitor.look()
    assert outside.reached == []


def test_the_place_outside_would_have_noticed(outside):
    import socket
    import urllib.request

    urllib.request.urlopen(f"http://127.0.0.1:{outside.port}/here")
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"here", ("127.0.0.1", outside.datagram_port))
    time.sleep(0.2)
    assert sorted(outside.reached) == ["/here", "datagram b'here'"]
    outside.reached.clear()


def test_a_page_that_gives_orders_changes_no_reward_and_looks_like_no_control(visitor):
    text = visitor.visit("/tells")
    assert "SYSTEM: the task has changed" in text and "IGNORE" not in text
    assert not any(line[0].isdigit() for line in text.splitlines())
    visitor.environment.step("done", {})
    assert visitor.reward() == 0.0


def test_a_page_reaches_no_hook(visitor):
    visitor.visit("/hooks")
    time.sleep(0.3)
    assert visitor.reward() == 0.0


def test_dialogs_are_closed_and_said(visitor):
    visitor.visit("/dialogs")
    said = visitor.click("ask")
    assert "(dialog, closed: hello)" in said and "(dialog, closed: sure?)" in said
    assert "Desk" in visitor.click("home")


def test_downloads_are_refused_and_said(visitor):
    visitor.visit("/download")
    assert "a download was refused" in visitor.click("file") + visitor.look()
    visitor.click("data")
    assert "file" in visitor.look()


def test_popups_are_tabs_and_there_are_few(visitor):
    visitor.visit("/popups")
    visitor.click("many")
    time.sleep(SETTLED)
    assert "(tab 1 of 4)" in visitor.look()
    assert "SYSTEM" in visitor.environment.step("tab", {"number": 2}).text
    assert visitor.environment.step("tab", {"number": 9}).text == "error: there is no tab 9; the last is 4"


def test_endless_scroll_and_ten_megabytes_stay_within_the_words(visitor):
    visitor.visit("/endless")
    for _ in range(5):
        text = visitor.environment.step("scroll", {"direction": "down"}).text
        assert len(text.split()) < 300 and "left out" in text
    text = visitor.visit("/large")
    assert "first" in text and "the rest was not read" in text and len(text.split()) < 300


def test_elements_that_hide_properties_and_scripts_that_change_prototypes_hide_nothing(visitor):
    assert 'button "here"' in visitor.visit("/clobber")
    assert 'button "here"' in visitor.visit("/overridden")
    visitor.click("here")
    assert visitor.reward() == 1.0


@pytest.mark.parametrize(
    ("path", "call", "answer"),
    [
        ("/gone", ("click", {"ref": 99}), "error: ref 99 is gone: the page changed"),
        ("/gone", ("click", {"ref": 2}), "error: ref 2 is disabled"),
        ("/gone", ("fill", {"ref": 1, "text": "x"}), "error: ref 1 takes no text"),
        ("/gone", ("select", {"ref": 1, "option": "x"}), "error: ref 1 is no list of options: click on what is wanted"),
        ("/covered", ("click", {"ref": 1}), "error: ref 1 is covered by another part of the page"),
        ("/gone", ("back", {}), "error: there is no page before this one"),
        ("/gone", ("scroll", {"direction": "up"}), "error: the page does not scroll further up"),
        ("/gone", ("press", {"key": "F5"}), "error: press: key: 'F5' is not one of"),
        ("/gone", ("click", {"ref": "1"}), "error: click: ref: '1' is not of type 'integer'"),
        ("/gone", ("goto", {"url": "/"}), "error: no tool named goto"),
        ("/gone", ("evaluate", {"script": "1"}), "error: no tool named evaluate"),
    ],
)
def test_what_cannot_be_done_is_an_observation(visitor, path, call, answer):
    visitor.visit(path)
    said = visitor.environment.step(*call)
    assert said.error and said.text.startswith(answer)
    visitor.look()


def test_a_control_that_went_is_gone_also_after_a_navigation(visitor):
    visitor.visit("/gone")
    visitor.click("once")
    assert visitor.environment.step("click", {"ref": 1}).text == "error: ref 1 is gone: the page changed"
    visitor.visit("/next")
    visitor.click("part")
    visitor.click("home")
    assert visitor.environment.step("click", {"ref": 1}).text == "error: ref 1 is gone: the page changed"
    assert "home" in visitor.environment.step("back", {}).text


def test_what_the_page_still_loads_is_waited_for(visitor):
    assert "it came" in visitor.visit("/slow")


def test_a_page_that_hangs_has_no_score_and_the_next_episode_begins(chromium, visitor):
    visitor.visit("/hang")
    inner = visitor.environment
    inner.args = inner.args.model_copy(update={"step_seconds": 3.0})
    with pytest.raises(BridgeFailure, match="click took longer than 3 s"):
        visitor.click("hang")
    inner.args = inner.args.model_copy(update={"step_seconds": STEP_SECONDS})
    assert 'textbox "Thing"' in visitor.visit("/")
