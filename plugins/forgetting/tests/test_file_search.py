"""A text is found in whatever file holds it, and a name within another name is not."""

import base64
import gzip
import json
import sqlite3
import zipfile

import pandas
import pytest

from tracewheel_forgetting.file_search import Searcher

NAME, TEXT, SHORT = "user-3", 'Sell "all" of\nZoë\'s <shares> & say so', "u1"


def write_text(path, value):
    path.write_text(f"before {value} after", encoding="utf-8")


def write_json(path, value):
    path.write_text(json.dumps({"a": [{"b": value}]}), encoding="utf-8")


def write_json_in_json(path, value):
    path.write_text(json.dumps({"a": json.dumps({"b": value}, ensure_ascii=False)}), encoding="utf-8")


def write_html(path, value):
    import html

    path.write_text(f"<p>{html.escape(value)}</p>", encoding="utf-8")


def write_gzip(path, value):
    gzip_path = path.with_suffix(".gz")
    gzip_path.write_bytes(gzip.compress(json.dumps([value]).encode()))


def write_zip(path, value):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.json", json.dumps([value]))


def write_parquet(path, value):
    rows = pandas.DataFrame({"n": [1, 2], "deep": [[{"x": "no", "y": ["also no"]}], [{"x": "no", "y": [value]}]]})
    rows.to_parquet(path.with_suffix(".parquet"))


def write_sqlite(path, value):
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE notes (id INTEGER, text TEXT)")
    database.executemany("INSERT INTO notes VALUES (?, ?)", [(1, "x" * 9000), (2, value), (3, "y" * 9000 + " " + value)])
    database.commit()
    database.close()


def write_base64(path, value):
    path.write_text(json.dumps({"raw": base64.b64encode(f"xx{value}yyy".encode()).decode()}))


def far(path, value):
    path.write_bytes(b"-" * ((4 << 20) - 3) + value.encode() + b"-" * 100)


WRITERS = [write_text, write_json, write_json_in_json, write_html, write_gzip, write_zip, write_parquet, write_sqlite, far]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("value", [NAME, TEXT])
def test_it_is_found(write, value, tmp_path):
    write(tmp_path / "file", value)
    write_text(tmp_path / "other", "user-33, user-3x, Sell all of Zoë's shares")
    done = Searcher(["nobody", value]).search([tmp_path])
    assert [(found.path.stem, found.texts) for found in done.found] == [("file", (1,))]
    assert done.files == 2 and not done.unread


def test_in_base64_at_any_place(tmp_path):
    write_base64(tmp_path / "file", TEXT)
    assert Searcher([TEXT]).search([tmp_path]).found


def test_a_short_name_only_as_a_whole_value(tmp_path):
    write_text(tmp_path / "text", SHORT)
    write_json(tmp_path / "json", SHORT)
    write_sqlite(tmp_path / "db", SHORT)
    write_parquet(tmp_path / "table", SHORT)
    done = Searcher([SHORT]).search([tmp_path])
    assert sorted(found.path.name for found in done.found) == ["db", "json", "table.parquet"]


def test_what_a_database_deleted_is_found_until_it_is_vacuumed(tmp_path):
    path = tmp_path / "db"
    write_sqlite(path, TEXT)
    database = sqlite3.connect(path)
    database.execute("PRAGMA secure_delete = OFF")
    database.execute("DELETE FROM notes")
    database.commit()
    assert Searcher([TEXT]).search([path]).found
    database.execute("VACUUM")
    database.close()
    assert not Searcher([TEXT]).search([path]).found


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    done = Searcher([NAME]).search([tmp_path])
    assert [entry.split(":")[0].rpartition("/")[2] for entry in done.unread] == ["a.parquet", "b.gz"]
