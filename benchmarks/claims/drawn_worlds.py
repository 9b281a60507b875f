"""Random small worlds of the tests, as questions that all plans of a machine answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

TESTS = Path(__file__).resolve().parents[2] / "tests"


def drawn(count: int, number: int) -> list[Any]:
    """So many worlds whose kernels fuse, the same ones for a number."""
    sys.path[:0] = [str(TESTS / "regions"), str(TESTS / "joint"), str(TESTS)]
    from covered import covered

    worlds = list[Any]()

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(covered(most=8, least=4, execution="dataflow", empty_partitions="allow"))
    def draw(world: Any) -> None:
        worlds.append(world)

    draw()
    return worlds
