"""What a mapping asks for and common runtimes refuse: heads, and blocks of weights with one scale, that chips cut.

Sources: vLLM checks that tensor parallelism divides the heads (``ModelConfig.verify_with_parallel_config``) and that a
chip's part of a weight is whole blocks (``validate_fp8_block_shape``); Megatron-LM that it divides the heads. K/V heads
that are fewer than chips are copied, as long as they divide the chips.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dfopt.documents.dtypes import FORMATS
from dfopt.judge import types
from dfopt.judge.case import Case, Placed
from dfopt.physics import ops


def refused(case: Case) -> Iterator[str]:
    """Sentences on what serving or training runtimes do not support in a mapping."""
    chips, names = case.plan.shards, defaultdict[str, list[str]](list)
    split = chips > 1 and case.assume.sharding_rules == "exact"
    placed = [kernel for kernel in case.kernels if split and kernel.forward]
    for number, kernel in enumerate(placed):
        for what in (_heads(kernel, chips), _blocks(case, placed[:number], kernel, chips)):
            names[what].append(kernel.kernel.name)
    for what in filter(None, names):
        yield f"{what} ({types.listed(names[what])}): common runtimes refuse that"


def _heads(placed: Placed, chips: int) -> str:
    heads = placed.kernel.outer
    divide = placed.sharding != "outer" or placed.kernel.experts is not None or not (heads % chips and chips % heads)
    return "" if divide else f"{heads} heads do not divide among {chips} chips"


def _blocks(case: Case, before: list[Placed], placed: Placed, chips: int) -> str:
    """Of which features a chip has a part of a block of weights; of experts side by side, of each."""
    kernel, dtype = placed.kernel, types.type_of_weight(case.graph, placed.kernel)
    by_heads = placed.sharding == "outer"
    if kernel.op != "gemm" or dtype is None or (by_heads and (kernel.experts or kernel.outer % chips)):
        return ""
    (rows, depth), (m, k) = FORMATS[dtype].block, (kernel.outer * kernel.m if by_heads else kernel.m, kernel.k)
    if kernel.experts is not None:  # a product of experts reads what others gave side by side, or gives it so
        reads = any(other.kernel.experts and other.kernel.m == k for other in before)
        m, k = (m, k // kernel.experts.chosen) if reads else (m // kernel.experts.chosen, k)
    sizes = {"outer": (m, rows), "m": (m, rows), "k": (k, depth)}
    size, block = sizes.get(ops.split_axis(placed.sharding), (chips, 1))
    cut = block > 1 and size % (block * chips)
    return f"{size} / {chips} = {size / chips:g} cuts the {block}-blocks of {dtype}" if cut else ""
