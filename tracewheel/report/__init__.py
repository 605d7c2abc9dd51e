"""The report of a run: one HTML page that needs nothing else, not even a server."""

from __future__ import annotations

from tracewheel.report.data import ReportData
from tracewheel.report.load import HARDER_AIM, load_report_data
from tracewheel.report.page import write_report

__all__ = ["HARDER_AIM", "ReportData", "load_report_data", "write_report"]
