"""No test of the thermal solver reads or writes the user's cache."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest

from dfopt.technology.thermal import cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("DFOPT_CACHE", raising=False)
    monkeypatch.setattr(cache, "_MEMORY", OrderedDict())
