"""Calculon's execution as what is fixed of a mapping: degrees, dims, memories, and the pins of its tensor parallelism.

Where each of its fields goes:

=============================================  =========================================================================
num_procs                                      sizes of the system's network dims
tensor_par, pipeline_par, data_par             pins: tp, with the sharding of every kernel, pp and dp
tensor_par_net, pipeline_par_net,              pins: tp_dims, pp_dims, dp_dims
data_par_net
batch_size, microbatch_size                    graph: batch, microbatch
datatype                                       graph: word_bytes; system: the engines of that type
fused_activation                               graph: fused_activation
attention_type                                 graph: heads of keys and values of their own
activation_recompute                           graph: recompute attention for attn_only, full for full
pipeline_interleaving                          solve: --interleave
optimizer_sharding                             solve: --zero 1, where there are copies of the batch
tensor_par_comm_type                           assumptions: sequence_parallelism allow for rs_ag, none for ar;
                                               point_to_point_parts calculon for p2p_rs_ag
tensor_par_overlap                             assumptions: tensor_overlap ring, or pipe_twice for pipe; graph:
                                               queries, keys and values joined
seq_par_ag_redo                                assumptions: backward_gathers layer, or kept_calculon where it is false
                                               and not everything is computed again
data_par_overlap                               assumptions: gradient_overlap calculon
weight_offload                                 solve: --place weights=memory2; assumptions: offload calculon
activations_offload                            solve: --place activations=memory2
optimizer_offload                              solve: --place optimizer=memory2 gradients=memory2, where it trains
training                                       graph: mode
=============================================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dfopt.documents.dim_names import part_name
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.placement import Item
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, shown
from dfopt.frontends.calculon.files import Execution, NetworkFile
from dfopt.frontends.calculon.system import dim_name

WORDS: Final[Mapping[str, int]] = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes of an element of each type."""
_AXES: Final = (("tp", "tensor_par"), ("pp", "pipeline_par"), ("dp", "data_par"))


def _splits_messages(execution: Execution) -> bool:
    """Whether what that costs is between stages alone."""
    plain = execution.activation_recompute != "full" and execution.tensor_par_overlap == "none"
    return execution.tensor_par_comm_type != "p2p_rs_ag" or (execution.pipeline_par > 1 and plain)


_LACKS: Final[Mapping[str, tuple[Callable[[Execution], bool], str]]] = {
    "datatype": (lambda execution: execution.datatype in WORDS, "the type"),
    "attention_type": (lambda execution: execution.attention_type == "multihead", "shared keys and values"),
    "tensor_par_comm_type": (
        _splits_messages, "reduce-scatters for messages, beside full recomputation or without a pipeline or overlapped"
    ),
}  # fmt: skip
"""Fields with values that cannot be said: whether a value can be, and else what is lacking."""


def check(execution: Execution, path: str) -> None:
    """Raise one `DocumentError` that lists all unsupported fields of an execution."""
    issues = [
        Issue(f"$.{name}", f"found {shown(getattr(execution, name))}: {lacks}", "not supported yet")
        for name, (can_be_said, lacks) in _LACKS.items()
        if not can_be_said(execution)
    ]
    if issues:
        raise DocumentError(path, issues)


def _degrees(execution: Execution) -> Iterator[tuple[str, int, int]]:
    """Every axis with its degree and its network."""
    for axis, name in _AXES:
        yield axis, getattr(execution, name), getattr(execution, f"{name}_net")


def degrees_on(execution: Execution, networks: Sequence[NetworkFile], path: str) -> list[int]:
    """Number of chips along the dim of each network: the product of the degrees on it.

    Parameters
    ----------
    execution, networks : Execution, sequence of NetworkFile
        The execution, and the networks of its system.
    path : str
        File of the execution, for errors.

    Raises
    ------
    DocumentError
        If a network has fewer processors.
    """
    sizes, issues = [1] * len(networks), []
    for (_, degree, network), (_, name) in zip(_degrees(execution), _AXES, strict=True):
        if network < len(networks):
            sizes[network] *= degree
        elif degree > 1:
            message = f"found {network}, but the system has {len(networks)} networks, counted from 0"
            issues.append(Issue(f"$.{name}_net", message, "name one of them"))
    for number, (size, file) in enumerate(zip(sizes, networks, strict=True)):
        if size > file.size:
            on = [name for (_, degree, network), (_, name) in zip(_degrees(execution), _AXES, strict=True)
                  if network == number and degree > 1]  # fmt: skip
            message = f"found degrees of {size} in all on network {number}, which has {file.size} processors"
            issues.append(Issue(f"$.{on[0]}_net", message, "lower the degrees, or use another network"))
    if issues:
        raise DocumentError(path, issues)
    return sizes


