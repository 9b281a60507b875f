"""Influence matrices: what they are keyed by, and where they are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thermal_cases import PACKAGES, quarters, stack

from dfopt.technology.thermal import Body, Cache, HtcPackage, Rect, ThermalModel, cache
from dfopt.technology.thermal.influence import digest

TILES = [("logic", rect) for rect in quarters()] + [("dram0", rect) for rect in quarters()]


def fresh(directory: Path | None) -> Cache:
    """A cache with an empty memory."""
    return Cache(directory, OrderedDict())


def solves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each solve for tiles."""
    counted: list[int] = []
    true = ThermalModel._unit_rises

    def counting(self: ThermalModel, *given: Any) -> Any:
        counted.append(1)
        return true(self, *given)

    monkeypatch.setattr(ThermalModel, "_unit_rises", counting)
    return counted


def test_second_time_comes_from_memory_then_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, kept = solves(monkeypatch), fresh(tmp_path)
    body = stack(PACKAGES["hotspot"])
    first = ThermalModel(body, 8, 8).influence(TILES, kept)
    assert ThermalModel(body, 8, 8).influence(TILES, kept).matrix_k_per_w is first.matrix_k_per_w
    model = ThermalModel(body, 8, 8)
    again = model.influence(TILES, fresh(tmp_path))
    np.testing.assert_array_equal(again.matrix_k_per_w, first.matrix_k_per_w)
    assert len(counted) == 1
    assert "solver" not in vars(model)  # not even factorised
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    with pytest.raises(ValueError, match="read-only"):
        first.matrix_k_per_w[0, 0] = 0.0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not a zip"),
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(path.read_bytes()[:-300] + bytes(300)),
        lambda path: np.savez(path, key=np.array("another"), matrix=np.eye(8)),
        lambda path: np.savez(path, key=np.array(path.stem), matrix=np.eye(3)),
        lambda path: np.savez(path, key=np.array(path.stem), matrix=np.full((8, 8), np.nan)),
        lambda path: np.savez(path, key=np.array(path.stem), matrix=np.full((8, 8), "a")),
        lambda path: np.savez(path, key=np.array(path.stem), matrix=np.full((8, 8), None)),
        lambda path: np.savez(path, other=np.eye(8)),
        lambda path: np.save(path.open("wb"), np.eye(8)),
    ],
)
def test_broken_files_are_written_anew(tmp_path: Path, spoil: Callable[[Path], Any]) -> None:
    model = ThermalModel(stack(HtcPackage(2e4)), 4, 4)
    true = model.influence(TILES, fresh(tmp_path)).matrix_k_per_w
    (path,) = tmp_path.glob("*.npz")
    good = path.read_bytes()
    spoil(path)
    assert path.read_bytes() != good
    found = ThermalModel(model.body, 4, 4).influence(TILES, fresh(tmp_path)).matrix_k_per_w
    np.testing.assert_array_equal(found, true)
    assert Cache(tmp_path, OrderedDict()).get(path.stem, (8, 8)) is not None


