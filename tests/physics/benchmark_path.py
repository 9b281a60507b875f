"""Runners and their parts in ``benchmarks/reference`` are no package: they import what lies beside them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "reference"))
