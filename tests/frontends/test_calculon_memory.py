"""What a chip holds in Calculon's executions, part by part, as that program printed it (tests/golden/calculon)."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.frontends.calculon import load_case
from dfopt.judge import evaluate

GOLDEN = Path(__file__).parents[1] / "golden" / "calculon"
BEST = list(csv.DictReader((GOLDEN / "best_executions.csv").open(encoding="utf-8")))
ROWS = {row["variant"]: row for row in csv.DictReader((GOLDEN / "executions.csv").open(encoding="utf-8"))}
PARTS = {
    "weight_space_B": ("weights_b",),
    "act_space_B": ("activations_b", "working_b"),
    "act_checkpoint_size_B": ("checkpoints_b",),
    "act_grad_space_B": ("activation_gradients_b",),
    "weight_grad_space_B": ("weight_gradients_b",),
    "optimizer_space_B": ("optimizer_b",),
}
FIELDS = (
    "num_procs", "tensor_par", "pipeline_par", "data_par", "tensor_par_net", "pipeline_par_net", "data_par_net",
    "batch_size", "microbatch_size", "datatype", "fused_activation", "activation_recompute", "pipeline_interleaving",
    "optimizer_sharding", "tensor_par_comm_type", "tensor_par_overlap", "seq_par_ag_redo", "data_par_overlap",
    "weight_offload", "activations_offload", "optimizer_offload",
)  # fmt: skip


def judged(row: dict[str, str], tmp_path: Path) -> Score:
    """A row's execution, every kernel alone in the order of the graph."""
    words: dict[str, Any] = {"true": True, "false": False}
    told = {name: words.get(row[name], int(row[name]) if row[name].isdigit() else row[name]) for name in FIELDS}
    path = tmp_path / "execution.json"
    path.write_text(json.dumps({**told, "attention_type": "multihead", "training": True}), encoding="utf-8")
    case = load_case(GOLDEN / f"{row['model']}.json", GOLDEN / f"{row['system']}.json", path)
    assert case.pins is not None and case.interleave is not None
    on, graph, pins = case.pins.on_axes, case.graph, case.pins.sharding
    plan = Plan(
        **on, microbatches=graph.batch // graph.microbatch // on["dp"], layers_per_stage=-(-graph.repeat // on["pp"]),
        interleave=case.interleave, zero=case.zero or None,
    )  # fmt: skip
    kernels = tuple(
        KernelMapping(name=one.name, partition=place, sharding=pins.get(one.name, "none"))
        for place, one in enumerate(graph.kernels)
    )
    rows = max(kernel.n for kernel in graph.kernels)
    mapping = Mapping(graph=graph.name, system=case.system.name, plan=plan, kernels=kernels, tile_count=rows)
    return evaluate(mapping, graph, case.system, case.assumptions)


@pytest.mark.parametrize("variant", ["full_ar", "none_ar", "attn_rsag_redo", "attn_rsag_redo_int"])
def test_every_part_is_that_of_calculon(variant: str, tmp_path: Path) -> None:
    row = ROWS[variant]
    (held,) = judged(row, tmp_path).memory or ()
    ours = {name: sum(getattr(held, part) for part in parts) for name, parts in PARTS.items()}
    assert ours == pytest.approx({name: float(row[name]) for name in PARTS}, rel=1e-9, abs=1.0)
    assert held.total == pytest.approx(float(row["mem_tier1_req_B"]), rel=1e-9)


@pytest.mark.parametrize("row", BEST, ids=[f"{row['search']} {row['rank']}" for row in BEST])
def test_the_best_executions_of_its_searches(row: dict[str, str], tmp_path: Path) -> None:
    """Activations fused into products, products that overlap with their communication, messages in parts."""
    score = judged(row, tmp_path)
    (held,) = score.memory
    assert held.total == pytest.approx(float(row["mem_tier1_req_B"]), rel=1e-9)
    assert score.step_time_s == pytest.approx(float(row["total_time_s"]), rel=0.015)
