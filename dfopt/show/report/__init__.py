"""Reports: a result, an exploration, answers to heat or a sweep as one HTML file without network; tables sort."""

from __future__ import annotations

from dfopt.show.report.design_section import designs_section
from dfopt.show.report.heat_answers import heat_page
from dfopt.show.report.result import result_report
from dfopt.show.report.sources import Remark, remarks
from dfopt.show.report.sweep import sweep_report

__all__ = ["Remark", "designs_section", "heat_page", "remarks", "result_report", "sweep_report"]
