"""The DRAM simulators are not part of dfopt: they stand with the runners that use them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "reference"))
