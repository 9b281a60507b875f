"""Calculon's files turned into our documents: graph, system, assumptions, and of an execution the pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import plain_words
from dfopt.documents.files import folder_of, write_text
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Pins
from dfopt.documents.placement import Item
from dfopt.documents.strict_yaml import dump_yaml
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, refuse
from dfopt.frontends.calculon.execution import WORDS, check, degrees_on, laid_out, placed, shardings
from dfopt.frontends.calculon.files import Application, Execution, SystemFile, read
from dfopt.frontends.calculon.system import sizes_without_execution, system_of
from dfopt.workloads import expand

_OVERLAP: Final[dict[str, Literal["none", "compute_memory"]]] = {"no_overlap": "none", "roofline": "compute_memory"}
_TILES: Final = {"ring": "ring", "pipe": "pipe_twice"}
_RECOMPUTE: Final = {"none": "none", "attn_only": "attention", "full": "full"}
_NOTES: Final = ("must_be_filled is not in system.yaml: any part of a network may be used",)


@dataclass(frozen=True)
class CalculonCase:
    """A Calculon application, system and execution as dfopt documents.

    ``recipe`` is the graph as a file has it: the workload ``calculon`` with its parameters.
    """

    recipe: dict[str, Any]
    graph: Graph
    system: System
    assumptions: Assumptions
    pins: Pins | None = None
    interleave: int | None = None
    zero: int | None = None
    place: Mapping[Item, str] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Keyword arguments for ``dfopt.optimize(case.graph, case.system, ...)``."""
        pins = self.pins
        fixed = (
            {}
            if pins is None
            else {**pins.on_axes, "pin_sharding": pins.sharding, "interleave": self.interleave, "zero": self.zero}
        )
        fixed |= {"place": dict(self.place)} if self.place else {}
        return {"assumptions": self.assumptions, **fixed}


def load_case(
    application: str | Path,
    system: str | Path,
    execution: str | Path | None = None,
    *,
    chips: int | None = None,
    overlaps: bool = False,
) -> CalculonCase:
    """Import Calculon files.

    Parameters
    ----------
    application, system, execution
        Paths of the three files. Without an execution a block is trained in the type of the system, float16 of several.
    chips
        Processors, without an execution; all of the system if left out.
    overlaps
        Without an execution, communication may be hidden (the ``ring`` of tensor_par_overlap, which is never slower
        than the two others; data_par_overlap where it helps), gathered tensors are kept, and activations are fused.

    Raises
    ------
    DocumentError
        For unknown keys, missing fields, values that cannot be, and every value of an execution that dfopt cannot say.
    """
    app, file = read(Application, application), read(SystemFile, system)
    run = None if execution is None else read(Execution, execution)
    where = str(system)
    if run is None:
        datatype, sizes = _usual_type(file, where), sizes_without_execution(file, where, chips)
    else:
        check(run, str(execution))
        datatype, sizes = run.datatype, degrees_on(run, file.networks, str(execution))
    recipe = _recipe(app, Path(application).stem, datatype, run, overlaps)
    graph = expand(recipe, str(application))
    assumptions = Assumptions(
        profile="calculon (imported)",
        execution="kernel_by_kernel",
        overlap=_OVERLAP[file.processing_mode],
        compute_model="efficiency",
        sequence_parallelism="allow" if run is None or run.tensor_par_comm_type == "rs_ag" else "none",
        weight_tiling="free",
        gradient_traffic="written",
        optimizer_step="adam_once",
        **_communication(run, overlaps),
        offload="calculon" if file.mem2.GiB else None,
        training_memory="calculon",
        memory_reserve=0.0,
        # a master copy and two moments of 4 B each; in float32 the weights are the master copy
        optimizer_bytes_per_parameter=12.0 if WORDS[datatype] < 4 else 8.0,
    )
    try:
        machine = system_of(file, Path(system).stem, datatype, sizes, where)
    except ValidationError as error:
        refuse(str(system), f"found what no system may have: {plain_words(error)}", "check its numbers")
    if run is None:
        return CalculonCase(recipe, graph, machine, assumptions)
    shared = run.optimizer_sharding and run.training and run.data_par > 1
    pins = Pins(**laid_out(run, sizes), sharding=shardings(graph, run))
    place = placed(run, machine, str(execution))
    return CalculonCase(recipe, graph, machine, assumptions, pins, run.pipeline_interleaving, int(shared), place)


