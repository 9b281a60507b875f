"""Rows of throughput as vendors publish it, with what the recipe of a run says in ``recipe_*`` columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dfopt.calibration.machines import CHIPS, machine_of
from dfopt.calibration.row import (
    AS_GIVEN,
    Cannot,
    Cells,
    RunModel,
    Sequence,
    TrainingRow,
    degrees,
    maybe,
    measured,
    model_of,
    number,
    types_of,
)
from dfopt.workloads.recompute import recompute_of

_AGAIN: Final = {"full": "full+attention", "none": "attention", "selective: empty list": "attention"}
"""By how a cell begins; a library's attention keeps no scores."""
_SELECTIVE: Final = "selective: "  # and modules of Megatron-LM
_BY_POLICY: Final = "selective 'op'"  # of torchtitan
_LEFT_OUT: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "recipe_moe_a2a_overlap": ("overlap of all-to-alls", ("True",)),
    "recipe_cuda_graph_impl": ("CUDA graphs", ("transformer_engine", "full_iteration", "local")),
    "recipe_main_grads_dtype": ("gradients in fp32", ("float32",)),
}
_ZERO: Final = {"True": 1, "False": 0}
_HELD: Final = {"False": "bf16"}
"""What gradients are held in, by whether they are reduced in fp32: Megatron-core has one buffer of one type for both
(``DistributedDataParallel``: fp32 with grad_reduce_in_fp32, else the type of the parameters).
"""


def reported(cells: Cells, name: str, source: str) -> TrainingRow:
    """A training run whose source reports throughput, in one of several units.

    Parameters
    ----------
    cells
        Texts of the row, by column.
    name, source : str
        Name of the run, and where its figures are from.

    Raises
    ------
    Cannot
        If the row does not state what a prediction needs.
    """
    if not cells["confidence"].startswith("read"):
        raise Cannot(f"confidence: {cells['confidence']}")
    machine, chips = cells["system"].lower(), number(cells, "gpus")
    chip = next((chip for chip, called in CHIPS.items() if machine.startswith(tuple(called["systems"]))), None)
    if chip is None:
        raise Cannot(f"chip {cells['system'] or 'not stated'}")
    model = model_of(cells, "seq", measured(cells, "params"))
    batch = number(cells, "gbs")
    again, left_out = _again(cells)
    tensor, pipeline, copies, contexts = degrees(cells, chips)
    groups = maybe(cells, "ep") or 1
    if model.experts is None:
        groups = 1
    if (cells.get("recipe_expert_tp") or "1") not in ("1", str(tensor)):
        raise Cannot(f"experts split {cells['recipe_expert_tp']} ways by features")
    if model.zoo is not None and (maybe(cells, "vp") or 1) > 1:
        raise Cannot("stages in chunks of layers of several kinds")
    further = cells.get("recipe_mtp_num_layers", "0") not in ("", "0") or "m" in cells.get("recipe_pipeline_layout", "")
    left_out += ["a layer that predicts a further token"] if further else []
    wide = cells.get("recipe_layers_end_bf16") or "0"
    left_out += [f"{wide} layers at the end in 16 bits"] if wide != "0" else []
    shared = maybe(cells, "fsdp") or 0
    if shared > 1 and shared != copies:
        raise Cannot(f"parameters shared by {shared} of {copies} copies")
    offloaded = cells.get("recipe_cpu_offloading_num_layers") or "0"
    left_out += [f"{offloaded} layers offloaded"] if offloaded not in ("0", "0.0") else []
    left_out += [word for column, (word, values) in _LEFT_OUT.items() if cells.get(column) in values]
    all_on = "overlap on" in cells["note"]
    zero = 3 if shared > 1 else _ZERO.get(cells.get("recipe_distributed_optimizer", ""))
    gathers = all_on or cells.get("recipe_overlap_param_gather") == "True"
    left_out += ["overlap of parameter gathers"] if shared > 1 or (gathers and zero not in (None, 0, 1)) else []
    # Megatron-LM's own arguments have no fused loss unless --cross-entropy-loss-fusion asks for one
    sequence_parallelism: dict[str, Sequence] = {"True": "allow", "False": "none"}
    return TrainingRow(
        name, source, model, chip, chips, tensor, pipeline, copies, batch=batch,
        seconds=_step(cells, model, batch, chip), dtypes=types_of(_precision(cells), not AS_GIVEN.search(source)),
        microbatch=maybe(cells, "mbs"), interleave=maybe(cells, "vp"), recompute=again,
        sequence_parallelism=sequence_parallelism.get(cells.get("recipe_sequence_parallel", "")),
        zero=zero,
        main_gradients=_HELD.get(cells.get("recipe_grad_reduce_in_fp32", "")),
        contexts=contexts, expert_groups=groups, library_attention=True, causal=True,
        overlaps_gradients=shared > 1 or all_on or cells.get("recipe_overlap_grad_reduce") == "True",
        overlaps_tensor=tensor > 1 and (all_on or cells.get("recipe_tp_comm_overlap") == "True"),
        overlaps_weights=gathers,
        overlaps_messages=all_on or cells.get("recipe_overlap_p2p_comm") == "True",
        loss_apart="github.com/NVIDIA/Megatron-LM" in source, unmodelled=tuple(left_out),
    )  # fmt: skip


def _precision(cells: Cells) -> str:
    """The type of products with weights; where a cell names two, the recipe says whether it is the one of 8 bits."""
    eight = cells.get("recipe_fp8_recipe", "").startswith("tensorwise")
    return "fp8" if eight and cells["precision"].upper().startswith("FP8/BF16") else cells["precision"]


def _again(cells: Cells) -> tuple[str | None, list[str]]:
    """What is computed again, and what is left out of that; nothing, where a recipe is of a run that is only near."""
    table, recipe, policy = (cells.get(name, "") for name in ("recompute", "recipe_recompute", "recipe_remat_policy"))
    if policy.startswith(_BY_POLICY):
        return "op+attention", []
    if not table and cells.get("recipe_match") == "partial":
        return None, []
    text = table or recipe or policy
    if not text:
        return None, []
    way = next((again for begin, again in _AGAIN.items() if text.startswith(begin)), None)
    if way is not None:
        return way, []
    if not text.startswith("selective"):
        raise Cannot(f"recompute {text}")
    if not text.startswith(_SELECTIVE):
        return "attention", [f"recomputation: {text}"]
    try:
        return recompute_of("+".join({*text.removeprefix(_SELECTIVE).split("+"), "attention"})), []
    except ValueError:
        raise Cannot(f"recompute {text}") from None


def _step(cells: Cells, model: RunModel, batch: int, chip: str) -> float:
    """Seconds of a step, from the quantity that is reported; MFU is in percent of the rate of 16 bits."""
    value, quantity, chips = measured(cells, "value"), cells["reported_quantity"], number(cells, "gpus")
    if quantity == "step_time":
        return value
    if quantity == "tokens_per_s_per_gpu":
        return batch * model.seq / (value * chips)
    if quantity in ("model_tflops_per_gpu", "tflops_per_chip"):
        return model.flop(batch) / (value * 1e12 * chips)
    if quantity == "mfu":
        return model.flop(batch) / (value / 100 * machine_of(chip, chips).chip.peak_flops * chips)
    raise Cannot(f"reported quantity {quantity}")
