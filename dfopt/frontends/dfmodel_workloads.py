"""DFModel's workloads with collectives of their own: DLRM, HPL and FFT as Graphs.

What the authors' program does with each (`kernel_level.py` and `intra_chip.py`, and the logs of these runs), and
how the same is said in our documents:

* **DLRM**: the MLPs are copied over all chips, one evaluation is the batch of one chip. The kernel with the table
  lookups reads ``memory_size`` bytes of DRAM and exchanges ``communication_size`` bytes *per pair of chips*: an
  all-to-all over the copies, to which each brings that many bytes for every chip. The tables are spread over all
  chips.
* **HPL**: a step multiplies the trailing matrix (M x K) with a panel of N columns on a grid of X x Y chips. A chip
  has ceil(M/X) rows of the product and ceil(K/Y) of the contraction, so its output is not divided by Y. The panel
  goes along the first side as a message and along the second as a broadcast, both at once.
* **FFT**: two products whose columns are spread over all chips, ceil(N/chips) each, and a transpose.

Extents are rounded up to whole rows here, so the graph may count more FLOP than the authors, who round up shards
only (``ImportedCase.padding``). SRAM does not bind in these runs: the drawn NO_TILING becomes streaming by rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dfopt.documents.axes import Group
from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.frontends.dfmodel_case import Data, Unsupported
from dfopt.frontends.dfmodel_graph import kernel_of
from dfopt.frontends.dfmodel_system import Axis


def workload_graph(workload: str, drawn: Data, execution: Data, axes: tuple[Axis, ...], name: str) -> Graph:
    """The graph of a DLRM, HPL or FFT case.

    Parameters
    ----------
    workload : {"dlrm", "hpl", "fft"}
        Which one.
    drawn : dict
        Kernels and tensors as the case has them.
    execution : dict
        The ``execution`` message with the workload's block.
    axes : tuple of Axis
        Network axes, for HPL the two sides of the grid.
    name : str
        Of the graph.

    Raises
    ------
    KeyError
        If a field is missing.
    Unsupported
        If a kernel communicates in a way that this kind of workload does not have.
    """
    block, word = execution[workload], int(execution["word"])
    build = {"dlrm": _dlrm, "hpl": _hpl, "fft": _fft}[workload]
    kernels, size = build(drawn, block, word, axes)
    names = {data["id"]: data["name"] for data in drawn["kernels"]}
    return Graph(
        name=name,
        description=f"imported from a DFModel case, template {drawn.get('template', workload)}",
        word_bytes=word,
        batch=int(block["global_batch_size"]) if workload == "dlrm" else 1,
        kernels=tuple(kernels),
        tensors=tuple(Tensor(src=names[t["src"]], dst=names[t["dst"]], bytes=size(t)) for t in drawn["tensors"]),
    )


def _plain(data: Data, allowed: tuple[str, ...], **changes: Any) -> Kernel:
    """A kernel of a case, streamed by rows, after a look at what it communicates."""
    for kind in (data.get("communication_type"), data.get("communication_type_2")):
        if kind is not None and kind not in allowed:
            raise Unsupported(f"explicit {kind} on kernel {data.get('name')}")
    return kernel_of(data, **{"stream": None, **changes})


def _exchange(data: Data, over: Group, copies: int = 1) -> tuple[Communication, ...]:
    """The all-to-all of a kernel, if it has one."""
    if data.get("communication_type") != "ALL_TO_ALL":
        return ()
    return (Communication(kind="all_to_all", bytes=float(data["communication_bytes"]) * copies, over=over),)


# Each workload gives its kernels and the bytes of a drawn tensor. What lies in DRAM for the whole run is held against
# one kernel.
Built = tuple[list[Kernel], Callable[[Data], float]]


def _dlrm(drawn: Data, block: Data, word: int, axes: tuple[Axis, ...]) -> Built:
    chips = math.prod(axis.size for axis in axes)
    kernels = [
        _plain(data, ("ALL_TO_ALL", "ALL_REDUCE_PERIODIC"), communications=_exchange(data, "dp", chips))
        for data in drawn["kernels"]
    ]
    lookups = next((i for i, kernel in enumerate(kernels) if kernel.communications), 0)
    tables = float(block["num_table"]) * block["row"] * block["emb_dim"] * word
    kernels[lookups] = kernels[lookups].model_copy(update={"resident_bytes": tables})
    return kernels, lambda tensor: float(tensor["bytes"])


def _hpl(drawn: Data, block: Data, word: int, axes: tuple[Axis, ...]) -> Built:
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
            _plain(
                data,
                ("BROADCAST", "POINT_TO_POINT"),
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
    return kernels, lambda tensor: 0.0


def _fft(drawn: Data, block: Data, word: int, axes: tuple[Axis, ...]) -> Built:
    chips = math.prod(axis.size for axis in axes)
    columns = {data["id"]: -(-int(data["N"]) // chips) * chips for data in drawn["kernels"]}
    size = {data["id"]: float(int(data["M"]) * columns[data["id"]] * word) for data in drawn["kernels"]}
    kernels: list[Kernel] = []
    for data in drawn["kernels"]:
        held = 0.0 if kernels else float(block["length"]) * word
        changes = {"n": columns[data["id"]], "distributed": True, "resident_bytes": held}
        kernels.append(_plain(data, ("ALL_TO_ALL",), communications=_exchange(data, "tp"), **changes))
    return kernels, lambda tensor: size[tensor["src"]]
