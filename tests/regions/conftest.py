"""The brute force that shares nothing with a search lies beside the tests of schemes and fusions found together."""

from __future__ import annotations

import sys
from pathlib import Path

JOINT = str(Path(__file__).resolve().parents[1] / "joint")
if JOINT not in sys.path:
    sys.path.insert(0, JOINT)
