"""DFModel setups: the authors' JSON case (``setup`` + ``graph``) turned into our documents.

A case file holds the fields of their ``setup.proto`` in their own names and units (bytes, GB/s, GHz,
ns), and the kernels and tensors of their generator. What their program takes for granted becomes an
:class:`~dfopt.documents.assumptions.Assumptions` document, which is where its versions differ:

* all-reduce passes: 2 where ``separate_rs_ag_for_ar`` says so and in the versions that have neither
  that field nor ``num_layer_in_graph`` nor ``overlap`` (their logs charge two), else 1;
* weight parts: the versions with both fields above repeat all traffic of a kernel whose weight is cut;
* partitions: exactly ``num_config``, none empty (``sum of tiles == core`` in their program).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph, Kernel, Op, Phase, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.documents.pins import Pins
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import DocumentError, Issue

_TOPOLOGY = {"r": "ring", "sw": "switch", "fc": "fully_connected"}
_AXES = "xyzw"
_SHARDING: dict[str, Sharding] = {
    "OUTER_SHARDING": "outer",
    "M_SHARDING": "m",
    "K_SHARDING": "k",
    "N_SHARDING": "n",
    "NO_SHARDING": "none",
}
_OVERLAP = {"PERFECT_OVERLAP": "perfect", "NO_OVERLAP": "none", "OVERLAP_COMPUTE_MEMORY": "compute_memory"}


class Unsupported(Exception):
    """A case uses a feature of DFModel that dfopt does not have yet; the message names it."""


@dataclass(frozen=True)
class ImportedCase:
    """A DFModel case as our documents, with what its files fix by hand.

    ``sharding`` is the result of their inter-chip step where the case records it (bytes alone leave
    ties, so it is part of what their second step was given); ``pins`` the partitions fixed by the user.
    """

    name: str
    graph: Graph
    system: System
    assumptions: Assumptions
    tp_dims: tuple[str, ...]
    pp_dims: tuple[str, ...]
    dp_dims: tuple[str, ...]
    p_max: int | None
    sharding: dict[str, Sharding]
    partition: dict[str, int]
    outputs: dict[str, Any]
    notes: tuple[str, ...] = field(default=())


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
    _refuse(setup, drawn, execution)
    notes: list[str] = []
    system, dims = _system(setup["system"], name)
    llm = dict(execution.get("llm") or {})
    if "num_layer" not in llm or "global_batch_size" not in llm:
        _guess_batch(llm, drawn, system, dims, notes)
    graph = _graph(drawn, llm, int(execution.get("word", 2)), name)
    assumptions = _assumptions(execution, llm)
    by_kernel = execution.get("execution_style") == "KERNEL_BY_KERNEL"
    partitions = execution.get("num_config")
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
    notes += [note for note in data.get("notes") or [] if "generation" in note]
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
    )


def _user_partition(data: dict[str, Any]) -> bool:
    """Whether the partitions were given by the user: their ``config`` field, kept as a note in the cases."""
    kernels = (data.get("graph") or {}).get("kernels") or []
    if any(isinstance(k.get("config"), int) and k["config"] >= 0 for k in kernels):
        return True
    return any("partition fixed by the user" in note for note in data.get("notes") or [])


def _refuse(setup: dict[str, Any], drawn: dict[str, Any], execution: dict[str, Any]) -> None:
    system = setup["system"]
    if "topo" in system or "training" in execution:
        raise Unsupported("first-generation setup (training block, weights charged by set-up latency)")
    if not drawn.get("kernels"):
        raise Unsupported("the case has no graph")
    if "HBD" in system:
        raise Unsupported("HBD: collectives through a fast domain (rail-only)")
    if "llm" not in execution and any(key in execution for key in ("dlrm", "hpl", "fft")):
        raise Unsupported("workload with explicit collectives (DLRM, HPL, FFT)")
    for kernel in drawn["kernels"]:
        kind = kernel.get("communication_type")
        if kind not in (None, "ALL_REDUCE_PERIODIC"):
            raise Unsupported(f"explicit {kind} on kernel {kernel.get('name')}")
    if execution.get("optimization") not in (None, "CMN"):
        raise Unsupported(f"optimization {execution['optimization']}: an objective that leaves terms out")
    if "second_dram_bw" in system.get("memory", {}):
        raise Unsupported("second DRAM level")


def _system(data: dict[str, Any], name: str) -> tuple[System, dict[str, tuple[str, ...]]]:
    key = next((k for k in data if all(part in _TOPOLOGY for part in k.split("_"))), None)
    if key is None:
        raise Unsupported("no network topology")
    network: list[NetworkDim] = []
    parallel: dict[str, tuple[str, ...]] = {}
    topology = data[key]
    latency = float(data["accelerator"].get("link_latency", 0.0)) * 1e-9
    for axis, kind in zip(_AXES, key.split("_"), strict=False):
        size = int(topology.get(axis) or 0)
        carries = topology.get(f"par_{axis}")
        if size == 0:
            raise Unsupported("network sizes left for the solver to choose")
        if carries not in ("TP", "PP", "DP"):
            raise Unsupported(f"network axis {axis} carries {carries or 'no parallelism'}")
        network.append(
            NetworkDim(
                name=axis,
                topology=_TOPOLOGY[kind],
                size=size,
                link_bandwidth=float(topology[f"link_bw_{axis}"]) * 1e9,
                latency=latency,
            )
        )
        parallel[carries] = (*parallel.get(carries, ()), axis)
    core = data["accelerator"]
    memory = data["memory"]
    chip = Chip(
        name=f"{name} accelerator",
        tiles=int(core["core"]),
        lanes=int(core["systolic_width"]),
        stages=int(core["systolic_height"]),
        frequency=float(core["freq"]) * 1e9,
        sram=Sram(capacity=float(core["sram_cap"])),
        dram=Dram(bandwidth=float(memory["dram_bw"]) * 1e9, capacity=float(memory.get("dram_cap") or 0) or None),
    )
    return System(name=name, description="imported from a DFModel setup", chip=chip, network=tuple(network)), parallel


def _guess_batch(
    llm: dict[str, Any],
    drawn: dict[str, Any],
    system: System,
    dims: dict[str, tuple[str, ...]],
    notes: list[str],
) -> None:
    """Layers and batch of a setup without its llm block, from the FLOP total that its log reports."""
    total, once = drawn.get("flop_total_reported"), drawn.get("flop_per_evaluation")
    if not total or not once:
        raise Unsupported("setup without layers and batch, and no FLOP total to derive them from")
    stages = 1
    for name in dims.get("PP", ()):
        stages *= system.dim(name).size
    llm.setdefault("num_layer", stages)
    llm.setdefault("global_batch_size", round(total / once) // llm["num_layer"])
    notes.append(
        f"setup has no llm block: one layer per stage ({llm['num_layer']}),"
        f" batch {llm['global_batch_size']} from its FLOP total"
    )


def _graph(drawn: dict[str, Any], llm: dict[str, Any], word: int, name: str) -> Graph:
    kernels = tuple(_kernel(k) for k in drawn["kernels"])
    names = {k["id"]: k["name"] for k in drawn["kernels"]}
    tensors = tuple(Tensor(src=names[t["src"]], dst=names[t["dst"]], bytes=float(t["bytes"])) for t in drawn["tensors"])
    return Graph(
        name=name,
        description=f"imported from a DFModel case, template {drawn.get('template', 'unknown')}",
        repeat=int(llm.get("num_layer", 1)),
        word_bytes=word,
        microbatch=int(llm.get("micro_batch_size") or 1),
        batch=int(llm["global_batch_size"]),
        tokens_per_sample=int(llm.get("seq_len") or 1),
        kernels=kernels,
        tensors=tensors,
        carried=_carried(kernels, tensors),
    )


def _kernel(data: dict[str, Any]) -> Kernel:
    variant, tiling = data["variant"], data.get("tiling", "N_TILING")
    outer, m, n = int(data["outer"]), int(data["M"]), int(data["N"])
    k = int(data.get("K") or 1)
    op: Op = "elementwise"
    if variant == "gemm_input1_weight":
        op = "gemm"
    elif variant == "gemm_input1_input2":
        op = "weight_update" if tiling == "K_TILING" else "matmul"
    phase: Phase = "forward" if data.get("pass", "FWD") == "FWD" else "update" if op == "weight_update" else "backward"
    return Kernel(
        name=data["name"],
        op=op,
        outer=outer,
        m=m,
        k=1 if op == "elementwise" else k,
        n=n,
        stream={"N_TILING": "n", "K_TILING": "k"}.get(tiling, "none"),
        phase=phase,
        # SYSTOLIC-typed elementwise kernels (the KV caches) count two operations per element
        flop_per_element=2 if op == "elementwise" and data["type"] == "SYSTOLIC" else 1,
        dram_bytes_per_chip=float(data.get("explicit_dram_bytes_per_chip") or 0.0),
    )


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


def _assumptions(execution: dict[str, Any], llm: dict[str, Any]) -> Assumptions:
    overlap = execution.get("overlap")
    if overlap is None:
        overlap = "PERFECT_OVERLAP" if execution.get("perfect_overlap") else "NO_OVERLAP"
    late = "num_layer_in_graph" in llm or "overlap" in execution
    latest = "num_layer_in_graph" in llm and "overlap" in execution
    passes = 2 if execution.get("separate_rs_ag_for_ar") or not late else 1
    by_kernel = execution.get("execution_style") == "KERNEL_BY_KERNEL"
    return profile("dfmodel").with_(
        profile="dfmodel (imported)",
        execution="kernel_by_kernel" if by_kernel else "dataflow",
        overlap=_OVERLAP[overlap],
        compute_utilization=float(execution["compute_util"]) if execution.get("compute_util") else None,
        compute_model="fixed" if execution.get("compute_util") else "cycle",
        all_reduce_passes=passes,
        weight_tiling="reread_all" if latest else "free",
    )


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
