"""DFModel setups: the authors' JSON case (``setup`` + ``graph``) turned into our documents.

A case file holds the fields of their ``setup.proto`` in their own names and units (bytes, GB/s, GHz,
ns), and the kernels and tensors of their generator. What their program takes for granted becomes an
:class:`~dfopt.documents.assumptions.Assumptions` document, which is where its versions differ; the fields
that a setup has tell the version:

* all-reduce passes: 2 where ``separate_rs_ag_for_ar`` says so and in the versions that have neither
  that field nor ``num_layer_in_graph`` nor ``overlap`` (their logs charge two), else 1;
* weight parts: the versions with both fields above repeat all traffic of a kernel whose weight is cut;
* partitions: exactly ``num_config``, none empty (``sum of tiles == core`` in their program);
* weights: read from DRAM in the first generation (``training`` or ``topo``), else never;
* gradients of a DLRM: bytes are added to nanoseconds, as if copies exchanged 1 GB/s whatever the network.

Nothing is read from names, notes or reported figures. What the fields of a case do not tell is given by overrides,
see :mod:`dfopt.frontends.dfmodel.case`; a case without what the import needs is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.axes import AXES
from dfopt.documents.base import plain_words
from dfopt.documents.files import folder_of, read_text
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Pins, Sharding
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, refuse
from dfopt.frontends.dfmodel import graph as graphs
from dfopt.frontends.dfmodel import setup_system
from dfopt.frontends.dfmodel.case import Data, DFModelCase, Unsupported, block_of, missing, overridden
from dfopt.frontends.dfmodel.text import case_of

_SHARDING: dict[str, Sharding] = {
    "OUTER_SHARDING": "outer", "M_SHARDING": "m", "K_SHARDING": "k", "N_SHARDING": "n", "NO_SHARDING": "none",
}  # fmt: skip
_OVERLAP = {"PERFECT_OVERLAP": "perfect", "NO_OVERLAP": "none", "OVERLAP_COMPUTE_MEMORY": "compute_memory"}
_PADDED = "shards are rounded up to whole rows, so the graph is padded; utilization counts the FLOP of the case"
_GRADIENTS = "gradients: bytes taken for nanoseconds, as in the program; its data-parallel groups span all axes"
_ALONE = "no workload is said: one evaluation of the graph; an axis without one of TP, PP, DP is free"
_NOTES = {"dlrm": _GRADIENTS, "hpl": _PADDED, "fft": _PADDED, "graph": _ALONE}


def load_case(path: str | Path, overrides: str | Path | None = None) -> DFModelCase:
    """Import a DFModel case: a JSON file, or a setup in protobuf text format (any other suffix).

    ``overrides`` is a document with data that cases leave out, or the folder of a file ``overrides.yaml``. Raises
    `DocumentError` if the file is no DFModel case, lacks data that the import needs, or uses an unsupported feature.
    """
    path = Path(path)
    try:
        as_text = path.suffix.lower() not in (".json", ".yaml", ".yml")
        return convert(case_of(read_text(path), str(path)) if as_text else load_strict(path), path.stem, overrides)
    except KeyError as error:
        refuse(str(path), f"found no DFModel setup: {error}", "expected JSON, or text as in user_input/setup.txt")
    except DocumentError as error:  # of a case, which is known by its name
        raise DocumentError(path if error.path == path.stem else error.path, error.issues) from None


def convert(data: Data, name: str, path: str | Path | None = None) -> DFModelCase:
    """Import parsed case data, like :func:`load_case`.

    Parameters
    ----------
    data
        Messages of the case by name: setup, graph, outputs.
    name
        Name of the case.
    path
        A file of overrides, or its folder.

    Raises
    ------
    DocumentError
        If the data are incomplete or not supported.
    """
    if not isinstance(data.get("setup"), dict):
        message = "not a DFModel case: found no setup object"
        raise DocumentError(name, [Issue("$.setup", message, "a case has setup, graph and outputs")])
    setup = data["setup"]
    data = {**data, "setup": {**setup, "execution": setup.get("execution") or setup.get("miscellany") or {}}}
    try:
        data, overrides = overridden(data, name, Path(path) if path else None)
        if issues := missing(data["setup"], data.get("graph") or {}):
            raise DocumentError(name, issues)
        case = _converted(data, name)
    except Unsupported as error:
        refuse(name, f"not supported yet: {error}", "see `dfopt guide limits`")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"the field {error} is missing, or its value unknown" if isinstance(error, KeyError) else str(error)
        what = plain_words(error) if isinstance(error, ValidationError) else what
        remedy = "compare with the field names of setup.proto, or give it in an override"
        refuse(name, f"incomplete DFModel case: {what}", remedy)
    changes = {key: value for override in overrides for key, value in override.assumptions.items()}
    if changes:
        changed = Assumptions.from_data({**case.assumptions.to_data(), **changes}, f"{name}, assumptions overridden")
        case = replace(case, assumptions=changed)
    reasons = tuple(override.reason for override in overrides)
    return replace(case, overrides=reasons, notes=(*(f"overridden: {reason}" for reason in reasons), *case.notes))


def _converted(data: Data, name: str) -> DFModelCase:
    setup, drawn = data["setup"], data["graph"]
    execution = setup["execution"]
    block = str(block_of(execution))
    _refuse(setup["system"], execution, block)
    notes = [_NOTES[block]] if block in _NOTES else []
    axes = setup_system.axes_of(setup["system"], block)
    graph = graphs.graph_of(block, drawn, execution, axes, name)
    system, dims = setup_system.system_of(setup["system"], axes, name)
    assumptions = _assumptions(setup, execution, block)
    if block == "training":
        graph = _with_weight_setup(graph, execution["training"], setup["system"], notes)
    by_kernel = assumptions.execution == "kernel_by_kernel"
    partitions = execution.get("num_config") or execution[block].get("num_config")
    names = [kernel.name for kernel in graph.kernels]
    sharding = (data.get("mapping") or {}).get("sharding") or []
    if sharding:
        notes.append("sharding as the case records it")
    given = {k["name"]: k["config"] for k in drawn["kernels"] if not by_kernel and k.get("config", -1) >= 0}
    unused = () if all(axis.carries for axis in axes) else None  # an axis that carries nothing may carry anything
    pins = Pins(
        **{axis.dims_key: dims.get(axis.label, unused) for axis in AXES.values()},
        p_max=None if by_kernel else int(partitions),
        sharding={kernel: _SHARDING[z] for kernel, z in zip(names, sharding, strict=bool(sharding))},
        partition=given,
    )
    padding = _flop(graph.kernels) / _flop(map(graphs.kernel_of, drawn["kernels"])) if block in ("hpl", "fft") else 1.0
    return DFModelCase(graph, system, assumptions, pins, tuple(notes), padding)


def _flop(kernels: Iterable[Kernel]) -> float:
    """FLOP of one evaluation of matrix products."""
    return sum(2.0 * k.matrices * k.m * k.k * k.n for k in kernels)


def _refuse(system: Data, execution: Data, block: str) -> None:
    if int(execution[block].get("num_copy") or 1) != 1:
        raise Unsupported(f"{execution[block]['num_copy']} copies of the workload on parts of the machine")
    if execution.get("optimization") not in (None, "CMN"):
        raise Unsupported(f"optimization {execution['optimization']}: an objective that leaves terms out")
    if "second_dram_bw" in system.get("memory", {}):
        raise Unsupported("second DRAM level")


def _assumptions(setup: Data, execution: Data, block: str) -> Assumptions:
    """What the setup says, and what follows from the fields that it has."""
    overlap = execution.get("overlap")
    if overlap is None:  # the first generation hides what it computes, moves and sends behind each other
        overlap = "PERFECT_OVERLAP" if execution.get("perfect_overlap") or block == "training" else "NO_OVERLAP"
    fields = ("num_layer_in_graph" in execution[block], "overlap" in execution)
    util = float(execution.get("compute_util") or 0) or None
    changes: Data = {}
    if block == "dlrm":
        changes["gradient_bandwidth"] = 1e9
    if block == "training":
        changes["tile_rows"] = int(execution[block].get("seq_tile_size") or 0) or None
    return profile("dfmodel").with_(
        profile="dfmodel (imported)",
        execution="kernel_by_kernel" if execution.get("execution_style") == "KERNEL_BY_KERNEL" else "dataflow",
        overlap=_OVERLAP[overlap],
        compute_utilization=util,
        compute_model="fixed" if util else "cycle",
        all_reduce_passes=2 if execution.get("separate_rs_ag_for_ar") or not (any(fields) or block == "graph") else 1,
        weight_tiling="reread_all" if all(fields) else "free",
        weights_from_dram="topo" in setup["system"] and block != "training",
        **changes,
    )


def _with_weight_setup(graph: Graph, training: Data, system: Data, notes: list[str]) -> Graph:
    """Weights of the first generation: read once for a micro-batch, whose samples then stream through.

    A micro-batch left free (the ``training`` block has none) is as large as DRAM allows: weights and what crosses
    partitions, on both sides and for every sample, of all layers. With two partitions that is what the backward
    pass needs of the forward pass, whatever the mapping.
    """
    batch = int(training.get("micro_batch_size") or 0)
    weight = {k.name: float(k.outer * k.m * k.k * graph.words.weights) for k in graph.kernels if k.op == "gemm"}
    if not batch:
        if training["num_config"] != 2 or not graph.trains:
            raise Unsupported("a micro-batch that the solver chooses, with other than 2 partitions")
        forward = {kernel.name: kernel.pass_ == "forward" for kernel in graph.kernels}
        crossing = 2 * sum(graph.bytes_of(t) for t in graph.tensors if forward[t.src] and not forward[t.dst])
        capacity = float(system["accelerator"]["dram_cap"]) / int(training["num_layer"])
        batch = int((capacity - sum(weight.values())) / crossing)
        notes.append(f"first generation: micro-batch {batch}, the largest that DRAM holds")
    if batch < 1:
        raise Unsupported("weights and activations that exceed DRAM")
    notes.append(f"first generation: every sample is charged 1/{batch} of the time that the weights take to read")
    kernels = tuple(
        k.model_copy(update={"dram_bytes_per_chip": k.dram_bytes_per_chip + weight.get(k.name, 0.0) / batch})
        for k in graph.kernels
    )
    return graph.model_copy(update={"kernels": kernels})


def write_case(path: str | Path, folder: str | Path, overrides: str | Path | None = None) -> list[str]:
    """Import a case and write graph.yaml, system.yaml, assumptions.yaml and pins.yaml into a folder.

    Parameters
    ----------
    path, overrides
        As of :func:`load_case`.
    folder
        Folder for the files.

    Returns
    -------
    list of str
        Lines with the names of the files, the notes of the import, and the command that solves the case.
    """
    case = load_case(path, overrides)
    target = folder_of(folder)
    documents = {"graph": case.graph, "system": case.system, "assumptions": case.assumptions, "pins": case.pins}
    for name, document in documents.items():
        document.dump(target / f"{name}.yaml")
    lines = [f"wrote {target / name}.yaml" for name in documents]
    lines += [f"note: {note}" for note in case.notes]
    options = f"--assume {target}/assumptions.yaml --pins {target}/pins.yaml"
    return [*lines, "solve it with:", f"  dfopt solve {target}/graph.yaml {target}/system.yaml {options}"]
