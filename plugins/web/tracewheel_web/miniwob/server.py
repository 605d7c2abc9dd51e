"""Serves MiniWoB++'s files on this machine, with a start that is ours: seeded, without its clock."""

from __future__ import annotations

import functools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from tracewheel import ConfigError

TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".png": "image/png", ".gif": "image/gif"}
# The page begins as soon as it is loaded, and only once; time ends nothing, so that a slow machine changes no reward.
BEGIN = """
core.startEpisode = function () {
  if (core.began) return;
  core.began = true;
  core.createDisplay();
  core.cover_div = document.createElement('div');
  core.EPISODE_MAX_TIME = 2000000000;
  core.countdownTimer = core.clearTimer = function () {};
  if (window.jQuery) jQuery.fx.off = true;
  Math.seedrandom(core.QueryString.seed);
  core.startEpisodeReal();
};
"""


def html_folder() -> Path:
    """Where the package `miniwob` holds its pages; nothing of it is imported.

    Raises:
        ConfigError: it is not installed.
    """
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise ConfigError("the environment miniwob needs the pages of the package miniwob: make setup-web installs them")
    return Path(spec.origin).parent / "html"


@functools.lru_cache(maxsize=512)
def _content(folder: Path, path: str) -> bytes | None:
    file = (folder / path.lstrip("/")).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        return None
    content = file.read_bytes()
    return content + BEGIN.encode() if file.name == "core.js" else content


class Handler(BaseHTTPRequestHandler):
    """Answers with a file, which the browser may keep."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        content = _content(self.server.folder, path)  # type: ignore[attr-defined]
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", TYPES.get(Path(path).suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("Cache-Control", "max-age=86400")
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server:
    """The server, in threads of this process."""

    def __init__(self, folder: Path) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.folder = folder  # type: ignore[attr-defined]
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="miniwob", daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
