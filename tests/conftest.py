"""Hypothesis profiles, and the folders of the shared helpers on the import path.

``HYPOTHESIS_PROFILE=fast|ci|day|nightly|hunt`` (default fast) sets how many examples a property test draws; a test
that solves MILPs takes a share of it with `share`. CI draws new ones every day, with the date as the seed
(``HYPOTHESIS_PROFILE=day pytest --hypothesis-seed 20261127``); ``ci`` draws as many, the same ones every time. The
marker ``nightly`` keeps long runs out of the default.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

os.environ.pop("COLUMNS", None)  # test workers get one, and tables would be as narrow as it says
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started with `&` from a script: children would hear no Ctrl-C
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)
HERE = Path(__file__).resolve().parent
for folder in (HERE / "physics", HERE / "regions", HERE / "joint", HERE):  # the oracles are no package
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

_SLOW_DRAWS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
_COMMON = {"deadline": None, "suppress_health_check": _SLOW_DRAWS, "print_blob": True}
settings.register_profile("fast", max_examples=25, **_COMMON)
settings.register_profile("ci", max_examples=10, derandomize=True, **_COMMON)
# What fails is told as it was drawn: shrinking worlds of MILPs would take minutes.
settings.register_profile("day", max_examples=10, phases=(Phase.explicit, Phase.generate), **_COMMON)
settings.register_profile("nightly", max_examples=int(os.environ.get("NIGHTLY_EXAMPLES", "2000")), **_COMMON)
# For the search of bugs: report the first failing example as drawn; shrinking MILPs takes minutes.
settings.register_profile(
    "hunt", max_examples=200, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False, **_COMMON
)
settings.register_profile("mut", max_examples=100, derandomize=True, phases=(Phase.explicit, Phase.generate), **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
