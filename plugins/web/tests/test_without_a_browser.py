"""What a machine without a browser is told."""

import sys

import pytest

from tracewheel import ConfigError
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
