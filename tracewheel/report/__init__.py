"""The report of a run: one HTML page that needs nothing else, not even a server."""

from __future__ import annotations

from tracewheel.report.data import ReportData
from tracewheel.report.load import load_report_data
from tracewheel.report.page import write_report

__all__ = ["ReportData", "load_report_data", "write_report"]
