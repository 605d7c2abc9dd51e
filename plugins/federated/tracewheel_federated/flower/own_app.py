"""Starts Flower's process for an app, with the app that is installed here: no code that arrives over the network is run.

Flower sends the server's app to all clients as a bundle, which they would install and run. In its place stands
`tracewheel_federated.flower.client_app`, or at the server `server_app`, whoever sent a bundle. This file is started under the
names `flwr-clientapp` and `flwr-serverapp` (`processes.py`).
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any


def client() -> None:
    _keep_words("clientapp.log")
    from flwr.supernode.cli import flwr_clientapp

    from tracewheel_federated.flower.client_app import app

    module = _without_bundles("flwr.supernode.runtime.run_clientapp")
    module.get_load_client_app_fn  # noqa: B018 (as above)
    module.get_load_client_app_fn = lambda **_: lambda *_: app
    flwr_clientapp()


def server() -> None:
    _keep_words("serverapp.log")
    from flwr.superlink.cli import flwr_serverapp

    from tracewheel_federated.flower.server_app import app

    module = _without_bundles("flwr.superlink.runtime.run_serverapp")
    module.get_project_config = lambda _: {"tool": {"flwr": {"app": {"components": {"serverapp": "ours"}}}}}
    module.get_fused_config_from_dir = lambda *_: {}
    module.run_  # noqa: B018 (as above)
    module.run_ = lambda grid, context, **_: _run(app, grid, context)
    flwr_serverapp()


def _without_bundles(name: str) -> Any:
    """The module that starts an app, with nothing in it that installs one.

    Raises:
        AttributeError: this Flower is another one than we know, and would run what arrives.
    """
    module = importlib.import_module(name)
    for own, ours in (("install_from_fab", _nothing), ("get_project_dir", _nowhere), ("install_app_dependencies", _nothing)):
        getattr(module, own)
        setattr(module, own, ours)
    return module


def _run(app: Any, grid: Any, context: Any) -> Any:
    """Run the server's app, and leave a word of how it ended: asking Flower costs seconds each time."""
    ended = Path(os.environ["FLWR_HOME"]) / "ended"
    try:
        app(grid=grid, context=context)
    except Exception as error:
        ended.write_text(f"{type(error).__name__}: {error}")
        raise
    ended.write_text("")
    return context


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _nowhere(*_: Any) -> Path:
    return Path("/nonexistent")


def _keep_words(name: str) -> None:
    """Write what is said to a file: Flower throws it away."""
    file = os.open(Path(os.environ["FLWR_HOME"]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
