"""Readers of trace logs, one file for each format: pieces of files in, `Trace` or `Quarantined` out."""

from tracewheel.traces.detect import FORMATS, READERS, Detector
from tracewheel.traces.quarantine import REASONS, Quarantined
from tracewheel.traces.reader import Reader
from tracewheel.traces.reading import read_traces
from tracewheel.traces.source import Source
from tracewheel.traces.spool import Spool

__all__ = ["FORMATS", "READERS", "REASONS", "Detector", "Quarantined", "Reader", "Source", "Spool", "read_traces"]