def test_a_directory_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    found = ThermalModel(stack(HtcPackage(2e4)), 4, 4).influence(TILES, fresh(blocked / "below"))
    assert found.matrix_k_per_w.shape == (8, 8)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(cache.np, "savez", broken)
    ThermalModel(stack(HtcPackage(2e4)), 4, 4).influence(TILES, fresh(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded() -> None:
    kept = fresh(None)
    for index in range(100):
        kept.put(str(index), np.eye(2))
    assert len(kept.memory) == 32
    assert kept.get("99", (2, 2)) is not None and kept.get("0", (2, 2)) is None


def test_where_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.default().directory == tmp_path / "dfopt" / "thermal"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert Cache.default().directory == tmp_path / "home" / ".cache" / "dfopt" / "thermal"
    monkeypatch.setenv("DFOPT_CACHE", "off")
    assert Cache.default().directory is None


def test_default_cache_is_used_and_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DFOPT_CACHE", "off")
    ThermalModel(stack(HtcPackage(1e4)), 4, 4).influence(TILES)
    assert not (tmp_path / "dfopt").exists()
    monkeypatch.delenv("DFOPT_CACHE")
    ThermalModel(stack(HtcPackage(1.1e4)), 4, 4).influence(TILES)
    assert len(list((tmp_path / "dfopt" / "thermal").glob("*.npz"))) == 1


def test_digest_tells_everything_that_changes_the_matrix_apart() -> None:
    body = stack(PACKAGES["hotspot"])
    logic, *others = body.slabs

    def with_logic(**changes: Any) -> Body:
        return replace(body, slabs=(replace(logic, **changes), *others))

    varied = np.full((4, 4), 120.0)
    varied[0, 0] = 121.0
    tiles = TILES
    keys = [
        digest(body, 4, 4, tiles),
        digest(body, 4, 5, tiles),
        digest(body, 5, 4, tiles),
        digest(body, 4, 4, tiles[:-1]),
        digest(body, 4, 4, tiles[::-1]),
        digest(body, 4, 4, [*tiles[:-1], ("dram1", tiles[-1][1])]),
        digest(body, 4, 4, [*tiles[:-1], ("dram0", Rect(0.0, 0.0, 0.001, 0.001))]),
        digest(replace(body, side_x=0.011), 4, 4, tiles),
        digest(replace(body, far_htc=1.0), 4, 4, tiles),
        digest(with_logic(thickness_m=2e-4), 4, 4, tiles),
        digest(with_logic(conductivity=119.0), 4, 4, tiles),
        digest(with_logic(conductivity=varied), 4, 4, tiles),
        digest(with_logic(conductivity=varied[::-1]), 4, 4, tiles),
        digest(with_logic(source_thickness_m=2e-6), 4, 4, tiles),
        digest(replace(body, package=PACKAGES["plates"]), 4, 4, tiles),
        digest(replace(body, package=replace(PACKAGES["hotspot"], r_convec=0.3)), 4, 4, tiles),  # type: ignore[call-arg]
        digest(replace(body, slabs=(*others, logic)), 4, 4, tiles),
    ]
    assert len(set(keys)) == len(keys)
    # what it does not depend on: names, ambient, heat capacities
    same = replace(body, ambient_k=300.0, slabs=(replace(logic, name="top", heat_capacity=1e6), *others))
    renamed = [("top" if name == "logic" else name, rect) for name, rect in tiles]
    assert digest(same, 4, 4, renamed) == keys[0]


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "from dfopt.technology.thermal import *; from dfopt.technology.thermal.influence import digest\n"
        "b = Body(0.01, 0.01, (Slab('die', 1e-4, 120.0, 1e6),), HtcPackage(1e4), 300.0)\n"
        "print(digest(b, 8, 8, [('die', Rect(0.0, 0.0, 0.01, 0.01))]))"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        found.add(run.stdout)
    assert len(found) == 1


def test_no_tiles_and_many_cases() -> None:
    model = ThermalModel(stack(HtcPackage(2e4)), 4, 4)
    assert model.influence([]).matrix_k_per_w.shape == (0, 0)
    assert model.responses([]).shape == (0, len(model.body.slabs), 4, 4)
    influence = model.influence(TILES)
    cases = np.arange(24.0).reshape(8, 3)
    found = influence.temperatures(cases)
    np.testing.assert_allclose(found[:, 1], influence.temperatures(cases[:, 1]))


def test_more_tiles_than_fit_one_solve() -> None:
    model = ThermalModel(stack(HtcPackage(2e4)), 10, 10)
    tiles = [("logic", rect) for rect in quarters(n=10)]
    matrix = model.influence(tiles).matrix_k_per_w
    np.testing.assert_allclose(matrix[:, [3, 70, 99]], model.influence([tiles[i] for i in (3, 70, 99)] + tiles)
                               .matrix_k_per_w[3:, :3], rtol=1e-9)  # fmt: skip
    np.testing.assert_allclose(model.responses(tiles)[70, 0].ravel(), matrix[70], rtol=1e-9)
