"""Fixtures of the root's tests, for those of the wheels: `make setup-plugins` installs the wheels."""

from tests.conftest import base, chat_server, make_adapter, prefect_database, prefect_harness  # noqa: F401
from tests.flows.conftest import made, run  # noqa: F401
from tests.tracewheel.conftest import call_text, config, files_of, renderer, scripted_engine, tasks  # noqa: F401
from tracewheel.core.kind_table import give

give("plugins.own:Kind", "plugins.worlds.tests.own:Kind", "plugins.bridges.tests.own:Kind")  # what tests name is the user's own
