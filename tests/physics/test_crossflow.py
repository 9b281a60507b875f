"""The predictor of DeepFlow's program in ``benchmarks/reference/crossflow``.

Its rows in ``tests/golden/deepflow/crossflow2021_*.csv`` are some of what the program (github.com/nanocad-lab/DeepFlow,
commit 566c192 of 2021-09-11, Apache-2.0) printed for one chip: every 36th product of matrices, every 12th language
model.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path

import benchmark_path  # noqa: F401
import numpy as np
import pytest
from by_path import module_at
from crossflow.chip import Chip, Kind, chip_of
from crossflow.gemm import products
from crossflow.language_model import Model, Parts, Ring, all_reduce, step_time
from crossflow.schedule import backward_graph, run
from crossflow.tilings import TILES, NoTiles, drawn, squares
from crossflow.traffic import moved, traffic

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "benchmarks" / "reference"
GOLDEN = ROOT / "tests" / "golden" / "deepflow"
WHOLE = os.environ.get("DEEPFLOW_REFERENCE")

V100 = json.loads((GOLDEN / "age_derived_parameters.json").read_text(encoding="utf-8"))["base_inputs"]["V100"]


@pytest.mark.skipif(WHOLE is None, reason="DEEPFLOW_REFERENCE names no folder with all that the program printed")
def test_everything_that_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert WHOLE is not None
    assert module_at(REFERENCE / "deepflow.py").main([WHOLE]) == 0, capsys.readouterr().out


def test_the_tiles_are_the_same_each_time_and_fit() -> None:
    for room, holds_output in itertools.product((200.0, 4096.0, 1e6), (True, False)):
        tiles = drawn(room, holds_output)
        assert tiles.shape == (3, TILES) and len(set(map(tuple, tiles.T))) == TILES
        near = squares(room)
        x, y, z = np.array([tile for tile in tiles.T if tuple(tile) not in near]).T
        assert np.all(x * y + y * z + x * z * holds_output <= room)
        drawn.cache_clear()
        assert np.array_equal(drawn(room, holds_output), tiles)


@pytest.mark.parametrize("room", [0.0, 7.0, 9.0])
def test_a_room_with_too_few_tiles_is_refused(room: float) -> None:
    with pytest.raises(NoTiles, match="expected"):
        drawn(room, True)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_moves_is_what_walking_over_the_tiles_fetches(level: int) -> None:
    """Each tile of the product needs its two inputs: one is kept along one side, the other comes again each time."""
    for problem, tile in (((8, 4, 16), (2, 2, 4)), ((8, 8, 8), (8, 8, 8)), ((7, 5, 3), (2, 4, 2))):
        left = right = output = 0
        starts = (range(0, side, part) for side, part in zip(problem, tile, strict=True))
        for at in itertools.product(*starts):
            x, y, z = (min(part, side - a) for part, side, a in zip(tile, problem, at, strict=True))
            left, right, output = left + x * y, right + y * z, output + x * z
        expected = left + right + (output if level == 0 else problem[0] * problem[2])
        found = moved(np.array(problem, dtype=float), np.array(tile, dtype=float), level)
        assert found.elements == expected
        assert found.pieces == math.prod(-(-side // part) for side, part in zip(problem, tile, strict=True))


def test_a_tile_cut_to_its_problem_gives_its_room_to_another_side() -> None:
    problem = np.array([4.0, 64.0, 64.0])
    found = moved(problem, np.array([16.0, 8.0, 8.0]), 0)
    # 320 elements of room, 32 of them for the face of the first two sides: 288 / 12 for the third
    assert found.sides.tolist() == [4, 8, 24]


def test_the_best_tiles_of_registers_are_those_of_all() -> None:
    problem, room = (96.0, 4096.0, 640.0), (600.0, 5000.0, 400_000.0)
    into_registers, from_l2, per_l2 = traffic((problem,), room)
    menus = [drawn(elements, holds).T for elements, holds in zip(room, (True, True, False), strict=True)]
    expected = []
    for outer, inner in itertools.product(menus[2], menus[1]):
        l2 = moved(np.array(problem), outer, 2)
        l1 = moved(l2.sides, inner, 1)
        least = min(float(moved(l1.sides, tile, 0).elements) for tile in menus[0])
        expected.append((least * l1.pieces * l2.pieces, l1.elements * l2.pieces, l2.elements))
    assert np.array_equal(np.stack([into_registers[0], from_l2[0], per_l2[0]], axis=1), np.array(expected, dtype=float))


def test_more_bandwidth_never_makes_a_product_slower() -> None:
    chip = chip_of(V100, "V100")
    slow = products(chip, [(512, 512, 512), (64, 4096, 64)], "ost")
    for level in range(4):
        rates = list(chip.rates)
        rates[level] *= 4
        fast = products(Chip(chip.rate, tuple(rates), chip.room, chip.kind), [(512, 512, 512), (64, 4096, 64)], "ost")
        assert all(less <= more for less, more in zip(fast, slow, strict=True))


def test_without_cores_or_links_nothing_is_ever_done() -> None:
    chip = chip_of(V100, "V100")
    dead = Chip(0.0, chip.rates, chip.room, Kind.of(V100))
    model = Model(512, 5, 256, 1000, 1)
    assert step_time(dead, model) == math.inf
    assert all_reduce(chip, 1000, Ring(4)) == math.inf and all_reduce(chip, 1000, Ring(1)) == 0


def test_gradients_overlap_with_kernels_and_with_each_other() -> None:
    """By hand: one step, one layer. The softmax takes 1 s, the cell 2 s, the look-up 3 s; gradients 10, 10 and 10 s."""
    parts = Parts(0, 0, 0, cell_back=2, softmax_back=1, embedding_back=3, cell_gradients=10, softmax_gradients=10,
                  embedding_gradients=10)  # fmt: skip
    # kernels end at 1, 3 and 6 s; the edge behind each of the first two frees the link at once, so all gradients
    # begin when they may (one at a time, the last would end at 31 s)
    assert run(backward_graph(1, 1), parts) == 16
