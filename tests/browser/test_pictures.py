"""The pictures of docs/dashboard.md and the README: `TRACEWHEEL_PICTURES=docs make test-dashboard` makes them anew."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
PICTURES = {"runs": "", "run": "", "tasks": "/tasks", "lineage": "/lineage"}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_of_the_documents(visit, tmp_path, theme):
    folder = Path(os.environ.get("TRACEWHEEL_PICTURES", tmp_path))
    visit.page.emulate_media(color_scheme=theme)
    visit.open("/")
    run = visit.page.locator("th a[href^='/runs/']").first.get_attribute("href")
    token = None
    for name, path in PICTURES.items():
        visit.open("/" if name == "runs" else run + path)
        visit.page.screenshot(path=folder / f"dashboard-{name}-{theme}.png")
        token = token or visit.page.locator("a[href*='/episodes/evaluate-']").all()
    visit.open(visit.page.evaluate("location.pathname") if token is None else token[0].get_attribute("href") + "/tokens")
    visit.page.screenshot(path=folder / f"dashboard-tokens-{theme}.png")
    assert all((folder / f"dashboard-{name}-{theme}.png").stat().st_size > 10_000 for name in (*PICTURES, "tokens"))
