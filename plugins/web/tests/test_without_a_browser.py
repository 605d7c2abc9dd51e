"""What a machine without a browser is told."""

import sys

import pytest

from tracewheel import ConfigError, kind_text, parse_kind
from tracewheel.environments import most_episodes
from tracewheel_web.browser import Browser


def test_without_playwright(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    browser = Browser((100, 100))
    with pytest.raises(ConfigError, match="needs playwright: make setup-web"):
        browser.call(browser.open("http://127.0.0.1:1"), 5.0, "open")


def test_without_chromium(monkeypatch):
    pytest.importorskip("playwright", reason="`make setup-web` installs playwright")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TRACEWHEEL_BROWSER", raising=False)
    browser = Browser((100, 100))
    with pytest.raises(ConfigError, match="no browser found .*make setup-web"):
        browser.call(browser.open("http://127.0.0.1:1"), 5.0, "open")


@pytest.mark.parametrize("kind", ["miniwob", "shop", '{"kind": "webapp", "args": {"command": ["serve", "{port}"]}}'])
def test_so_many_contexts_are_open_at_once(kind):
    assert most_episodes(kind) == 16
    asked = parse_kind(kind)
    assert most_episodes(kind_text(asked.kind, {**asked.args, "max_concurrent": 3})) == 3


def test_a_site_at_an_address_has_one_state():
    assert most_episodes('{"kind": "webapp", "args": {"url": "http://127.0.0.1:8000"}}') == 1
