"""Measured kernels against what no chip could do faster: products of experts, attention, latent or not, dense products.

    python benchmarks/reference/kernels.py CSV... [--plain MODEL] [--every N] [--rows]

A table is known by its columns: ``moe_dtype`` (experts), ``mla_dtype`` (absorbed latent attention, rows of phase
``generation``), ``num_key_value_heads`` (causal attention) or ``gemm_dtype``; they are those of the tables of
aiconfigurator-core. Every row is a graph of its own on one chip that fuses freely, at its peak, without overheads and
with all the SRAM it wants. A row above what was measured is a failure (exit status 1). Types, phases, systems and
distributions that are not known are counted and left out: the bytes of 4-bit types are not those that kernels move.
The table of attention does not say how keys and values are held: at least in 8 bits.

Experts are priced under the row's own distribution, with the fewest experts that it may have touched:

* ``balanced``: tokens are dealt out in turn, so as many as there can be;
* ``power_law_A``: whole tokens are dealt out in proportion to loads of that law. Which experts get the tokens that
  rounding leaves over has changed between versions (the busiest, or the idlest), and the rows do not say. So: experts
  that get a token before that, or as many as independent tokens touch if those are fewer.

Of experts spread over chips the row is the busiest one, which has at least its part of the tokens and experts. The
router is not part of a row. ``--plain`` names models whose experts have no gate, ``--every N`` takes each N-th row.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.dtypes import FORMATS, Dtype, Dtypes, Peaks
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Input, Kernel, Output, SequenceState, Tensor
from dfopt.documents.phase import Segment
from dfopt.documents.routing import Routing
from dfopt.documents.system import System

CHIPS = {
    "a100_sxm": "a100-8", "h100_sxm": "h100-8", "h200_sxm": "h200-8", "b200_sxm": "b200-8", "b300_sxm": "b300-8",
    "gb200": "gb200-nvl72",
}  # fmt: skip
TYPES: dict[str, Dtype] = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_block": "fp8"}  # least: no scales
OUT = 2  # bytes of an element of what goes on, but no more than of what is multiplied
Row = dict[str, str]


class Unknown(Exception):
    """A row of a type, a phase, a system or a distribution that is not priced here."""


def moe(row: Row, plain: Sequence[str] = ()) -> Graph:
    """Experts of a row: gate and up side by side, or up only, then down; every token once for each of its experts."""
    types, word = _types(row, row["moe_dtype"])
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    tokens, hidden, inter, chosen, count, tp, ep = (int(row[name]) for name in names)
    local, ffn = count // ep, inter // tp
    pairs = -(-tokens * chosen // ep)  # the busiest chip has at least its part, in whole tokens
    touched = min(max(1.0, _touched(row["distribution"], count, chosen, tokens) / ep), local)
    inside = 1 if row["model"] in plain else 2
    experts = Experts(count=local, chosen=1, touched=touched)
    rows = -(-pairs // min(chosen, local))  # tokens that bring so many pairs at least
    return Graph(
        name="experts",
        dtypes=types,
        kernels=(
            Kernel(name="Up", op="gemm", m=inside * ffn, k=hidden, n=pairs, experts=experts),
            Kernel(name="Act", op="elementwise", m=ffn, n=pairs),
            Kernel(name="Down", op="gemm", m=hidden, k=ffn, n=pairs, experts=experts),
        ),
        tensors=(Tensor(src="Up", dst="Act"), Tensor(src="Act", dst="Down")),
        inputs=(Input(dst="Up", bytes=float(rows * hidden * word)),),
        outputs=(Output(src="Down", bytes=float(min(rows * OUT, pairs * word) * hidden)),),
    )


@cache
def _touched(distribution: str, count: int, chosen: int, tokens: int) -> float:
    """The fewest experts that tokens of a row may have touched, over all chips."""
    law = re.fullmatch(r"(balanced|uniform)|power_law_([0-9.]+)", distribution)
    if law is None:
        raise Unknown(distribution)
    routing = Routing.model_validate(law[1] or f"power_law({law[2]})")
    if law[1]:
        return routing.touched(count, chosen, tokens)
    dealt = sum(round(share * tokens) > 0 for share in routing.shares(count, chosen, tokens))
    return min(routing.touched(count, chosen, tokens), max(dealt, chosen))


def mla(row: Row, plain: Sequence[str] = ()) -> Graph:
    """Absorbed latent attention: a latent and rotated features for each token, which all heads share."""
    if row["phase"] != "generation":
        raise Unknown(row["phase"])
    types, word = _types(row, row["kv_cache_dtype"])
    heads, batch, keys = int(row["num_heads"]), int(row["batch_size"]), int(row["isl"]) + int(row["step"]) - 1
    latent, rotated = 512, 64  # kv_lora_rank and qk_rope_head_dim of DeepSeek-V3's config.json
    each = {"outer": heads, "samples": batch, "n": 1, "stream": "none"}
    token = (latent + rotated) * word
    state = SequenceState(name="latent", sequences=batch, bytes_per_token=token, tokens=keys, reads=keys)
    return Graph(
        name="latent attention",
        dtypes=types,
        kernels=(
            Kernel(name="Scores", op="matmul", m=keys, k=latent + rotated, states=(state,), **each),
            Kernel(name="Softmax", op="elementwise", m=keys, normalizes=True, **each),
            Kernel(name="Context", op="matmul", m=latent, k=keys, **each),
        ),
        tensors=(Tensor(src="Scores", dst="Softmax"), Tensor(src="Softmax", dst="Context", operand=1)),
        inputs=(Input(dst="Scores", operand=1),),
    )


def attention(row: Row, plain: Sequence[str] = ()) -> Graph:
    """Causal attention of whole prompts, or of one new token of each sequence to those that are cached."""
    if row["phase"] not in ("context", "generation"):
        raise Unknown(row["phase"])
    types, word = _types(row, "bfloat16")
    batch, heads, groups, dim = (int(row[n]) for n in ("batch_size", "num_heads", "num_key_value_heads", "head_dim"))
    decodes, known = row["phase"] == "generation", int(row["isl"]) + int(row["step"])
    one = Segment(
        sequences=batch, new=1 if decodes else int(row["isl"]), cached=known - 2 if decodes else int(row["step"])
    )
    each: dict[str, Any] = {"op": "matmul", "outer": heads, "samples": batch, "n": one.new}
    each |= {"stream": "none"} if decodes else {"density": one.pairs() / (one.new * one.keys)}
    kept = {"sequences": batch, "heads": groups, "bytes_per_token": groups * dim, "tokens": one.keys, "reads": one.keys}
    keys, values = ((SequenceState(name=name, **kept),) if decodes else None for name in ("keys", "values"))
    read = float(batch * groups * one.keys * dim * word)
    return Graph(
        name="attention",
        dtypes=types,
        kernels=(
            Kernel(name="Scores", m=one.keys, k=dim, states=keys, **each),
            Kernel(name="Softmax", m=one.keys, normalizes=True, **each | {"op": "elementwise"}),
            Kernel(name="Context", m=dim, k=one.keys, states=values, masked=None if decodes else 1, **each),
        ),
        tensors=(Tensor(src="Scores", dst="Softmax"), Tensor(src="Softmax", dst="Context", operand=1)),
        inputs=(
            Input(dst="Scores", operand=1),
            *(Input(dst=name, operand=2, bytes=read) for name in ("Scores", "Context") if not decodes),
        ),
        outputs=(Output(src="Context"),),
    )


def gemm(row: Row, plain: Sequence[str] = ()) -> Graph:
    """A dense product of m tokens, k features in and n out."""
    types, _ = _types(row, row["gemm_dtype"])
    tokens, features, depth = int(row["m"]), int(row["n"]), int(row["k"])
    return Graph(
        name="product", dtypes=types, kernels=(Kernel(name="Product", op="gemm", m=features, k=depth, n=tokens),)
    )


# Of every table the column by which it is known, what draws a row, and what rows are told apart by in the report.
TABLES: dict[str, tuple[Callable[[Row, Sequence[str]], Graph], tuple[str, ...]]] = {
    "moe_dtype": (moe, ("moe_dtype", "distribution")),
    "mla_dtype": (mla, ("kv_cache_dtype",)),
    "num_key_value_heads": (attention, ("phase",)),
    "gemm_dtype": (gemm, ("gemm_dtype",)),
}


def _types(row: Row, dtype: str) -> tuple[Dtypes, int]:
    """All data in a type that the row's chip has a rate for, and its bytes."""
    if dtype not in TYPES or row["system"] not in CHIPS:
        raise Unknown(f"{row['system']} {dtype}")
    known = TYPES[dtype]
    if known == "fp8" and not isinstance(chip(row["system"]).chip.peak, Peaks):
        raise Unknown(f"{row['system']} {dtype}")
    return Dtypes(weights=known, activations=known), int(FORMATS[known].bytes)


