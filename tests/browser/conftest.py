"""A real dashboard on a socket, and a real browser before it."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tracewheel.dashboard.library import unpack_demo

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")


def installed_browser() -> str | None:
    """The browser of this machine: $TRACEWHEEL_BROWSER, else Debian's or Google's."""
    return os.environ.get("TRACEWHEEL_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="session")
def short(tmp_path_factory) -> Path:
    """The work folder of a run of `configs/tiny-short.yaml`, made now."""
    folder = tmp_path_factory.mktemp("short")
    command = [sys.executable, "-m", "flows.cli", "retrain", "configs/tiny-short.yaml", "--run-dir", str(folder / "short")]
    command += ["--set", f"tracking.uri=sqlite:///{folder / 'mlflow.db'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr[-2000:]
    return folder / "short"


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory, short) -> Iterator[str]:
    """The address of `tracewheel dashboard` over the shipped runs and the short one."""
    work = unpack_demo(tmp_path_factory.mktemp("browser"))
    command = [sys.executable, "-m", "flows.cli", "dashboard", str(work), str(short), "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    threading.Thread(target=process.stderr.read, daemon=True).start()
    yield line.split()[-1].rstrip("/")
    process.terminate()
    assert process.wait(timeout=20) in (0, 143)


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="`make test-dashboard` installs playwright")
    path = installed_browser()
    if path is None:
        pytest.skip(
            f"no browser: install Debian's chromium, or name one in TRACEWHEEL_BROWSER (looked for {', '.join(BROWSERS)})"
        )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page of the browser, and what went wrong in it.

    Attributes:
        complaints: Errors of scripts, breaches of the content security policy, and requests that failed or led elsewhere.
        clicks: Links and buttons that were clicked.
    """

    page: object
    address: str
    complaints: list[str] = field(default_factory=list)
    clicks: int = 0

    def open(self, path: str) -> None:
        """Go to an address of the dashboard, and wait for what it loads later; no click."""
        self.page.goto(self.address + path, wait_until="networkidle")

    def click(self, name: str, role: str = "link") -> None:
        """Click the first link (or button) of this name."""
        self.page.get_by_role(role, name=name).first.click()
        self.page.wait_for_load_state()
        self.clicks += 1

    def says(self, text: str) -> bool:
        """Whether the page's main part shows a text."""
        return text in self.page.inner_text("main")


@pytest.fixture
def visit(chromium, dashboard) -> Iterator[Visit]:
    """A visitor with a fresh browser profile, 1280 pixels wide."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    visitor = Visit(page, dashboard)
    page.on("console", lambda message: visitor.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
    page.on(
        "request", lambda request: visitor.complaints.append(request.url) if not request.url.startswith(dashboard) else None
    )
    page.on("requestfailed", lambda request: visitor.complaints.extend(gone_wrong(request)))
    yield visitor
    context.close()


def gone_wrong(request):
    """A request that failed; not one that the browser gave up because it left the page."""
    return [] if request.failure == "net::ERR_ABORTED" else [f"{request.url} {request.failure}"]
