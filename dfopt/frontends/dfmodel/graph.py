"""DFModel's ``dataflow_graph`` message as a Graph.

What the authors' program does with each workload (`kernel_level.py` and `intra_chip.py`, and the logs of these runs),
and how the same is said in our documents:

* **LLM**: one layer, or any drawn graph, as it stands. A KV cache is read where it lies: its connections cost nothing.
* **DLRM**: the MLPs are copied over all chips, one evaluation is the batch of one chip. The kernel with the table
  lookups reads ``memory_size`` bytes of DRAM and exchanges ``communication_size`` bytes *per pair of chips*: an
  all-to-all over the copies, to which each brings that many bytes for every chip. The tables are spread over all
  chips.
* **HPL**: a step multiplies the trailing matrix (M x K) with a panel of N columns on a grid of X x Y chips. A chip
  has ceil(M/X) rows of the product and ceil(K/Y) of the contraction, so its output is not divided by Y. The panel
  goes along the first side as a message and along the second as a broadcast, both at once.
* **FFT**: two products whose columns are spread over all chips, ceil(N/chips) each, and a transpose.

Extents of HPL and FFT are rounded up to whole rows here, so the graph may count more FLOP than the authors, who round
up shards only (``DFModelCase.padding``). SRAM does not bind in DLRM, HPL and FFT: their NO_TILING becomes streaming by
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.documents.kernel import Op
from dfopt.documents.on_axes import Group
from dfopt.documents.passes import Pass
from dfopt.frontends.dfmodel.case import Data, Unsupported
from dfopt.frontends.dfmodel.setup_system import SetupAxis

_SENDS = {"dlrm": ("ALL_TO_ALL", "ALL_REDUCE_PERIODIC"), "hpl": ("BROADCAST", "POINT_TO_POINT"), "fft": ("ALL_TO_ALL",)}
# What each workload gives: its kernels, the bytes of a drawn tensor, and more fields of the graph. What lies in DRAM
# for the whole run is held against one kernel.
Built = tuple[list[Kernel], Callable[[Data], float], Data]


def graph_of(block: str, drawn: Data, execution: Data, axes: tuple[SetupAxis, ...], name: str) -> Graph:
    """Graph of a case.

    Parameters
    ----------
    block
        Field of ``execution`` with the workload: ``llm``, ``dlrm``, ``hpl``, ``fft``, or ``training``, the language
        model of the first generation.
    drawn, execution
        The ``dataflow_graph`` and the ``execution`` message.
    axes
        Network axes; those of ``hpl`` are the two sides of the grid.
    name
        Name of the graph.

    Raises
    ------
    Unsupported
        If a kernel communicates in a way that this kind of workload does not have.
    """
    for data in drawn["kernels"]:
        for kind in (data.get("communication_type"), data.get("communication_type_2")):
            if kind is not None and kind not in _SENDS.get(block, ("ALL_REDUCE_PERIODIC",)):
                raise Unsupported(f"explicit {kind} on kernel {data.get('name')}")
    build = {"dlrm": _dlrm, "hpl": _hpl, "fft": _fft}.get(block, _layer)
    word = int(execution.get("word", 2))  # the first generation has none: 16-bit numbers
    kernels, size, fields = build(drawn, execution[block], word, axes)
    names = {data["id"]: data["name"] for data in drawn["kernels"]}
    tensors = tuple(Tensor(src=names[t["src"]], dst=names[t["dst"]], bytes=size(t)) for t in drawn["tensors"])
    return Graph(
        name=name,
        description=f"imported from a DFModel case, template {drawn.get('template', 'unknown')}",
        word_bytes=word,
        kernels=tuple(kernels),
        tensors=tensors,
        carried=_carried(kernels, tensors) if "num_layer" in execution[block] else (),
        **fields,
    )


def kernel_of(data: Data, **changes: Any) -> Kernel:
    """One kernel of a case, with fields replaced; explicit communication is left to the caller."""
    variant, tiling = data["variant"], data.get("tiling", "N_TILING")
    op: Op = "elementwise"
    if variant == "gemm_input1_weight":
        op = "gemm"
    elif variant == "gemm_input1_input2":
        update = tiling == "K_TILING" or data.get("communication_type") == "ALL_REDUCE_PERIODIC"
        op = "weight_update" if update else "matmul"
    backward: Pass = "update" if op == "weight_update" else "backward"
    fields = {
        "name": data["name"],
        "op": op,
        "outer": int(data["outer"]),
        "m": int(data["M"]),
        "k": 1 if op == "elementwise" else int(data.get("K") or 1),
        "n": int(data["N"]),
        "pass_": "forward" if data.get("pass", "FWD") == "FWD" else backward,
        "flop_per_element": 2 if _is_cache(data) else 1,
        "dram_bytes_per_chip": float(data.get("explicit_dram_bytes_per_chip") or 0.0),
    }
    return Kernel(**{**fields, **changes})


def _is_cache(data: Data) -> bool:
    """Whether a kernel is a KV cache: elementwise, yet SYSTOLIC and so with two operations per element."""
    return bool(data["variant"].startswith("elementwise") and data["type"] == "SYSTOLIC")


def _carried(kernels: list[Kernel], tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Tensors between layers: from the last kernel of each pass to its first, both of one size."""
    sinks = {t.dst for t in tensors}
    carried = []
    for pass_, direction in (("forward", "forward"), ("backward", "backward")):
        own = [k for k in kernels if k.pass_ == pass_]
        inner = {k.name for k in own}
        heads = [k for k in own if k.name not in sinks]
        tails = [k for k in own if not any(t.src == k.name and t.dst in inner for t in tensors)]
        pairs = [(a, b) for b in heads for a in tails if a.outer * a.m * a.n == b.outer * b.m * b.n and a is not b]
        if pairs:
            carried.append(Tensor(src=pairs[0][0].name, dst=pairs[0][1].name, direction=direction))
    return tuple(carried)