def _communication(run: Execution | None, overlaps: bool) -> dict[str, Any]:
    """What of communication the assumptions say."""
    fields: dict[str, Any] = {"backward_gathers": "layer", "collective_work": "first", "operand_traffic": "own"}
    tiled = {"collective_work": "first_adds", "operand_traffic": "own_tiled"}
    if run is None:
        hidden = {"backward_gathers": "kept_calculon", "tensor_overlap": "ring", "gradient_overlap": "calculon_or_none"}
        return fields | (tiled | hidden if overlaps else {})
    if run.tensor_par_comm_type == "p2p_rs_ag":
        fields["point_to_point_parts"] = "calculon"
    if run.tensor_par_comm_type == "rs_ag" and not run.seq_par_ag_redo and run.activation_recompute != "full":
        fields["backward_gathers"] = "kept_calculon"
    if _overlapped(run):
        fields |= tiled
        fields["tensor_overlap"] = _TILES[run.tensor_par_overlap]
    return fields | ({"gradient_overlap": "calculon"} if run.data_par_overlap else {})


def _overlapped(run: Execution) -> bool:
    return run.tensor_par_overlap != "none" and run.tensor_par > 1


def _usual_type(file: SystemFile, path: str) -> str:
    """The type of a system that has one, or float16."""
    common = [kind for kind in file.matrix if kind in file.vector]
    if len(common) == 1 and common[0] in WORDS:
        return common[0]
    if "float16" in common:
        return "float16"
    message = f"matrix and vector engine have {', '.join(common) or 'no type'} in common, expected float16"
    raise DocumentError(path, [Issue("$.matrix", message, "give an execution, which has a datatype")])


def _recipe(app: Application, name: str, datatype: str, run: Execution | None, overlaps: bool) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "hidden": app.hidden,
        "heads": app.attn_heads,
        "head_dim": app.attn_size,
        "ffn": app.feedforward,
        "seq": app.seq_size,
        "layers": app.num_blocks,
        "word_bytes": WORDS[datatype],
        "mode": "training" if run is None or run.training else "forward",
    }
    if run is None and overlaps:
        parameters |= {"qkv": "joined", "fused_activation": True}
    if run is not None:
        parameters |= {"microbatch": run.microbatch_size, "batch": run.batch_size}
        again = _RECOMPUTE[run.activation_recompute]
        parameters |= {"recompute": again} if again != "none" and run.training else {}
        parameters |= {"qkv": "joined"} if _overlapped(run) else {}
        parameters |= {"fused_activation": True} if run.fused_activation else {}
        if again == "attention" and run.training and run.tensor_par_comm_type != "rs_ag":
            parameters |= {"qkv_input_kept": False}
    about = f"imported from an application of Calculon, {datatype}"
    return {
        "schema": Graph.SCHEMA, "name": name, "description": about, "workload": "calculon", "parameters": parameters
    }  # fmt: skip


def write_case(
    application: str | Path,
    system: str | Path,
    execution: str | Path | None,
    folder: str | Path,
    *,
    chips: int | None = None,
    overlaps: bool = False,
) -> list[str]:
    """Import Calculon files and write graph.yaml, system.yaml, assumptions.yaml and, for an execution, pins.yaml.

    Parameters
    ----------
    application, system, execution, chips, overlaps
        As of :func:`load_case`.
    folder
        Folder for the files.

    Returns
    -------
    list of str
        Lines that name the files, and the command that solves the case.
    """
    case = load_case(application, system, execution, chips=chips, overlaps=overlaps)
    target = folder_of(folder)
    write_text(target / "graph.yaml", dump_yaml(case.recipe))
    documents = {"system": case.system, "assumptions": case.assumptions}
    options = f"--assume {target}/assumptions.yaml"
    if case.pins is not None:
        documents["pins"] = case.pins
        options += f" --pins {target}/pins.yaml --interleave {case.interleave} --zero {case.zero}"
    else:
        options += " --zero 0,1"  # what its executions know
    for item, memory in case.place.items():
        options += f" --place {item}={memory}"
    for name, document in documents.items():
        document.dump(target / f"{name}.yaml")
    lines = [f"wrote {target / name}.yaml" for name in ("graph", *documents)]
    lines += [f"note: {note}" for note in _NOTES]
    return [*lines, "solve it with:", f"  dfopt solve {target}/graph.yaml {target}/system.yaml {options}"]
