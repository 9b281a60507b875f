"""DFModel setups: the authors' JSON case (``setup`` + ``graph``) turned into our documents.

A case file holds the fields of their ``setup.proto`` in their own names and units (bytes, GB/s, GHz,
ns), and the kernels and tensors of their generator. What their program takes for granted becomes an
:class:`~dfopt.documents.assumptions.Assumptions` document, which is where its versions differ:

* all-reduce passes: 2 where ``separate_rs_ag_for_ar`` says so and in the versions that have neither
  that field nor ``num_layer_in_graph`` nor ``overlap`` (their logs charge two), else 1;
* weight parts: the versions with both fields above repeat all traffic of a kernel whose weight is cut;
* partitions: exactly ``num_config``, none empty (``sum of tiles == core`` in their program);
* weights: read from DRAM before a partition starts in the first generation, else never;
* all-to-all messages: c^2/4, but c^2 in the version behind the FFT runs of Fig. 6, see
  :mod:`dfopt.physics.collectives_dfmodel`;
* gradients of a DLRM: bytes are added to nanoseconds, as if copies exchanged 1 GB/s whatever the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.pins import Pins
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue
from dfopt.frontends import dfmodel_graph as graphs
from dfopt.frontends import dfmodel_system as systems
from dfopt.frontends.dfmodel_case import ImportedCase, Unsupported, Workload, is_first_generation, workload_of
from dfopt.frontends.dfmodel_workloads import workload_graph

__all__ = ["ImportedCase", "Unsupported", "convert", "load_case", "write_case"]

_SHARDING: dict[str, Sharding] = {
    "OUTER_SHARDING": "outer",
    "M_SHARDING": "m",
    "K_SHARDING": "k",
    "N_SHARDING": "n",
    "NO_SHARDING": "none",
}
_OVERLAP = {"PERFECT_OVERLAP": "perfect", "NO_OVERLAP": "none", "OVERLAP_COMPUTE_MEMORY": "compute_memory"}
_CARRIES: dict[Workload, str] = {"dlrm": "DP", "hpl": "TP", "fft": "TP"}


def load_case(path: str | Path) -> ImportedCase:
    """Read a case file.

    Raises
    ------
    DocumentError
        If it is not a DFModel case.
    Unsupported
        If it uses a feature that is not there yet.
    """
    source = Path(path)
    data = load_strict(source)
    if not isinstance(data.get("setup"), dict):
        message = "not a DFModel case: found no setup object"
        raise DocumentError(source, [Issue("$.setup", message, "a case has setup, graph and outputs")])
    try:
        return convert(data, source.stem)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DocumentError):
            raise
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        message = f"incomplete DFModel case: {what}"
        raise DocumentError(
            source, [Issue("$.setup", message, "compare with the field names of setup.proto")]
        ) from None


def convert(data: dict[str, Any], name: str) -> ImportedCase:
    """Turn parsed case data into documents; see :func:`load_case`."""
    setup, drawn = data["setup"], data.get("graph") or {}
    execution = setup.get("execution") or setup.get("miscellany") or {}
    workload = workload_of(execution)
    _refuse(setup, drawn, execution, workload)
    notes: list[str] = []
    axes = systems.axes_of(setup["system"])
    if "HBD" in setup["system"]:
        axes = systems.with_fast_domain(axes, int(setup["system"]["HBD"]))
    if workload in _CARRIES:
        axes = systems.folded(axes) if workload == "hpl" else axes
        axes = tuple(systems.Axis(a.name, a.wiring, a.size, a.bandwidth, _CARRIES[workload]) for a in axes)
    system, dims = systems.system_of(setup["system"], axes, name)
    if workload in _CARRIES:
        graph = workload_graph(workload, drawn, execution, axes, name)
        notes += _workload_notes(workload, len(systems.axes_of(setup["system"])))
    else:
        llm = dict(execution.get("llm") or execution.get("training") or {})
        if "training" in execution:
            llm.setdefault("global_batch_size", 1)  # that generation reports the time of one sample
        if "num_layer" not in llm or "global_batch_size" not in llm:
            graphs.guess_batch(llm, drawn, system, dims, notes)
        graph = graphs.graph_of(drawn, llm, int(execution.get("word", 2)), name)
    assumptions = _assumptions(execution, workload)
    assumptions, graph = _of_its_version(data, assumptions, graph, notes)
    by_kernel = assumptions.execution == "kernel_by_kernel"
    partitions = execution.get("num_config") or (execution.get("training") or {}).get("num_config")
    if not by_kernel and not partitions:
        assumptions = assumptions.with_(empty_partitions="allow")
        notes.append("num_config not given: any number of partitions")
    mapping = data.get("mapping") or {}
    names = [kernel.name for kernel in graph.kernels]
    sharding = {}
    if mapping.get("sharding"):
        sharding = {kernel: _SHARDING[z] for kernel, z in zip(names, mapping["sharding"], strict=True)}
        notes.append("sharding as the case records it")
    pinned: dict[str, int] = {}
    if not by_kernel and _user_partition(data):
        pinned = dict(zip(names, mapping["partition"], strict=True))
        notes.append("partitions pinned by the user")
    if (data.get("source") or {}).get("setup_read_verbatim") is False:
        notes.append("setup not verbatim")
    counted = drawn.get("flop_per_evaluation") if workload in _CARRIES else None
    return ImportedCase(
        name=name,
        graph=graph,
        system=system,
        assumptions=assumptions,
        tp_dims=dims.get("TP", ()),
        pp_dims=dims.get("PP", ()),
        dp_dims=dims.get("DP", ()),
        p_max=None if by_kernel else int(partitions) if partitions else len(names),
        sharding=sharding,
        partition=pinned,
        outputs=data.get("outputs") or {},
        notes=tuple(notes),
        padding=_flop(graph) / float(counted) if counted else 1.0,
    )


def _flop(graph: Graph) -> float:
    """FLOP of one evaluation of a graph of matrix products."""
    return sum(2.0 * k.outer * k.m * k.k * k.n for k in graph.kernels)


def _user_partition(data: dict[str, Any]) -> bool:
    """Whether the partitions were given by the user: their ``config`` field, kept as a note in the cases."""
    kernels = (data.get("graph") or {}).get("kernels") or []
    if any(isinstance(k.get("config"), int) and k["config"] >= 0 for k in kernels):
        return True
    return any("partition fixed by the user" in note for note in data.get("notes") or [])


def _refuse(setup: dict[str, Any], drawn: dict[str, Any], execution: dict[str, Any], workload: Workload) -> None:
    if not drawn.get("kernels"):
        raise Unsupported("the case has no graph")
    if workload == "llm":
        for kernel in drawn["kernels"]:
            kind = kernel.get("communication_type")
            if kind not in (None, "ALL_REDUCE_PERIODIC"):
                raise Unsupported(f"explicit {kind} on kernel {kernel.get('name')}")
    elif int(execution[workload].get("num_copy") or 1) != 1:
        raise Unsupported(f"{execution[workload]['num_copy']} copies of the workload on parts of the machine")
    if execution.get("optimization") not in (None, "CMN"):
        raise Unsupported(f"optimization {execution['optimization']}: an objective that leaves terms out")
    if "second_dram_bw" in setup["system"].get("memory", {}):
        raise Unsupported("second DRAM level")


def _workload_notes(workload: Workload, axes: int) -> list[str]:
    if workload == "dlrm":
        return ["gradients: bytes taken for nanoseconds, as in the program; its data-parallel groups span all axes"]
    found = ["shards are rounded up to whole rows, so the graph is padded; utilization counts the FLOP of the case"]
    if workload == "hpl" and axes == 3:
        found.append("three axes: a grid of (x y) by z chips on the links of x and y, as in the program")
    return found


def _assumptions(execution: dict[str, Any], workload: Workload) -> Assumptions:
    """What the setup says, and what follows from the fields that it has."""
    llm, training = execution.get("llm") or {}, execution.get("training")
    overlap = execution.get("overlap")
    if overlap is None:  # the first generation hides what it computes, moves and sends behind each other
        perfect = execution.get("perfect_overlap") or training is not None
        overlap = "PERFECT_OVERLAP" if perfect else "NO_OVERLAP"
    late = "num_layer_in_graph" in llm or "overlap" in execution
    latest = "num_layer_in_graph" in llm and "overlap" in execution
    passes = 2 if execution.get("separate_rs_ag_for_ar") or not late else 1
    by_kernel = execution.get("execution_style") == "KERNEL_BY_KERNEL"
    changes: dict[str, Any] = {"gradient_bandwidth": 1e9} if workload == "dlrm" else {}
    return profile("dfmodel").with_(
        profile="dfmodel (imported)",
        execution="kernel_by_kernel" if by_kernel else "dataflow",
        overlap=_OVERLAP[overlap],
        compute_utilization=float(execution["compute_util"]) if execution.get("compute_util") else None,
        compute_model="fixed" if execution.get("compute_util") else "cycle",
        all_reduce_passes=passes,
        weight_tiling="reread_all" if latest else "free",
        **changes,
    )


def _of_its_version(
    data: dict[str, Any], assumptions: Assumptions, graph: Graph, notes: list[str]
) -> tuple[Assumptions, Graph]:
    """What no field of the setup tells: which version of the program made the log."""
    folder = str((data.get("source") or {}).get("path") or "")
    told = " ".join(data.get("notes") or [])
    if folder.startswith("FFT/Compare_w_existing"):
        notes.append("this version charges a cut all messages, c^2 (see collectives_dfmodel)")
        return assumptions.with_(all_to_all_messages="all"), graph
    if is_first_generation(data):
        if "training" in data["setup"].get("execution", {}):
            rows = int(data["setup"]["execution"]["training"].get("seq_tile_size") or 0)
            return assumptions.with_(tile_rows=rows or None), _with_weight_setup(data, graph, notes)
        notes.append("first generation: weights are read from DRAM")
        return assumptions.with_(weights_from_dram=True), graph
    verbatim = (data.get("source") or {}).get("setup_read_verbatim")
    if "second-generation log" in told and verbatim is False and assumptions.compute_model == "cycle":
        notes.append("compute_util 0.9 assumed: the log's compute times are FLOP over 0.9 of peak")
        return assumptions.with_(compute_model="fixed", compute_utilization=0.9), graph
    return assumptions, graph


def _with_weight_setup(data: dict[str, Any], graph: Graph, notes: list[str]) -> Graph:
    """Weights of the first generation: read once for a micro-batch, whose samples then stream through.

    A micro-batch left free (the ``training`` block has none) is as large as DRAM allows: weights and what crosses
    partitions, on both sides and for every sample, of all layers. With two partitions that is what the backward
    pass needs of the forward pass, whatever the mapping.
    """
    training, system = data["setup"]["execution"]["training"], data["setup"]["system"]
    batch = int(training.get("micro_batch_size") or 0)
    weight = {k.name: float(k.outer * k.m * k.k * graph.word_bytes) for k in graph.kernels if k.op == "gemm"}
    weights = sum(weight.values())
    if not batch:
        if training.get("num_config") != 2 or not graph.trains:
            raise Unsupported(
                "first-generation setup whose micro-batch the solver chooses, with other than 2 partitions"
            )
        phase = {kernel.name: kernel.phase == "forward" for kernel in graph.kernels}
        crossing = 2 * sum(graph.bytes_of(t) for t in graph.tensors if phase[t.src] and not phase[t.dst])
        capacity = float(system["accelerator"]["dram_cap"]) / int(training["num_layer"])
        batch = int((capacity - weights) / crossing)
        notes.append(f"first generation: micro-batch {batch}, the largest that DRAM holds")
    if batch < 1:
        raise Unsupported("first-generation setup whose weights and activations exceed DRAM")
    notes.append(f"first generation: every sample is charged 1/{batch} of the time that the weights take to read")
    kernels = tuple(
        k.model_copy(update={"dram_bytes_per_chip": k.dram_bytes_per_chip + weight.get(k.name, 0.0) / batch})
        for k in graph.kernels
    )
    return graph.model_copy(update={"kernels": kernels})


def write_case(path: str | Path, folder: str | Path) -> list[str]:
    """Write a case as graph.yaml, system.yaml, assumptions.yaml and pins.yaml into a folder.

    Returns
    -------
    list of str
        What was written, and the command that solves it.

    Raises
    ------
    DocumentError
        If the case cannot be read or needs a feature that is not there yet.
    """
    try:
        case = load_case(path)
    except Unsupported as error:
        raise DocumentError(
            path, [Issue("$.setup", f"not supported yet: {error}", "see the README's limits")]
        ) from None
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    pins = Pins(
        tp_dims=case.tp_dims,
        pp_dims=case.pp_dims,
        dp_dims=case.dp_dims,
        p_max=case.p_max,
        sharding=case.sharding,
        partition=case.partition,
    )
    documents = {"graph": case.graph, "system": case.system, "assumptions": case.assumptions, "pins": pins}
    for name, document in documents.items():
        document.dump(target / f"{name}.yaml")
    lines = [f"wrote {target / name}.yaml" for name in documents]
    lines += [f"note: {note}" for note in case.notes]
    options = f"--assume {target}/assumptions.yaml --pins {target}/pins.yaml"
    return [*lines, "solve it with:", f"  dfopt solve {target}/graph.yaml {target}/system.yaml {options}"]
