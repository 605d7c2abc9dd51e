"""The tables of the index, in one SQLite file for each work folder."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tracewheel.core.store import remove

# In the work folder. No run reads it; `tracewheel forget` deletes it whole.
FOLDER = ".dashboard"
FILE, LOCK, FIRST = "index.db", "lock", "first"
VERSION = 2
CACHE_KB = 16_000
WAIT_SECONDS = 10.0
TABLES = """
CREATE TABLE runs (id INTEGER PRIMARY KEY, run TEXT UNIQUE, started TEXT, signs TEXT);
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, entry TEXT, part TEXT, scored TEXT, finished REAL, episodes INTEGER, flaw TEXT,
    UNIQUE (entry, part, scored)
);
CREATE TABLE uses (
    run INTEGER, source INTEGER, place INTEGER, kind TEXT, label TEXT, iteration INTEGER, policy TEXT, split TEXT,
    environment TEXT, PRIMARY KEY (run, source)
) WITHOUT ROWID;
CREATE INDEX uses_source ON uses (source);
CREATE TABLE curations (entry TEXT PRIMARY KEY);
CREATE TABLE tasks (id INTEGER PRIMARY KEY, task TEXT UNIQUE, family TEXT, tier INTEGER, prompt TEXT);
CREATE TABLE sides (task INTEGER, split TEXT, curation TEXT, PRIMARY KEY (task, split)) WITHOUT ROWID;
CREATE TABLE episodes (
    id INTEGER PRIMARY KEY, source INTEGER, task INTEGER, trajectory TEXT, grp TEXT, sample INTEGER, outcome TEXT, total REAL,
    success REAL, fault TEXT, detail TEXT, flaws TEXT, stop TEXT, tools TEXT, turns INTEGER, calls INTEGER, tokens INTEGER,
    generated INTEGER, oldest INTEGER, newest INTEGER, blame TEXT, branches INTEGER, reasons TEXT,
    unmatched INTEGER, lost INTEGER
);
CREATE INDEX episodes_source ON episodes (source);
CREATE INDEX episodes_task ON episodes (task, source, success);
CREATE VIRTUAL TABLE words USING fts5(text, marks, content='', tokenize='unicode61 remove_diacritics 2');
"""


def open_for_writing(folder: Path) -> sqlite3.Connection:
    """The index of a folder, made where there is none, or where another version made it."""
    folder.mkdir(parents=True, exist_ok=True)
    database = _connect(folder / FILE)
    found = database.execute("PRAGMA user_version").fetchone()[0]
    if found not in (0, VERSION):
        database.close()
        drop(folder)
        database, found = _connect(folder / FILE), 0
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")  # a cache: what a crash of the machine damages is made again
    if not found:
        database.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
    return database


def open_for_reading(folder: Path) -> sqlite3.Connection | None:
    """The index of a folder; None where there is none yet."""
    if not (folder / FILE).is_file():
        return None
    database = _connect(folder / FILE)
    database.execute("PRAGMA query_only = ON")
    if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        database.close()
        return None
    database.row_factory = sqlite3.Row
    return database


def drop(folder: Path) -> None:
    """Delete an index."""
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        remove(folder / name)


def _connect(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
    return database
