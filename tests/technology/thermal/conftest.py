"""No test of the thermal solver reads or writes the user's cache; fields stand with the runners that ask for them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from dfopt.technology.thermal import cache

sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "reference"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("DFOPT_CACHE", raising=False)
    monkeypatch.setattr(cache, "_MEMORY", OrderedDict())
