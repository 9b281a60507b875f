"""DLRM, HPL, FFT, rail-only and first-generation cases: the authors' logs, and their rules worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from dfmodel_cases import GOLDEN, golden, solve
from hypothesis import given, settings
from hypothesis import strategies as st

import dfopt as df
from dfopt.errors import DocumentError
from dfopt.frontends.dfmodel import DFModelCase, convert, load_case


def solved(data: dict[str, Any]) -> tuple[DFModelCase, df.Result]:
    case = convert(data, str(data["name"]), GOLDEN)
    return case, solve(case)


# -- the program's rules by hand -----------------------------------------------------------------
WIRING = st.sampled_from(["r", "sw", "fc"])
LINK = st.sampled_from([25.0, 50.0, 450.0])


def _case(
    workload: str, axes: list[tuple[str, int, float]], block: dict[str, Any], graph: dict[str, Any], overlap: bool
) -> dict[str, Any]:
    network: dict[str, Any] = {}
    for name, (_, size, link) in zip("xyz", axes, strict=False):
        network |= {name: size, f"link_bw_{name}": link}
    chips = math.prod(size for _, size, _ in axes)
    return {
        "name": workload,
        "setup": {
            "system": {
                "num_chip": chips,
                "accelerator": {"core": 100, "systolic_width": 16, "systolic_height": 4, "freq": 1.5, "sram_cap": 1e8},
                "memory": {"dram_bw": 300.0, "dram_cap": 1e12},
                "_".join(kind for kind, _, _ in axes): network,
            },
            "execution": {
                workload: block,
                "execution_style": "KERNEL_BY_KERNEL",
                "perfect_overlap": overlap,
                "compute_util": 0.9,
                "word": 2,
            },
        },
        "graph": graph,
    }


GFLOPS = 2 * 16 * 4 * 100 * 1.5
DRAM = 300.0


def _total(parts: list[tuple[float, float, float]], overlap: bool) -> float:
    return sum(max(part) if overlap else sum(part) for part in parts)


def _exchange(axes: list[tuple[str, int, float]], pair: float) -> float:
    """Nanoseconds of an all-to-all: messages over a cut, by links and bandwidth, worst axis."""
    chips = math.prod(size for _, size, _ in axes)
    torus = len(axes) > 1 and all(kind == "r" for kind, _, _ in axes)
    spent, below = [0.0], 1
    for kind, size, link in axes:
        below *= size
        count = (chips if torus else below) ** 2 / 4
        links = {"r": 2, "sw": size, "fc": size**2 / 4}[kind]
        if torus:
            links = size if len(axes) == 2 else chips / size
        if size > 1:
            spent.append(pair * count / (links * link))
    return max(spent)


@settings(deadline=None, max_examples=12)
@given(st.lists(st.tuples(WIRING, st.integers(2, 6), LINK), min_size=2, max_size=3), st.integers(3, 9), st.booleans())
def test_hpl_by_hand(axes: list[tuple[str, int, float]], steps: int, overlap: bool) -> None:
    panel, first = 32, steps * 32
    kernels = []
    for i in range(steps):
        side = first - i * panel
        kernels.append(
            {"name": f"s{i}", "id": i + 1, "type": "SYSTOLIC", "outer": 1, "M": side, "K": side, "N": panel}
            | {"variant": "gemm_input1_input2", "tiling": "NO_TILING", "pass": "FWD"}
            | {"communication_type": "BROADCAST", "communication_type_2": "POINT_TO_POINT"}
        )
    tensors = [{"id": i, "src": i, "dst": i + 1, "bytes": kernels[i - 1]["M"] * panel * 2} for i in range(1, steps)]
    flop = sum(2 * k["M"] * k["K"] * k["N"] for k in kernels)
    graph = {"kernels": kernels, "tensors": tensors, "flop_per_evaluation": flop}
    case, result = solved(_case("hpl", axes, {"n": first, "b": panel}, graph, overlap))

    rows = axes[0][1] * (axes[1][1] if len(axes) == 3 else 1)
    columns = axes[-1][1]
    parts = []
    for i, kernel in enumerate(kernels):
        compute = 2 * -(-kernel["M"] // rows) * -(-kernel["K"] // columns) * panel / (0.9 * GFLOPS)
        moved = 0.0
        for end in ([i] if i < steps - 1 else []) + ([i - 1] if i else []):
            moved += -(-kernels[end]["M"] // rows) * panel * 2
        size = kernel["M"] * panel * 2
        parts.append((compute, moved / DRAM, max(size / columns / axes[0][2], size / rows / axes[1][2])))
    expected = _total(parts, overlap)
    assert result.step_time_s * 1e9 == pytest.approx(expected, rel=1e-9)
    assert result.utilization / case.padding == pytest.approx(flop / (expected * rows * columns * GFLOPS), rel=1e-9)


@settings(deadline=None, max_examples=12)
@given(
    st.lists(st.tuples(WIRING, st.integers(2, 6), LINK), min_size=1, max_size=3), st.integers(50, 300), st.booleans()
)
def test_fft_by_hand(axes: list[tuple[str, int, float]], side: int, overlap: bool) -> None:
    kernels = []
    for i in (1, 2):
        kernel = {"name": f"s{i}", "id": i, "type": "SYSTOLIC", "outer": 1, "M": side, "K": 32, "N": side}
        kernels.append(kernel | {"variant": "gemm_input1_weight", "tiling": "NO_TILING", "pass": "FWD"})
    kernels[1] |= {"communication_type": "ALL_TO_ALL", "communication_bytes": side * side * 2}
    graph = {"kernels": kernels, "tensors": [{"id": 1, "src": 1, "dst": 2, "bytes": side * side * 2}]}
    graph["flop_per_evaluation"] = 4 * side * side * 32
    _, result = solved(_case("fft", axes, {"length": side * side, "num_copy": 1}, graph, overlap))

    chips = math.prod(size for _, size, _ in axes)
    columns = -(-side // chips)
    compute, memory = 2 * side * columns * 32 / (0.9 * GFLOPS), side * columns * 2 / DRAM
    sent = _exchange(axes, side * side * 2 / chips**2)
    expected = _total([(compute, memory, 0.0), (compute, memory, sent)], overlap)
    assert result.step_time_s * 1e9 == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=12)
@given(st.lists(st.tuples(WIRING, st.integers(2, 6), LINK), min_size=1, max_size=3), st.integers(1, 50), st.booleans())
def test_dlrm_by_hand(axes: list[tuple[str, int, float]], evaluations: int, overlap: bool) -> None:
    wide, batch, lookups, sent = 64, 16, 5000.0, 700.0
    layer = {"type": "SYSTOLIC", "outer": 1, "variant": "gemm_input1_weight", "tiling": "NO_TILING"}
    mlp = {"M": wide, "K": wide, "N": batch}
    kernels = [
        {"name": "up", "id": 1, "pass": "FWD", **layer, **mlp}
        | {"communication_type": "ALL_TO_ALL", "communication_bytes": sent, "explicit_dram_bytes_per_chip": lookups},
        {"name": "back", "id": 2, "pass": "BWD", **layer, **mlp},
        {"name": "update", "id": 3, "pass": "BWD", **layer, "M": wide, "K": batch, "N": wide}
        | {"variant": "gemm_input1_input2", "communication_type": "ALL_REDUCE_PERIODIC"},
    ]
    size = wide * batch * 2
    tensors = [{"id": i, "src": a, "dst": b, "bytes": size} for i, (a, b) in enumerate([(1, 2), (2, 3), (1, 3)])]
    graph = {"kernels": kernels, "tensors": tensors, "flop_per_evaluation": 6 * wide * wide * batch}
    chips = math.prod(size for _, size, _ in axes)
    block = {"num_table": 3, "emb_dim": 8, "row": 100, "global_batch_size": chips * evaluations}
    _, result = solved(_case("dlrm", axes, block, graph, overlap))

    compute = 2 * wide * wide * batch / (0.9 * GFLOPS)
    parts = [
        (compute, (2 * size + lookups) / DRAM, _exchange(axes, sent)),
        (compute, 2 * size / DRAM, 0.0),
        (compute, 2 * size / DRAM, 2 * wide * wide * 2 / evaluations),  # two passes of bytes taken for nanoseconds
    ]
    assert result.score.layer_time_s * 1e9 == pytest.approx(_total(parts, overlap), rel=1e-9)
    assert result.step_time_s * 1e9 == pytest.approx(_total(parts, overlap) * evaluations, rel=1e-9)


# -- rail-only and the first generation ----------------------------------------------------------
@pytest.mark.parametrize(("domain", "dims"), [(2, 5), (4, 5), (8, 4), (64, 4), (2048, 3)])
def test_fast_domains_become_dims(domain: int, dims: int) -> None:
    data = golden("fig7_railonly_16384_hbd8")
    data["setup"]["system"]["HBD"] = domain
    case = convert(data, "rail")
    assert case.system.chips == 16384
    assert len(case.system.network) == dims
    for name in (*case.pins.tp_dims, *case.pins.dp_dims):
        inside = name.endswith("_domain")
        assert case.system.dim(name).link_bandwidth == (900e9 if inside else 50e9)
        assert case.system.dim(name).size <= domain or not inside


def test_a_fast_domain_that_cuts_a_degree_unevenly_is_refused() -> None:
    data = golden("fig7_railonly_16384_hbd8")
    data["setup"]["system"]["HBD"] = 3
    with pytest.raises(DocumentError, match="HBD of 3 chips, which does not divide the 8 chips of axis x"):
        convert(data, "rail")


def test_the_first_generation_takes_the_largest_micro_batch_that_fits() -> None:
    data = golden("cerebras_gpt13b_seq2048_wse2")
    case = convert(data, "wafer")
    weights = sum(k.get("weight_bytes", 0) for k in data["graph"]["kernels"])
    extra = sum(k.dram_bytes_per_chip for k in case.graph.kernels)
    assert weights / extra == pytest.approx(50)  # of the log: 2686547.66 ns less 398458880 B / 153 GB/s
    crossing = 2 * 19 * 5120 * 2048 * 2  # Q, K, V and the dropped-out scores of 40 heads, on both sides
    capacity = data["setup"]["system"]["accelerator"]["dram_cap"] / 40
    assert weights + 50 * crossing <= capacity < weights + 51 * crossing
    half = data["outputs"]["per_partition"]["critical_ns"][0]
    assert (crossing / 2 + extra / 2) / 153.0 == pytest.approx(half, rel=1e-9)


def test_weights_are_read_in_the_first_generation_only() -> None:
    data = golden("fig7_railonly_16384_hbd8")
    assert not convert(data, "a").assumptions.weights_from_dram
    data["setup"]["system"]["topo"] = "SWITCH"
    assert convert(data, "a").assumptions.weights_from_dram


# -- what cannot be imported ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "path", "missing"),
    [
        ("fig6_dlrm_a_128_a100", ("setup", "execution", "dlrm", "num_table"), "num_table"),
        ("fig6_dlrm_a_128_a100", ("graph", "kernels", 4, "communication_bytes"), "communication_bytes"),
        ("fig6_fft_1024_a100_fp32", ("setup", "execution", "fft", "length"), "length"),
        ("fig6_fft_1024_a100_fp32", ("setup", "system", "sw_sw", "link_bw_y"), "link_bw_y"),
        ("fig6_hpl_eos_7396_h100", ("setup", "execution", "hpl", "n"), "n"),
        ("fig6_hpl_eos_7396_h100", ("setup", "execution", "word"), "word"),
    ],
)
def test_a_missing_field_is_named(tmp_path: Path, name: str, path: tuple[Any, ...], missing: str) -> None:
    data = golden(name)
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    file = tmp_path / "case.json"
    file.write_text(json.dumps(data))
    with pytest.raises(DocumentError, match=f"{missing}: (missing|found nothing)"):
        load_case(file)


YET = "not supported yet: .*"
LAYER = "table6_dfmodel_8x1"


def _one_axis(system: dict[str, Any]) -> None:
    del system["sw_sw"]
    system["sw"] = {"x": 7396, "link_bw_x": 50.0}


@pytest.mark.parametrize(
    ("name", "path", "change", "feature"),
    [
        (LAYER, ("setup", "system"), {"HBD": 8}, f"{YET}HBD on axes other than TP, PP and DP"),
        (LAYER, ("setup", "system", "memory"), {"second_dram_bw": 50}, f"{YET}second DRAM"),
        (LAYER, ("setup", "system", "r"), {"par_x": "SP"}, f"{YET}SP"),
        (LAYER, ("setup", "system"), {"num_chip": 16}, f"{YET}num_chip is 16, but the network has 8 chips"),
        (LAYER, ("graph", "kernels", 0), {"communication_type": "BROADCAST"}, f"{YET}explicit BROADCAST"),
        (LAYER, ("setup", "execution"), {"optimization": "CN"}, f"{YET}optimization CN"),
        ("fig6_hpl_eos_7396_h100", ("setup", "system"), _one_axis, "HPL on 1 network axes"),
        ("fig6_fft_1024_a100_fp32", ("setup", "execution", "fft"), {"num_copy": 2}, "2 copies"),
        ("fig6_fft_1024_a100_fp32", ("graph", "kernels", 0), {"communication_type": "BROADCAST"}, "BROADCAST"),
        ("fig6_dlrm_a_128_a100", ("graph", "kernels", 0), {"communication_type": "ALL_REDUCE"}, "ALL_REDUCE"),
        ("fig6_dlrm_a_128_a100", (), {"graph": None}, "graph.kernels: missing"),
        ("cerebras_gpt13b_seq2048_wse2", ("setup", "execution", "training"), {"num_config": 4}, "2 partitions"),
        ("cerebras_gpt13b_seq2048_wse2", ("setup", "system", "accelerator"), {"dram_cap": 1e9}, "exceed DRAM"),
    ],
)
def test_what_is_not_supported_is_named(name: str, path: tuple[Any, ...], change: Any, feature: str) -> None:
    data: Any = golden(name)
    place = data
    for key in path:
        place = place[key]
    change(place) if callable(change) else place.update(change)
    with pytest.raises(DocumentError, match=feature):
        convert(data, "a")
