"""Reports: a result or a sweep as one HTML file that needs no network, with figures, tables that sort, and sources."""

from __future__ import annotations

from dfopt.show.report.inputs import Remark, remarks
from dfopt.show.report.result import result_report
from dfopt.show.report.sweep import sweep_report

__all__ = ["Remark", "remarks", "result_report", "sweep_report"]
