"""Responses to tiles of power: what they are keyed by, and where they are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stack_cases
from thermal_bodies import PACKAGES, cooled, quarters, stack
from thermal_fields import Rect

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import SinkPackage
from dfopt.technology import stack_models
from dfopt.technology.stack_models import Heat, heat_of
from dfopt.technology.thermal import cache
from dfopt.technology.thermal.responses import digest, responses
from dfopt.technology.thermal.types import Body

TILES = [("logic", rect) for rect in quarters()] + [("dram0", rect) for rect in quarters()]


def kept(work: Callable[[], Floats] = lambda: np.eye(8), name: str = "a") -> Floats:
    return cache.kept(name, (8, 8), work)


def files(home: Path) -> list[Path]:
    return sorted((home / "dfopt" / "thermal").glob("*"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def refuse() -> Floats:
    raise AssertionError("it is worked out again")


def test_second_time_comes_from_memory_then_from_disk(home: Path) -> None:
    first = kept()
    assert kept(refuse) is first
    cache._MEMORY.clear()
    np.testing.assert_array_equal(kept(refuse), first)
    assert [path.name for path in files(home)] == ["a.npz"]
    for matrix in (first, kept(refuse)):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 0.0


def test_stacks_of_one_body_share_their_responses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = stack_cases.stack()
    first = heat_of(one)
    monkeypatch.setattr(stack_models, "responses", refuse)
    again = heat_of(one.model_copy(update={"ambient": one.ambient + 1}))
    assert isinstance(again, Heat) and again.cells_k_per_w is first.cells_k_per_w and len(files(home)) == 1
    np.testing.assert_array_equal(again.means_k_per_w, first.means_k_per_w)
    cells = first.cells_k_per_w.reshape(len(first.dies), -1, len(one.tiles))
    assert first.means_k_per_w.max() <= cells.max() and first.means_k_per_w.min() > 0
    np.testing.assert_allclose(first.means_k_per_w, first.means_k_per_w.T, rtol=1e-9)


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
def test_broken_files_are_written_anew(home: Path, spoil: Callable[[Path], Any]) -> None:
    kept()
    (path,) = files(home)
    good = path.read_bytes()
    spoil(path)
    assert path.read_bytes() != good
    cache._MEMORY.clear()
    np.testing.assert_array_equal(kept(), np.eye(8))
    cache._MEMORY.clear()
    np.testing.assert_array_equal(kept(refuse), np.eye(8))


def test_a_directory_that_cannot_be_written_costs_nothing(home: Path) -> None:
    (home / "dfopt").write_text("not a directory")
    assert kept().shape == (8, 8)


def test_a_write_that_fails_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(cache.np, "savez", broken)
    kept()
    assert files(home) == []


def test_memory_is_bounded(home: Path) -> None:
    for index in range(40):
        kept(name=str(index))
    kept(refuse, "24")
    assert len(cache._MEMORY) == 16 and next(iter(cache._MEMORY)) == "25"


def test_large_matrices_are_worked_out_each_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_LARGEST", 63)
    assert kept() is not kept() and not files(home) and not cache._MEMORY


def test_where_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "dfopt" / "thermal"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache.directory() == tmp_path / "home" / ".cache" / "dfopt" / "thermal"
    monkeypatch.setenv("DFOPT_CACHE", "off")
    assert cache.directory() is None
    kept()
    assert not (tmp_path / "home").exists()


def replaced(part: Any, **changes: Any) -> Any:
    return part.model_copy(update=changes)


def test_digest_tells_everything_that_changes_the_matrix_apart() -> None:
    body = stack(PACKAGES["hotspot"])
    logic, *others = body.slabs

    def with_logic(**changes: Any) -> Body:
        return replace(body, slabs=(replace(logic, **changes), *others))

    assert isinstance(body.package, SinkPackage)
    sink = body.package.sink
    changed = partial(replaced, body.package)
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
        digest(replace(body, package=changed(r_convec_k_per_w=0.3)), 4, 4, tiles),
        digest(replace(body, package=changed(sink=replaced(sink, side=0.07))), 4, 4, tiles),
        digest(replace(body, slabs=(*others, logic)), 4, 4, tiles),
    ]
    assert len(set(keys)) == len(keys)
    # what it does not depend on: names, ambient, heat capacities
    slow = changed(c_convec_j_per_k=1.0, sink=replaced(sink, heat_capacity=1e6))
    slabs = (replace(logic, name="top", heat_capacity=1e6), *others)
    same = replace(body, ambient_k=300.0, slabs=slabs, package=slow)
    renamed = [("top" if name == "logic" else name, rect) for name, rect in tiles]
    assert digest(same, 4, 4, renamed) == keys[0]


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "from dfopt.technology.thermal.responses import *; from dfopt.technology.thermal.types import *\n"
        "from dfopt.documents.stack_parts import HtcPackage, Tile\n"
        "b = Body(0.01, 0.01, (Slab('die', 1e-4, 120.0, 1e6),), HtcPackage(mode='htc', htc_w_per_m2k=1e4), 300.0)\n"
        "print(digest(b, 8, 8, [('die', Tile(name='a', kind='sram', x=0.0, y=0.0, width=0.01, height=0.01))]))"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        found.add(run.stdout)
    assert len(found) == 1


def test_no_tiles() -> None:
    body = stack(cooled(2e4))
    assert responses(body, 4, 4, []).shape == (0, len(body.slabs), 4, 4)


def test_more_tiles_than_fit_one_solve() -> None:
    body = stack(cooled(2e4))
    tiles = [("logic", rect) for rect in quarters(n=10)]
    all_at_once = responses(body, 10, 10, tiles)
    some = responses(body, 10, 10, [tiles[i] for i in (3, 70, 99)])
    np.testing.assert_allclose(all_at_once[[3, 70, 99]], some, rtol=1e-9)
