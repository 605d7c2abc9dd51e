"""The pictures of docs/dashboard.md and the README: `TRACEWHEEL_PICTURES=docs make test-dashboard` makes them anew."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
OF_A_RUN = {"run": "", "tasks": "/tasks", "lineage": "/lineage"}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_of_the_documents(visit, tmp_path, theme):
    folder = Path(os.environ.get("TRACEWHEEL_PICTURES", tmp_path))
    visit.page.emulate_media(color_scheme=theme)
    visit.open("/")
    addresses = {"runs": "/"}
    run = visit.page.locator("th a[href^='/runs/demo/']").first.get_attribute("href")
    addresses |= {name: run + path for name, path in OF_A_RUN.items()}
    visit.open(run)
    addresses["tokens"] = visit.page.locator("a[href*='/episodes/evaluate-']").first.get_attribute("href") + "/tokens"
    for name, address in addresses.items():
        visit.open(address)
        picture = folder / f"dashboard-{name}-{theme}.png"
        visit.page.screenshot(path=picture)
        assert picture.stat().st_size > 10_000
    assert not visit.complaints