def _layer(drawn: Data, block: Data, word: int, axes: tuple[SetupAxis, ...]) -> Built:
    streams = {"N_TILING": "n", "K_TILING": "k"}
    kernels = [kernel_of(k, stream=streams.get(k.get("tiling", "N_TILING"), "none")) for k in drawn["kernels"]]
    caches = {k["id"] for k in drawn["kernels"] if _is_cache(k)}
    microbatch = int(block.get("micro_batch_size") or 1)  # left to their solver, which has none faster than 1
    fields: Data = {
        "repeat": int(block.get("num_layer", 1)),
        "microbatch": microbatch,
        "batch": int(block.get("global_batch_size", 1)),  # the first generation reports the time of one sample
    }
    if "seq_len" in block:
        fields["tokens"] = {"processed": microbatch * int(block["seq_len"])}
    return kernels, lambda t: 0.0 if t.get("zero_out") or t["src"] in caches else float(t["bytes"]), fields


def _exchange(data: Data, over: Group, copies: int = 1) -> tuple[Communication, ...]:
    """The all-to-all of a kernel, if it has one."""
    if data.get("communication_type") != "ALL_TO_ALL":
        return ()
    return (Communication(kind="all_to_all", bytes=float(data["communication_bytes"]) * copies, over=over),)


def _dlrm(drawn: Data, block: Data, word: int, axes: tuple[SetupAxis, ...]) -> Built:
    chips = math.prod(axis.size for axis in axes)
    kernels = [kernel_of(data, communications=_exchange(data, "dp", chips)) for data in drawn["kernels"]]
    lookups = next((i for i, kernel in enumerate(kernels) if kernel.communications), 0)
    rows = float(block["num_table"]) * block["row"]
    tables = {"resident_bytes": rows * block["emb_dim"] * word, "resident_optimizer_bytes": 4 * rows}
    kernels[lookups] = kernels[lookups].model_copy(update=tables)
    return kernels, lambda tensor: float(tensor["bytes"]), {"batch": int(block["global_batch_size"])}


def _hpl(drawn: Data, block: Data, word: int, axes: tuple[SetupAxis, ...]) -> Built:
    first, second = (axis.size for axis in axes)
    rows = {data["id"]: -(-int(data["M"]) // first) for data in drawn["kernels"]}
    size = {data["id"]: rows[data["id"]] * int(data["N"]) * word for data in drawn["kernels"]}
    moved = dict.fromkeys(rows, 0.0)  # output bytes of a chip, written by the producer and read by the consumer
    for tensor in drawn["tensors"]:
        for end in (tensor["src"], tensor["dst"]):
            moved[end] += size[tensor["src"]]
    kernels: list[Kernel] = []
    for data in drawn["kernels"]:
        panel = data.get("communication_bytes")
        # a panel that the setup leaves out is the whole product, as the program fills it in
        panel = float(int(data["M"]) * int(data["N"]) * word if panel is None else panel)
        kernels.append(
            kernel_of(
                data,
                m=rows[data["id"]] * first,
                k=-(-int(data["K"]) // second) * second,
                distributed=True,
                dram_bytes_per_chip=moved[data["id"]],
                resident_bytes=0.0 if kernels else float(block["n"]) ** 2 * word,
                communications=(
                    Communication(kind="point_to_point", bytes=panel, over="tp_first"),
                    Communication(kind="broadcast", bytes=panel, over="tp_rest"),
                ),
            )
        )
    # the tensors give the order alone: an even share of a tensor would divide it by both sides of the grid
    return kernels, lambda tensor: 0.0, {}


def _fft(drawn: Data, block: Data, word: int, axes: tuple[SetupAxis, ...]) -> Built:
    chips = math.prod(axis.size for axis in axes)
    kernels: list[Kernel] = []
    size = {}
    for data in drawn["kernels"]:
        columns = -(-int(data["N"]) // chips) * chips
        held = 0.0 if kernels else float(block["length"]) * word
        sent = _exchange(data, "tp")
        kernels.append(kernel_of(data, n=columns, distributed=True, resident_bytes=held, communications=sent))
        size[data["id"]] = float(int(data["M"]) * columns * word)
    return kernels, lambda tensor: size[tensor["src"]], {}
