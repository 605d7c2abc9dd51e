"""The report of a run: one self-contained HTML page."""

from __future__ import annotations

from tracewheel.report.load import RunResults, load_report_data
from tracewheel.report.page import write_report
from tracewheel.report.report_data import ReportData

__all__ = ["ReportData", "RunResults", "load_report_data", "write_report"]
