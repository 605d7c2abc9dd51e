"""One conversation in each format, and how values are read; the tests of wheels' formats use it too."""

import json
from pathlib import Path

from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.spool import Spool

CITY = {"city": "Rome"}
STORY = [
    ("user", "Weather in Rome?", []),
    ("assistant", "", [("weather", CITY)]),
    ("tool", "sunny", []),
    ("assistant", "It is sunny.", []),
]


def samples_in(folder):
    """The records and the lists of lines by format: of `samples.json`, and of a file `samples/NAME.json` of either kind."""
    found = json.loads((folder / "samples.json").read_text())
    records, lines = found["records"], found["spans"]
    for file in sorted((folder / "samples").glob("*.json")):
        sample = json.loads(file.read_text())
        (lines if isinstance(sample, list) else records)[file.stem] = sample
    return records, lines


RECORDS, SPANS = samples_in(Path(__file__).parent)


def read(*values, format="auto", document=0):
    """Read values, one a line, or as the elements of one list."""
    pieces = [Piece(json.dumps(value).encode(), number, 0, document) for number, value in enumerate(values, start=1)]
    with Spool() as spool:
        reader = LogReader(format, spool)
        items = list(reader.read(pieces, "log"))
        return items + [item for _, item in reader.spooled()]


def conversation(trace):
    """The conversation without differences of format: ids, and whether a missing text is None or empty."""
    lines = []
    for message in trace.messages:
        calls = [
            (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls") or []
        ]
        lines.append((message["role"], message["content"] or "", calls))
    return lines
