"""Documents and their search: BM25 (Robertson and Zaragoza 2009) over titles and texts, and corpus files as JSONL.

Indices and corpora are kept by content, so that the episodes of a process share them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracewheel import DataError, parse_json, stored_json

WORD = re.compile(r"\w+")
FIELDS = ("id", "title", "text")
INDICES_KEPT, CORPORA_KEPT = 1024, 4
_making = threading.Lock()

Document = dict[str, str]


class Library:
    """Some documents and their index. It is read only: episodes on many threads may share one.

    Words are lower case runs of letters and digits, without stop words or stemming. Documents that hold no word of the
    query are never found; ties go to the earlier document.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.by_id = {document["id"]: document for document in documents}
        self._documents = list(documents)
        words = [WORD.findall(f"{document['title']} {document['text']}".lower()) for document in documents]
        self._known = {word for own in words for word in own}
        if self._known:
            import bm25s

            logging.getLogger("bm25s").setLevel(logging.WARNING)  # it writes a line for each index
            self._index = bm25s.BM25(auto_compile=False, backend="numpy")
            self._index.index(words, show_progress=False)

    def search(self, query: str, results: int) -> list[Document]:
        """The best documents for a query, best first; at most `results`."""
        words = [word for word in WORD.findall(query.lower()) if word in self._known]
        if not words:
            return []
        scores = self._index.get_scores(words)
        order = (-scores).argsort(kind="stable")[:results]
        return [self._documents[place] for place in order if scores[place] > 0]


def library_of(documents: Sequence[Document]) -> Library:
    """The library of documents that a task brings along."""
    return _kept(tuple((document["id"], document["title"], document["text"]) for document in documents))


@functools.lru_cache(maxsize=INDICES_KEPT)
def _kept(documents: tuple[tuple[str, str, str], ...]) -> Library:
    return Library([dict(zip(FIELDS, document, strict=True)) for document in documents])


class Corpus:
    """The documents of a file, and the libraries of all or of some of them.

    Attributes:
        digest: The SHA-256 of the file.
    """

    def __init__(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"corpus {path}: {error.strerror}; see plugins/worlds/docs/retrieval.md") from error
        self.path, self.digest = path, hashlib.sha256(data).hexdigest()
        self.documents = _documents_of(data, path)
        self._whole: Library | None = None
        self._lock = threading.Lock()

    def whole(self) -> Library:
        """The library of all documents; its index is made at the first call."""
        with self._lock:
            self._whole = self._whole or Library(list(self.documents.values()))
            return self._whole

    def part(self, ids: Sequence[str]) -> Library:
        """The library of some documents.

        Raises:
            DataError: the corpus has no such document.
        """
        missing = [number for number in ids if number not in self.documents]
        if missing:
            raise DataError(f"corpus {self.path}: no document {missing[0]!r}, which a task names")
        return library_of([self.documents[number] for number in ids])


def corpus_at(path: str | Path) -> Corpus:
    """The corpus of a JSONL file, read once in a process unless the file changes.

    Raises:
        DataError: it cannot be read, or a line is no document; the message names file and line.
    """
    path = Path(path)
    try:
        stat = path.stat()
    except OSError as error:
        raise DataError(f"corpus {path}: {error.strerror}; see plugins/worlds/docs/retrieval.md") from error
    with _making:
        return _corpus(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=CORPORA_KEPT)
def _corpus(path: Path, _changed: int, _size: int) -> Corpus:
    return Corpus(path)


def write_corpus(documents: Sequence[Document], folder: Path) -> str:
    """Write documents as `DIGEST.jsonl` into a folder, and return the digest, the SHA-256 of the file."""
    data = "".join(stored_json(document) + "\n" for document in documents).encode()
    digest = hashlib.sha256(data).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest}.jsonl"
    if not path.exists():
        half = path.with_suffix(".tmp")
        half.write_bytes(data)
        half.replace(path)
    return digest


def check_documents(documents: Any, where: str) -> None:
    """Check documents that a task brings along.

    Raises:
        DataError: they are no documents, or two have one id.
    """
    if not isinstance(documents, list) or not documents or not all(_is_document(document) for document in documents):
        raise DataError(f"{where} needs a list of documents, each with {', '.join(FIELDS)}, which are texts")
    if len({document["id"] for document in documents}) < len(documents):
        raise DataError(f"{where}: two documents have one id")


def _documents_of(data: bytes, path: Path) -> dict[str, Document]:
    documents: dict[str, Document] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            document = parse_json(line.decode())
        except (ValueError, json.JSONDecodeError) as error:
            raise DataError(f"corpus {path}, line {number}: no JSON ({error})") from error
        if not _is_document(document):
            raise DataError(f"corpus {path}, line {number}: a document needs {', '.join(FIELDS)}, which are texts")
        if document["id"] in documents:
            raise DataError(f"corpus {path}, line {number}: a second document {document['id']!r}")
        documents[document["id"]] = {name: document[name] for name in FIELDS}
    if not documents:
        raise DataError(f"corpus {path}: it holds no document")
    return documents


def _is_document(document: Any) -> bool:
    return isinstance(document, dict) and all(isinstance(document.get(name), str) for name in FIELDS)
