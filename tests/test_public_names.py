"""The names of the package: each is there, and help leads to the few that one needs."""

from __future__ import annotations

import dfopt


def test_every_public_name_loads() -> None:
    for name in dfopt.__all__:
        assert getattr(dfopt, name) is not None
    assert set(dfopt.__all__) <= set(dir(dfopt))
