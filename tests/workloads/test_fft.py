"""FFT: FLOP and bytes against closed forms, DFModel's kernels, and wrong parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workload_checks import refused, solved

from dfopt.documents.graph import Kernel
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop
from dfopt.workloads import WORKLOADS, load_graph
from dfopt.workloads.fft import FftParameters

build = WORKLOADS["fft"]

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dfmodel"


def named(**parameters: Any) -> dict[str, Kernel]:
    return {kernel.name: kernel for kernel in build(**parameters).kernels}


@given(power=st.integers(2, 46))
def test_flop_of_butterflies(power: int) -> None:
    kernels = named(length=2**power)
    assert flop(kernels["Column_FFT"]) + flop(kernels["Row_FFT"]) == 5 * 2**power * power
    assert flop(kernels["Twiddle"]) == 6 * 2**power


@given(stages=st.integers(1, 6), log=st.integers(1, 5))
def test_flop_of_matrix_products(stages: int, log: int) -> None:
    length, radix = 2 ** (2 * log * stages), 2**log
    kernels = named(length=length, radix=radix)
    # A complex product of an r x r matrix with a vector is r^2 multiply-adds of 8 real FLOP, so 8 r for every point.
    wanted = 8 * radix * length * 2 * stages
    assert flop(kernels["Column_FFT"]) + flop(kernels["Row_FFT"]) == wanted


@given(power=st.integers(2, 46))
def test_both_ways_transform_every_point_once_along_each_side(power: int) -> None:
    rows, columns = FftParameters(length=2**power).sides
    assert rows * columns == 2**power
    assert rows in (columns, 2 * columns)
    kernels = named(length=2**power)
    assert (kernels["Column_FFT"].m, kernels["Column_FFT"].n) == (rows, columns)
    assert (kernels["Row_FFT"].m, kernels["Row_FFT"].n) == (columns, rows)


def test_the_six_steps_are_a_fourier_transform() -> None:
    """Columns, twiddle factors, rows, as the kernels have them, give the transform in transposed order."""
    rows, columns = FftParameters(length=2**7).sides
    points = np.random.default_rng(1).normal(size=rows * columns) * (1 + 2j)
    by_columns = np.fft.fft(points.reshape(rows, columns), axis=0)
    twiddled = by_columns * np.exp(-2j * np.pi * np.outer(np.arange(rows), np.arange(columns)) / (rows * columns))
    assert np.fft.fft(twiddled, axis=1).T.ravel() == pytest.approx(np.fft.fft(points))


@pytest.mark.parametrize(("transposes", "exchanges", "moved"), [(1, (0, 1), 4), (2, (0, 2), 4), (3, (1, 2), 6)])
@pytest.mark.parametrize("radix", [None, 4])
def test_exchanges_and_dram(transposes: int, exchanges: tuple[int, int], moved: int, radix: int | None) -> None:
    graph = build(length=2**20, transposes=transposes, word_bytes=16, radix=radix)
    columns, twiddle, rows = graph.kernels
    assert (len(columns.communications), len(rows.communications)) == exchanges
    assert sum(exchanges) == transposes
    whole = 16 * 2**20
    for one in (*columns.communications, *rows.communications):
        assert (one.kind, one.bytes, one.over) == ("all_to_all", whole, "tp")
    # input and result once each, and what arrives in front of a transform twice
    assert columns.dram_bytes + rows.dram_bytes == moved * whole
    assert twiddle.dram_bytes == 0 and not twiddle.communications
    assert [graph.bytes_of(tensor) for tensor in graph.tensors] == [whole, whole]
    assert all(kernel.distributed for kernel in graph.kernels)


# --- DFModel's encoding -------------------------------------------------------------------------------------


def test_kernels_of_dfmodel() -> None:
    case = json.loads((GOLDEN / "fig16_fft_1t_sn30_2dtorus_ddr_pcie.json").read_text())["graph"]
    graph = load_graph("fft-1t-dfmodel")
    assert sum(int(flop(kernel)) for kernel in graph.kernels) == case["flop_per_evaluation"] == 2251799813685248
    ours = [(k.name, k.m, k.k, k.n, graph.output_bytes(k.name)) for k in graph.kernels]
    assert ours == [(k["name"], k["M"], k["K"], k["N"], k["output_bytes"]) for k in case["kernels"]]
    volumes = [[c.bytes for c in k.communications] for k in graph.kernels]
    assert volumes == [[], [case["kernels"][1]["communication_bytes"]]]
    assert [graph.bytes_of(t) for t in graph.tensors] == [t["bytes"] for t in case["tensors"]]


def test_a_length_that_is_no_square_is_cut_to_one_as_in_dfmodel() -> None:
    # FFT/Compare_w_existing/FP32/1024 of github.com/fengqian-ayce/DFModel at 04f93d5, radix 2
    graph = build(length=1073740000000, radix=2, encoding="dfmodel", word_bytes=4)
    assert [(k.m, k.k, k.n) for k in graph.kernels] == [(1036214, 159, 1036214)] * 2
    assert sum(int(flop(kernel)) for kernel in graph.kernels) == 682898292614256


# --- solving, and wrong parameters --------------------------------------------------------------------------


@pytest.mark.parametrize("radix", [None, 32])
def test_it_solves(radix: int | None) -> None:
    graph, system = build(length=2**30, radix=radix), load_system("sn10-8-ring")
    result = solved(graph, system, tp=8)
    assert result.score.collectives == {"all_to_all.forward": 1}


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        ({"length": 1000}, "$.length", "found 1000 points, expected a power of two"),
        ({"radix": 3}, "$.radix", "found radix 3 for transforms of 1024 points"),
        ({"radix": 8}, "$.radix", "found radix 8 for transforms of 1024 points"),
        ({"length": 2**21, "radix": 2048}, "$.radix", "found radix 2048 for transforms of 1024 points"),
        ({"encoding": "dfmodel"}, "$.radix", "DFModel's encoding needs a radix"),
        ({"encoding": "dfmodel", "radix": 2, "transposes": 2}, "$.transposes", "found 2 transposes"),
    ],
)
def test_bad_parameters_give_one_error(change: dict[str, Any], where: str, says: str) -> None:
    refused(build, {"length": 2**20} | change, where, says)
