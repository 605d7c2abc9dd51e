"""Starts Flower's process for an app, with the app that is installed here: no code that arrives over the network is run.

Flower sends the server's app to all clients as a bundle, which they would install and run. In its place stands
`tracewheel_federated.flower.client_app`, or at the server `server_app`, whoever sent a bundle. This file is started under the
names `flwr-clientapp` and `flwr-serverapp` (`processes.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def client() -> None:
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as module

    from tracewheel_federated.flower.client_app import app

    module.install_from_fab = _nothing
    module.get_project_dir = _nowhere
    module.get_load_client_app_fn = lambda **_: lambda *_: app
    flwr_clientapp()


def server() -> None:
    from flwr.superlink.cli import flwr_serverapp
    from flwr.superlink.runtime import run_serverapp as module

    from tracewheel_federated.flower.server_app import app

    module.install_from_fab = _nothing
    module.get_project_dir = _nowhere
    module.get_project_config = lambda _: {"tool": {"flwr": {"app": {"components": {"serverapp": "ours"}}}}}
    module.get_fused_config_from_dir = lambda *_: {}
    module.run_ = lambda grid, context, **_: _run(app, grid, context)
    flwr_serverapp()


def _run(app: Any, grid: Any, context: Any) -> Any:
    app(grid=grid, context=context)
    return context


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _nowhere(*_: Any) -> Path:
    return Path("/nonexistent")


if __name__ == "__main__":
    {"flwr-clientapp": client, "flwr-serverapp": server}[Path(sys.argv[0]).name]()
