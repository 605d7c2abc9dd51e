"""What the logs of a profile give: traces, and outcomes that came later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from tracewheel.core.errors import DataError
from tracewheel.operations.preflight.line import Line, Looked, counted
from tracewheel.traces.discovery import find_logs, find_outcomes
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.reading import read_first
from tracewheel.traces.sources import address_in
from tracewheel.traces.sources import named as named_paths
from tracewheel.traces.statements import read_outcomes

TRACES = 60  # how many are read
BYTES = 16 << 20  # of a log file: spans of one trace may stand far apart


def check_logs(looked: Looked) -> Iterator[Line]:
    config = looked.config.ingest
    files = find_logs(config)
    if not files:
        if any(map(address_in, config.paths)):
            says = f"{named_paths(config.paths)}: nothing was fetched yet"
            yield Line("logs", "skipped", says, "tracewheel ingest PROFILE --dry-run says what there is; retrain fetches it")
            return
        raise DataError(f"ingest.paths: no file matches {named_paths(config.paths)}")
    bad: list[tuple[str, Quarantined]] = []
    for name, path in files.items():
        for item in islice(read_first(config, path, BYTES), TRACES - len(looked.traces) - len(bad)):
            if isinstance(item, Quarantined):
                bad.append((name, item))
            else:
                looked.traces.append(item)
        if len(looked.traces) + len(bad) >= TRACES:
            break
    else:
        looked.whole = all(path.stat().st_size <= BYTES for path in files.values())
    formats = ", ".join(sorted({trace.format for trace in looked.traces}))
    read = f"{counted(len(looked.traces), 'trace')} of {counted(len(files), 'file')}{f' as {formats}' if formats else ''}"
    if not bad:
        yield Line("logs", "ok" if looked.traces else "warning", read)
        return
    (reason, count), *_ = Counter(item.reason for _, item in bad).most_common(1)
    name, first = next((name, item) for name, item in bad if item.reason == reason)
    yield Line(
        "logs",
        "warning" if looked.traces else looked.worst,
        f"{read}; {counted(len(bad), 'record')} cannot be read, {count} as «{reason}» "
        f"(first: {name}:{first.line}: {first.detail})",
        first.advice or "tracewheel data explain FILE shows what becomes of a record",
    )


def check_late_outcomes(looked: Looked) -> Iterator[Line]:
    config = looked.config.ingest
    for name, path in find_outcomes(config).items():
        read = read_outcomes(path, name, dict(config.outcomes.fields.items()))
        found = f"{counted(len(read.statements), 'outcome')} in {name}"
        if read.unreadable:
            first = f"; {counted(len(read.unreadable), 'row')} without one (first: {read.unreadable[0]})"
            yield Line("late outcomes", "warning", f"{found}{first}", "ingest.outcomes.fields says where its parts are")
        else:
            yield Line("late outcomes", "ok", found)