_OFFLOADED: Final[Mapping[str, tuple[Item, ...]]] = {
    "weight_offload": ("weights",),
    "activations_offload": ("activations",),
    "optimizer_offload": ("gradients", "optimizer"),
}


def placed(execution: Execution, system: System, path: str) -> dict[Item, str]:
    """Memory of each offloaded item.

    Offloading of a forward pass alone would concern its weights only, and Calculon moves these as well.

    Parameters
    ----------
    execution, system
        Calculon's execution, and the imported system.
    path : str
        Name of the execution's file, for messages.

    Raises
    ------
    DocumentError
        If the system has no second memory, or if the execution does not train.
    """
    asked = [name for name in _OFFLOADED if getattr(execution, name)]
    slower, issues = list(system.chip.tiers)[1:], list[Issue]()
    for name in asked:
        if not slower:
            issues.append(Issue(f"$.{name}", "found true, but mem2 of the system has 0 GiB", "write false"))
        elif not execution.training:
            issues.append(Issue(f"$.{name}", "found true without training: not supported yet", "write false"))
    if issues:
        raise DocumentError(path, issues)
    return {item: slower[0] for name in asked for item in _OFFLOADED[name]}


def laid_out(execution: Execution, sizes: Sequence[int]) -> dict[str, Any]:
    """Plan fields for degrees and dims; axes on one network share its dim, tensor parallelism innermost.

    Examples
    --------
    >>> nets = {"tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 0}
    >>> found = laid_out(Execution.model_construct(tensor_par=4, pipeline_par=8, data_par=2, **nets), [8, 8])
    >>> found["tp_dims"], found["pp_dims"], found["dp_dims"]
    (('network0[4]',), ('network1',), ('network0[2@4]',))
    """
    fields: dict[str, Any] = {}
    inside = [1] * len(sizes)
    for axis, degree, network in _degrees(execution):
        fields[axis], fields[f"{axis}_dims"] = degree, ()
        if degree > 1:
            name = dim_name(network)
            is_whole = degree == sizes[network]
            fields[f"{axis}_dims"] = (name if is_whole else part_name(name, degree, inside[network]),)
            inside[network] *= degree
    return fields


_COLUMNS: Final[Mapping[str, Sharding]] = {"forward": "m", "recompute": "m", "backward": "k", "update": "n"}
_ROWS: Final[Mapping[str, Sharding]] = {"forward": "k", "recompute": "k", "backward": "m", "update": "m"}
_SPLIT: Final = {"Query": _COLUMNS, "Key": _COLUMNS, "Value": _COLUMNS, "QKV": _COLUMNS, "MLP_Up": _COLUMNS,
                 "Projection": _ROWS, "MLP_Down": _ROWS}  # fmt: skip


def shardings(graph: Graph, execution: Execution) -> dict[str, Sharding]:
    """Sharding scheme of every kernel of a block under Calculon's (Megatron-LM's) tensor parallelism.

    Weights are split by columns and then by rows, attention by heads. Kernels between them are whole on every chip with
    all-reduces, and split along the tokens with reduce-scatter and all-gather.
    """
    if execution.tensor_par == 1:
        return {}
    by_tokens = execution.tensor_par_comm_type == "rs_ag"

    def scheme(kernel: Kernel) -> Sharding:
        of = kernel.stage_with or kernel.name
        if of in _SPLIT:
            axis = _SPLIT[of][kernel.pass_]
            # what is added to another kernel's partial sums is reduced with them
            return "k>n" if axis == "k" and by_tokens and kernel.accumulates_into is None else axis
        if kernel.outer > 1:
            return "outer"
        return "m" if of == "GeLU" else "n" if by_tokens else "none"

    return {kernel.name: scheme(kernel) for kernel in graph.kernels}
