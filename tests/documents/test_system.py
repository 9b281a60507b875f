"""System documents: what their own checks say, and that they survive a round trip. More in `cli/test_bad_input`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from strategies import efficiency_tables

from dfopt.documents.json_schema import schema_json
from dfopt.documents.system import Chip, Dram, EfficiencyRow, NetworkDim, Sram, System
from dfopt.errors import SystemSpecError
from dfopt.machines.compose import load_system

TEXT = """\
schema: dfopt/system/1
name: s
chip:
  name: c
  tiles: 4
  peak: 1 TFLOP/s
  efficiency:
    - {unit: matrix, flop: 100 GFLOP, share: 85 %}
    - {unit: matrix, flop: 1 GFLOP, extent: 128, share: 0.6}
    - {unit: vector, share: 0.1}
    - {unit: matrix, share: 0.3}
  sram: {capacity: 1 MB}
  dram: {bandwidth: 1 GB/s}
"""


def system(*rows: EfficiencyRow, **more: object) -> System:
    chip = Chip(
        name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9), efficiency=rows or None
    )
    return System(name="s", chip=chip, **more)


def test_a_table_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    rows = (
        EfficiencyRow(unit="matrix", flop=1e11, share=0.85),
        EfficiencyRow(unit="matrix", flop=1e9, extent=128, share=0.6),
        EfficiencyRow(unit="vector", share=0.1),
        EfficiencyRow(unit="matrix", share=0.3),
    )
    assert load_system(path) == system(*rows)
    dumped = load_system(path).to_data()["chip"]["efficiency"]
    assert dumped[0] == {"unit": "matrix", "flop": "100 GFLOP", "share": 0.85}  # a condition not set is not written


@given(efficiency_tables())
def test_a_table_survives_a_round_trip(rows: tuple[EfficiencyRow, ...]) -> None:
    made = system(*rows)
    assert System.from_data(made.to_data()) == made


def test_a_chip_without_a_table_says_nothing_about_it() -> None:
    """So the digest of a system from before there were tables is what it was."""
    assert "efficiency" not in system().to_data()["chip"]


def test_all_that_does_not_fit_is_told_at_once() -> None:
    dims = [NetworkDim(name="x", topology="ring", size=2, link_bandwidth=1e9)] * 2
    rows = [EfficiencyRow(unit="matrix", share=s) for s in (0.9, 0.1)]
    with pytest.raises(SystemSpecError) as found:
        system(*rows, network=tuple(dims))
    assert [issue.where for issue in found.value.issues] == [
        "$.network[1].name",
        "$.chip.efficiency[1]",
        "$.chip.efficiency",
    ]
    assert all(issue.remedy for issue in found.value.issues)


def test_editors_know_the_table() -> None:
    row = schema_json(System)["$defs"]["EfficiencyRow"]
    assert row["required"] == ["unit", "share"] and row["additionalProperties"] is False
