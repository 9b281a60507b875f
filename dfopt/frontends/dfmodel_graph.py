"""DFModel's ``dataflow_graph`` message as a Graph: one layer of a language model, or any drawn graph as it stands."""

from __future__ import annotations

from typing import Any

from dfopt.documents.graph import Graph, Kernel, Op, Phase, Tensor
from dfopt.frontends.dfmodel_case import Data


def graph_of(drawn: Data, llm: Data, word: int, name: str) -> Graph:
    """The graph of a case.

    Parameters
    ----------
    drawn : dict
        Kernels and tensors as the case has them.
    llm : dict
        ``num_layer``, ``global_batch_size``, ``seq_len`` and ``micro_batch_size``; the last may be missing.
    word : int
        Bytes of an element.
    name : str
        Of the graph.
    """
    kernels = tuple(kernel_of(k) for k in drawn["kernels"])
    names = {k["id"]: k["name"] for k in drawn["kernels"]}
    caches = {k["id"] for k in drawn["kernels"] if _is_cache(k)}
    tensors = tuple(
        Tensor(
            src=names[t["src"]],
            dst=names[t["dst"]],
            # a cache is read where it lies: its connections are drawn with zero_out, and cost nothing
            bytes=0.0 if t.get("zero_out") or t["src"] in caches else float(t["bytes"]),
        )
        for t in drawn["tensors"]
    )
    return Graph(
        name=name,
        description=f"imported from a DFModel case, template {drawn.get('template', 'unknown')}",
        repeat=int(llm["num_layer"]),
        word_bytes=word,
        microbatch=int(llm.get("micro_batch_size") or 1),
        batch=int(llm["global_batch_size"]),
        tokens_per_sample=int(llm["seq_len"]),
        kernels=kernels,
        tensors=tensors,
        carried=_carried(kernels, tensors),
    )


def kernel_of(data: Data, **changes: Any) -> Kernel:
    """One kernel of a case, with changes by the caller; what it communicates explicitly is left to the caller too."""
    variant, tiling = data["variant"], data.get("tiling", "N_TILING")
    op: Op = "elementwise"
    if variant == "gemm_input1_weight":
        op = "gemm"
    elif variant == "gemm_input1_input2":
        update = tiling == "K_TILING" or data.get("communication_type") == "ALL_REDUCE_PERIODIC"
        op = "weight_update" if update else "matmul"
    backward: Phase = "update" if op == "weight_update" else "backward"
    fields = {
        "name": data["name"],
        "op": op,
        "outer": int(data["outer"]),
        "m": int(data["M"]),
        "k": 1 if op == "elementwise" else int(data.get("K") or 1),
        "n": int(data["N"]),
        "stream": {"N_TILING": "n", "K_TILING": "k"}.get(tiling, "none"),
        "phase": "forward" if data.get("pass", "FWD") == "FWD" else backward,
        "flop_per_element": 2 if _is_cache(data) else 1,
        "dram_bytes_per_chip": float(data.get("explicit_dram_bytes_per_chip") or 0.0),
    }
    return Kernel(**{**fields, **changes})


def _is_cache(data: Data) -> bool:
    """Whether a kernel is a KV cache: elementwise, yet SYSTOLIC and so with two operations per element."""
    return bool(data["variant"].startswith("elementwise") and data["type"] == "SYSTOLIC")


def _carried(kernels: tuple[Kernel, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Tensors between layers: from the last kernel of each pass to its first, both of one size."""
    sinks = {t.dst for t in tensors}
    found = []
    for phase, direction in (("forward", "forward"), ("backward", "backward")):
        mine = [k for k in kernels if k.phase == phase]
        inner = {k.name for k in mine}
        heads = [k for k in mine if k.name not in sinks]
        tails = [k for k in mine if not any(t.src == k.name and t.dst in inner for t in tensors)]
        pairs = [(a, b) for b in heads for a in tails if a.outer * a.m * a.n == b.outer * b.m * b.n and a is not b]
        if pairs:
            found.append(Tensor(src=pairs[0][0].name, dst=pairs[0][1].name, direction=direction))
    return tuple(found)
