"""The shipped runs, unpacked once, and a dashboard over them."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tracewheel.dashboard.app import create_app
from tracewheel.dashboard.demo_run import unpack_demo
from tracewheel.dashboard.index import schema
from tracewheel.dashboard.index.build import Indexer
from tracewheel.dashboard.index.process import is_current
from tracewheel.dashboard.library import Library

LOCAL = "http://127.0.0.1"


@pytest.fixture(scope="session")
def shown(tmp_path_factory) -> Path:
    """The work folder of the shipped runs, for tests that only read; others copy it."""
    return unpack_demo(tmp_path_factory.mktemp("dashboard"))


@pytest.fixture(scope="session")
def library(shown) -> Library:
    return Library([shown])


@pytest.fixture(scope="session")
def client(library) -> Iterator[TestClient]:
    """A visitor of this machine."""
    with TestClient(create_app(library), base_url=LOCAL, follow_redirects=False) as visitor:
        yield visitor


@pytest.fixture(scope="session")
def indexed(library) -> sqlite3.Connection:
    """The index of the shipped runs."""
    place = next(iter(library.places.values()))
    folder = place.path / schema.FOLDER
    while not is_current(place, folder):  # a page may have begun it in a process of its own
        Indexer(place, folder).run() or time.sleep(0.2)
    database = schema.open_for_reading(folder)
    assert database is not None
    return database


@pytest.fixture(scope="session")
def run_ids(library) -> list[str]:
    """The shipped runs, the first one first."""
    from tracewheel.dashboard.run_rows import RunRows

    return [row.run_id for row in reversed(RunRows(library).all())]
