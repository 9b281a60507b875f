"""Notes of what runtimes refuse: heads and blocks of weights that chips cut, each against a loop over chips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_cases import closed, gemm, judged, machine, ring

from dfopt.documents.dtypes import FORMATS, Dtypes
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Kernel
from dfopt.documents.plan import Plan


def notes(kernels: list[Kernel], schemes: list[str], chips: int, dtype: str = "fp8_128x128", **assumed: str) -> str:
    graph = closed(name="g", kernels=tuple(kernels), dtypes=Dtypes(weights=dtype))  # type: ignore[arg-type]
    plan = Plan(tp=chips, tp_dims=("x",)) if chips > 1 else Plan()
    places = {kernel.name: (scheme, 0) for kernel, scheme in zip(kernels, schemes, strict=True)}
    system = machine(*[ring("x", chips)] if chips > 1 else [], dram_bandwidth=1e9)
    return "; ".join(judged(graph, places, plan, system, **assumed).notes or ())


@given(
    st.integers(1, 40), st.integers(2, 9), st.sampled_from(["m", "k"]),
    st.sampled_from(["fp8_128x128", "int4_g32", "nvfp4", "fp8", "bf16"]),
)  # fmt: skip
def test_a_block_is_whole_or_it_is_said(sixteenths: int, chips: int, scheme: str, dtype: str) -> None:
    size = 16 * sixteenths
    rows, depth = FORMATS[dtype].block  # type: ignore[index]
    block = {"m": rows, "k": depth}[scheme]
    ends = [chip * size / chips for chip in range(1, chips)]  # where one chip's part ends and another's begins
    cut = block > 1 and any(end % block for end in ends)
    said = notes([gemm("up", size, size, 8)], [scheme], chips, dtype)
    assert (f"cuts the {block}-blocks of {dtype} (up)" in said) == cut
    assert bool(said) == cut


def test_experts_side_by_side_are_cut_one_by_one() -> None:
    """Qwen3-235B-A22B-FP8 on eight chips: eight experts of 1536 features of a token, of 128."""
    experts = Experts(count=128, chosen=8, touched=100.0)
    kernels = [gemm("Gate", 8 * 1536, 4096, 4, experts=experts), gemm("Down", 4096, 8 * 1536, 4, experts=experts)]
    said = notes(kernels, ["m", "k"], 8)
    assert said == "1536 / 8 = 192 cuts the 128-blocks of fp8_128x128 (Gate, Down): common runtimes refuse that"
    assert notes(kernels, ["m", "k"], 4) == notes(kernels, ["none", "none"], 1) == ""
    assert notes(kernels, ["m", "k"], 8, "bf16") == notes(kernels, ["k", "m"], 8) == ""


@pytest.mark.parametrize(("heads", "chips", "refused"), [(28, 8, True), (32, 8, False), (4, 8, False), (4, 6, True)])
def test_heads_divide_or_are_copied_or_it_is_said(heads: int, chips: int, refused: bool) -> None:
    kernels = [Kernel(name=name, op="matmul", outer=heads, m=8, k=8, n=8) for name in ("QK", "AV")]
    said = notes(kernels, ["outer"] * 2, chips)
    words = f"{heads} heads do not divide among {chips} chips (QK, AV): common runtimes refuse that"
    assert said == (words if refused else "")
    assert notes(kernels, ["outer"] * 2, chips, sharding_rules="dfmodel") == ""