@cache
def chip(system: str) -> System:
    """A chip of a system alone, with more SRAM than anyone needs."""
    whole = df.load_system(CHIPS[system])
    sram = whole.chip.sram.model_copy(update={"capacity": 1e15})
    return whole.model_copy(update={"network": (), "chip": whole.chip.model_copy(update={"sram": sram})})


def least_seconds(row: Row, plain: Sequence[str] = ()) -> float:
    """Seconds that no mapping of a row beats.

    Raises
    ------
    Unknown
        For types, phases and systems that are not priced here.
    """
    column = next(name for name in TABLES if name in row)
    graph = TABLES[column][0](row, plain)
    chosen = profile("default").with_(execution="dataflow", compute_utilization=1.0)
    return df.solve(graph, chip(row["system"]), assumptions=chosen, sensitivity=False).bound


def main() -> int:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+")
    parser.add_argument("--plain", action="append", default=[], metavar="MODEL", help="its experts have no gate")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="rows that are taken")
    parser.add_argument("--rows", action="store_true", help="print every row")
    asked = parser.parse_args()
    ratios: dict[tuple[str, ...], list[float]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    began = time.perf_counter()
    for path in asked.csv:
        with path.open() as lines:
            for row in islice(csv.DictReader(lines), 0, None, asked.every):
                try:
                    ratio = least_seconds(row, asked.plain) / (float(row["latency_ms"]) * 1e-3)
                except Unknown as what:
                    left_out[str(what)] += 1
                    continue
                column = next(name for name in TABLES if name in row)
                ratios[row["system"], TABLES[column][0].__name__, *(row[name] for name in TABLES[column][1])].append(
                    ratio
                )
                if asked.rows:
                    print(f"{ratio:.3f}", *row.values(), flush=True)
    print(f"{'least over measured':44} {'rows':>5} {'median':>7} {'most':>7} {'above':>6}")
    for names, each in sorted(ratios.items()):
        above = sum(ratio > 1.0 for ratio in each)
        print(f"{' '.join(names):44} {len(each):5} {median(each):7.3f} {max(each):7.3f} {above:6}")
    every = [ratio for each in ratios.values() for ratio in each]
    above = sum(ratio > 1.0 for ratio in every)
    print(f"left out: {dict(left_out)}; {time.perf_counter() - began:.0f} s")
    print(f"{len(every)} rows: {max(every, default=0.0):.3f} at most, {above} above what was measured")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
