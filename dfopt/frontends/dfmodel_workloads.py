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
from typing import Any

from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.frontends.dfmodel_case import Unsupported, Workload
from dfopt.frontends.dfmodel_graph import kernel_of
from dfopt.frontends.dfmodel_system import Axis


def workload_graph(
    workload: Workload, drawn: dict[str, Any], execution: dict[str, Any], axes: tuple[Axis, ...], name: str
) -> Graph:
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
    kernels, tensors = build(drawn, block, word, axes)
    return Graph(
        name=name,
        description=f"imported from a DFModel case, template {drawn.get('template', workload)}",
        word_bytes=word,
        batch=int(block["global_batch_size"]) if workload == "dlrm" else 1,
        kernels=tuple(kernels),
        tensors=tuple(tensors),
    )


def _plain(data: dict[str, Any], allowed: tuple[str, ...], **changes: Any) -> Kernel:
    """A kernel of a case, streamed by rows, after a look at what it communicates."""
    kinds = [data.get("communication_type"), data.get("communication_type_2")]
    for kind in kinds:
        if kind is not None and kind not in allowed:
            raise Unsupported(f"explicit {kind} on kernel {data.get('name')}")
    kernel = kernel_of(data)
    fields = {**{key: getattr(kernel, key) for key in Kernel.model_fields}, "stream": None, **changes}
    return Kernel(**fields)


def _resident(kernels: list[Kernel], at: int, size: float) -> None:
    """Data that lies in DRAM for the whole run, held against one kernel."""
    kernels[at] = kernels[at].model_copy(update={"resident_bytes": size})


def _dlrm(
    drawn: dict[str, Any], block: dict[str, Any], word: int, axes: tuple[Axis, ...]
) -> tuple[list[Kernel], list[Tensor]]:
    chips = math.prod(axis.size for axis in axes)
    kernels = []
    for data in drawn["kernels"]:
        own: tuple[Communication, ...] = ()
        if data.get("communication_type") == "ALL_TO_ALL":
            own = (Communication(kind="all_to_all", bytes=float(data["communication_bytes"]) * chips, over="dp"),)
        kernels.append(_plain(data, ("ALL_TO_ALL", "ALL_REDUCE_PERIODIC"), communications=own))
    lookups = next((i for i, kernel in enumerate(kernels) if kernel.communications), 0)
    _resident(kernels, lookups, float(block["num_table"]) * block["row"] * block["emb_dim"] * word)
    names = {data["id"]: data["name"] for data in drawn["kernels"]}
    return kernels, [
        Tensor(src=names[t["src"]], dst=names[t["dst"]], bytes=float(t["bytes"])) for t in drawn["tensors"]
    ]


def _hpl(
    drawn: dict[str, Any], block: dict[str, Any], word: int, axes: tuple[Axis, ...]
) -> tuple[list[Kernel], list[Tensor]]:
    first, second = (axis.size for axis in axes)
    rows = {data["id"]: -(-int(data["M"]) // first) for data in drawn["kernels"]}
    columns = {data["id"]: int(data["N"]) for data in drawn["kernels"]}
    moved = dict.fromkeys(rows, 0.0)  # output bytes of a chip, written by the producer and read by the consumer
    for tensor in drawn["tensors"]:
        for end in (tensor["src"], tensor["dst"]):
            moved[end] += rows[tensor["src"]] * columns[tensor["src"]] * word
    kernels = []
    for data in drawn["kernels"]:
        panel = data.get("communication_bytes")
        if not isinstance(panel, int | float):  # the program's own size of a panel: the whole product
            panel = int(data["M"]) * int(data["N"]) * word
        kernels.append(
            _plain(
                data,
                ("BROADCAST", "POINT_TO_POINT"),
                m=rows[data["id"]] * first,
                k=-(-int(data["K"]) // second) * second,
                distributed=True,
                dram_bytes_per_chip=moved[data["id"]],
                communications=(
                    Communication(kind="point_to_point", bytes=float(panel), over="tp_first"),
                    Communication(kind="broadcast", bytes=float(panel), over="tp_rest"),
                ),
            )
        )
    _resident(kernels, 0, float(block["n"]) ** 2 * word)
    names = {data["id"]: data["name"] for data in drawn["kernels"]}
    # the tensors give the order alone: an even share of a tensor would divide it by both sides of the grid
    return kernels, [Tensor(src=names[t["src"]], dst=names[t["dst"]], bytes=0.0) for t in drawn["tensors"]]


def _fft(
    drawn: dict[str, Any], block: dict[str, Any], word: int, axes: tuple[Axis, ...]
) -> tuple[list[Kernel], list[Tensor]]:
    chips = math.prod(axis.size for axis in axes)
    kernels, size = [], {}
    for data in drawn["kernels"]:
        own: tuple[Communication, ...] = ()
        if data.get("communication_type") == "ALL_TO_ALL":
            own = (Communication(kind="all_to_all", bytes=float(data["communication_bytes"]), over="tp"),)
        columns = -(-int(data["N"]) // chips) * chips
        kernels.append(_plain(data, ("ALL_TO_ALL",), n=columns, distributed=True, communications=own))
        size[data["id"]] = float(int(data["M"]) * columns * word)
    _resident(kernels, 0, float(block["length"]) * word)
    names = {data["id"]: data["name"] for data in drawn["kernels"]}
    tensors = [Tensor(src=names[t["src"]], dst=names[t["dst"]], bytes=size[t["src"]]) for t in drawn["tensors"]]
    return kernels, tensors
