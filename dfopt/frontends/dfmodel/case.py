"""What a DFModel case is: its file, what it leaves out, the overrides that supply it, and what comes of its import.

A case is read as it stands. What its file does not hold (a setup that nobody read, the version of the program behind a
log) is given by an `Overrides` document beside the cases, each value with the reason for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document, Part
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Pins
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, shown
from dfopt.machines.references import merged

Data = dict[str, Any]
LETTERS = "xyzw"  # the names of the axes of a topology: x and y of r_sw

# What the import cannot do without: of the chip, and of the block that holds the workload.
_CHIP = ("core", "systolic_width", "systolic_height", "freq", "sram_cap")
_FIELDS = {
    "llm": ("num_layer", "global_batch_size", "seq_len"),
    "dlrm": ("num_table", "emb_dim", "row", "global_batch_size"),
    "hpl": ("n",),
    "fft": ("length",),
    "training": ("num_layer", "seq_len", "num_config"),
    "graph": (),  # of a setup without a workload: the graph alone
}


class Unsupported(Exception):
    """Raised where a case uses a feature of DFModel that dfopt lacks; the message names it."""


class Override(Part):
    """Values that a case file does not state, with the reason for them.

    Attributes
    ----------
    reason : e.g. read in Table VI of the paper
        Source of the values, or the reason that they follow from.
    setup : e.g. {system: {num_chip: 8}}
        Fields that are merged into the setup of the case.
    graph : e.g. graph.json
        JSON file with kernels and tensors that replaces the graph of the case, next to this document. None: the case's
        own graph.
    kernels : e.g. {topological_number: 0}
        Fields of all kernels, with one value for all or a list with one for each.
    assumptions : e.g. {overlap: perfect}
        Fields of the assumptions of the case.
    """

    reason: str = Field(min_length=1)
    setup: Data = Field(default_factory=dict)
    graph: str | None = None
    kernels: Data = Field(default_factory=dict)
    assumptions: Data = Field(default_factory=dict)

    @model_validator(mode="after")
    def _overrides_something(self) -> Self:
        if not (self.setup or self.graph or self.kernels or self.assumptions):
            raise ValueError("nothing is overridden: expected setup, graph, kernels or assumptions")
        return self


class Overrides(Document):
    """Overrides of DFModel cases by the case file's name, without suffix.

    Attributes
    ----------
    cases : e.g. {fig10: [{reason: read in Table VI, setup: {num_chip: 8}}]}
        Overrides of each case, by the name of its file without the suffix.
    """

    SCHEMA: ClassVar[str] = "dfopt/dfmodel-overrides/1"

    cases: dict[str, tuple[Override, ...]]


@dataclass(frozen=True)
class DFModelCase:
    """A DFModel case as dfopt documents.

    ``pins.sharding`` is the result of DFModel's inter-chip step, if the case records it (bytes alone leave ties, so it
    is an input of the second step); ``pins.partition`` are the partitions fixed by the user. ``padding`` is the FLOP of
    the graph over those that DFModel counts: more than 1 if shards are rounded up to whole rows of a grid of chips.
    ``overrides`` are the reasons for data that were not in the case.
    """

    graph: Graph
    system: System
    assumptions: Assumptions
    pins: Pins
    notes: tuple[str, ...] = ()
    padding: float = 1.0
    overrides: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """Keyword arguments for ``dfopt.optimize(case.graph, case.system, ...)``."""
        pins = self.pins
        return {
            "assumptions": self.assumptions,
            **pins.on_axes,
            "zero": 0,  # the authors' copies hold all
            "p_max": pins.p_max,
            "pin_sharding": pins.sharding,
            "pin_partition": pins.partition,
        }


def overridden(data: Data, name: str, path: Path | None) -> tuple[Data, tuple[Override, ...]]:
    """Data of a case with its overrides applied, and those overrides.

    Parameters
    ----------
    data, name
        Parsed data of the case, and its name in the file of overrides.
    path
        The file of overrides, or a folder with ``overrides.yaml``; none if there are no overrides.
    """
    if path is None:
        return data, ()
    path = path / "overrides.yaml" if os.path.isdir(path) else path
    overrides = Overrides.load(path).cases.get(name, ())
    for override in overrides:
        graph = load_strict(path.parent / override.graph) if override.graph else data.get("graph") or {}
        kernels = [dict(kernel) for kernel in graph.get("kernels") or []]
        for key, given in override.kernels.items():
            values = given if isinstance(given, list) else [given] * len(kernels)
            if len(values) != len(kernels):
                message = f"found a list of {len(values)}, expected one value for each of the {len(kernels)} kernels"
                raise DocumentError(path, [Issue(f"$.cases.{name}.kernels.{key}", message)])
            for kernel, value in zip(kernels, values, strict=True):
                kernel[key] = value
        data = {**data, "setup": merged(data["setup"], override.setup), "graph": {**graph, "kernels": kernels}}
    return data, overrides


def topology_of(system: Data) -> str | None:
    """Name of the network field in a ``system`` message, such as ``r_sw`` (ring and switch)."""
    return next((key for key in system if set(key.split("_")) <= {"r", "sw", "fc"}), None)


def block_of(execution: Data) -> str | None:
    """Name of the workload field in an ``execution`` message, such as ``fft``."""
    return next((block for block in _FIELDS if block in execution), None)


def missing(setup: Data, graph: Data) -> list[Issue]:
    """Values that the import needs and a case lacks, as issues with the override that supplies each.

    A size of zero, which leaves the choice to the authors' solver, is missing too.
    """
    system, execution = setup.get("system") or {}, setup["execution"]
    topology, block = topology_of(system), block_of(execution)
    needs = [f"system.accelerator.{name}" for name in _CHIP]
    needs.append(f"system.{'memory' if 'memory' in system else 'accelerator'}.dram_bw")
    if topology:
        fields = ("", "link_bw_", "par_") if block == "llm" else ("", "link_bw_")
        needs += [f"system.{topology}.{field}{axis}" for axis in LETTERS[: topology.count("_") + 1] for field in fields]
    elif system.get("topo") != "SINGLE_CHIP":
        needs.append("system.r|sw|fc|r_r|r_sw")
    needs += [f"execution.{block}.{name}" for name in _FIELDS[block]] if block else ["execution." + "|".join(_FIELDS)]
    if block != "training":
        needs += ["execution.execution_style", "execution.word"]
    if execution.get("execution_style") == "DATAFLOW":
        needs.append("execution.num_config")
    issues = []
    for need in needs:
        steps = need.split(".")
        if not reduce(lambda at, step: at.get(step) or {}, steps, setup):
            remedy = f"an override can give it: {{setup: {{{': {'.join(steps)}: ...{'}' * len(steps)}}}"
            issues.append(Issue(f"$.setup.{need}", "missing", remedy))
    kernels = graph.get("kernels") or []
    if not kernels:
        issues.append(Issue("$.graph.kernels", "missing", "an override can give a file: {graph: GRAPH.json}"))
    for index, kernel in enumerate(kernels):
        sent = kernel.get("communication_bytes")
        if isinstance(sent, str) or (sent is None and kernel.get("communication_type") == "ALL_TO_ALL"):
            remedy = "an override can give it: {kernels: {communication_bytes: ...}}, null for what the program takes"
            message = f"found {shown(sent)}, expected a number of bytes"
            issues.append(Issue(f"$.graph.kernels[{index}].communication_bytes", message, remedy))
            break
    return issues
