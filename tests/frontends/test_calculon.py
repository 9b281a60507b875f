"""Calculon's files as our documents: what a mapping costs against what that program prints, and what is refused."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.errors import DocumentError
from dfopt.frontends.calculon import CalculonCase, load_case
from dfopt.frontends.calculon import execution as executions
from dfopt.frontends.calculon.files import Execution
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds

HERE = Path(__file__).parents[1] / "golden/calculon"
GOLDEN = json.loads((HERE / "layers.json").read_text(encoding="utf-8"))
ALL_REDUCED = [
    "gpt3-175B_tp8_full_ar",
    "megatron-1T_tp8_full_ar",
    "megatron-1T_tp8_full_ar_h100",
    "gpt3-175B_tp1_none_ar",
]
SCATTERED = "gpt3-175B_tp8_attn_rsag_redo"
PASSES = {"forward": "fw", "backward": "agrad", "update": "wgrad"}
OFF = {"activation_recompute": "none", "optimizer_sharding": False}  # what dfopt cannot say, and layers do not show


def execution(case: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = GOLDEN["cases"][case]["execution"]
    return {**found, **changes}


def written(data: dict[str, Any], folder: Path) -> Path:
    (folder / "file.json").write_text(json.dumps(data), encoding="utf-8")
    return folder / "file.json"


def loaded(model: str, system: str, execution: dict[str, Any], tmp_path: Path) -> CalculonCase:
    return load_case(HERE / f"{model}.json", HERE / f"{system}.json", written(execution, tmp_path))


def imported(case: str, tmp_path: Path, **changes: Any) -> CalculonCase:
    golden = GOLDEN["cases"][case]
    return loaded(golden["model"], golden["system"], execution(case, **changes), tmp_path)


def judged(case: CalculonCase) -> Score:
    """The mapping that the pins leave: every kernel alone, in the order of the graph."""
    assert case.pins is not None and case.interleave is not None
    on, graph = case.pins.on_axes, case.graph
    plan = Plan(
        **on, microbatches=graph.batch // graph.microbatch // on["dp"], layers_per_stage=-(-graph.repeat // on["pp"]),
        interleave=case.interleave, zero=case.zero or None,
    )  # fmt: skip
    kernels = tuple(
        KernelMapping(name=kernel.name, partition=place, sharding=case.pins.sharding.get(kernel.name, "none"))
        for place, kernel in enumerate(graph.kernels)
    )
    rows = max(kernel.n for kernel in graph.kernels)
    mapping = Mapping(graph=graph.name, system=case.system.name, plan=plan, kernels=kernels, tile_count=rows)
    return df.evaluate(mapping, graph, case.system, case.assumptions)


def layers(case: str) -> list[dict[str, Any]]:
    """The layers of a case but for communication, which are no kernels."""
    rows = [dict(zip(GOLDEN["columns"], row, strict=True)) for row in GOLDEN["cases"][case]["layers"]]
    return [row for row in rows if not row["name"].endswith(("Block_F", "Block_G"))]


@pytest.mark.parametrize("case", [*ALL_REDUCED, SCATTERED])
def test_kernels_of_a_chip_are_the_layers_of_a_processor(case: str, tmp_path: Path) -> None:
    """FLOP of every pass to the last digit, bytes too, and the seconds that the tables of efficiency make of them."""
    made = imported(case, tmp_path, **OFF)
    passes = {kernel.name: kernel.pass_ for kernel in made.graph.kernels}
    found = defaultdict[str, list[tuple[float, float, float]]](list)
    for one in judged(made).partitions:
        (name,) = one.kernels
        found[passes[name]].append((one.flop, one.dram_bytes, one.compute_s + one.memory_s))
    for which, kernels in found.items():
        key = PASSES[which]
        told = [
            tuple(layer[f"{key}_{what}"] for what in ("flops", "mem_accessed", "processing_time"))
            for layer in layers(case)
            if layer[f"{key}_flops"]
        ]
        for mine, theirs in zip(sorted(kernels), sorted(told), strict=True):
            assert mine[:2] == theirs[:2]
            assert mine[2] == pytest.approx(theirs[2], rel=1e-12)


@pytest.mark.parametrize("case", [*ALL_REDUCED[:3], SCATTERED])
def test_kernels_run_again_as_the_first_time(case: str, tmp_path: Path) -> None:
    made = imported(case, tmp_path, optimizer_sharding=False)
    passes = {kernel.name: kernel.pass_ for kernel in made.graph.kernels}
    again = (one for one in judged(made).partitions if passes[one.kernels[0]] == "recompute")
    told = GOLDEN["cases"][case]["stats"]["block_re_time"]
    assert sum(one.compute_s + one.memory_s for one in again) == pytest.approx(told, rel=1e-12)


@pytest.mark.parametrize("case", ALL_REDUCED[:3])
def test_all_reduces_of_a_block(case: str, tmp_path: Path) -> None:
    """Two in each direction, with additions and bytes of their own; of those that are done again the network alone."""
    made = imported(case, tmp_path, **OFF)
    score = judged(made)
    assert score.collectives == {"all_reduce.forward": 2, "all_reduce.backward": 2}
    told = GOLDEN["cases"][case]["stats"]
    assert sum(one.network_s for one in score.partitions) == pytest.approx(2 * told["baseblock_fw_tp_time"], rel=1e-12)
    again = judged(imported(case, tmp_path, optimizer_sharding=False)).breakdown
    assert again is not None
    blocks = made.graph.batch * made.graph.repeat // made.pins.on_axes["pp"] // made.pins.on_axes["dp"]
    assert again.recomputed_communication_s == pytest.approx(blocks * told["baseblock_recomm_time"], rel=1e-12)


def test_tokens_split_with_reduce_scatter_and_all_gather(tmp_path: Path) -> None:
    """FLOP of every pass: the sum of three gradients too, of all tokens as it is of partial sums."""
    made = imported(SCATTERED, tmp_path)
    score, passes = judged(made), {kernel.name: kernel.pass_ for kernel in made.graph.kernels}
    counted = {kind.split(".")[0] for kind in score.collectives}
    assert counted == {"all_gather", "reduce_scatter"}
    assert [score.collectives[f"{kind}.forward"] for kind in sorted(counted)] == [2, 2]
    again = ("Scores_again", "Softmax_again", "Scores_Dropout_again")
    for which, key in PASSES.items():
        flop = sum(
            one.flop for one in score.partitions if passes[one.kernels[0]] == which and one.kernels[0] not in again
        )
        told = {layer["name"]: layer[f"{key}_flops"] for layer in layers(SCATTERED)}
        assert flop == sum(told.values())


@pytest.mark.parametrize("system, network", [("a100_80g", 0), ("a100_80g", 1), ("h100_80g_nvl8", 0)])
@pytest.mark.parametrize(
    "op, kind", [("all_reduce", "all_reduce"), ("all_gather", "all_gather"), ("p2p", "point_to_point")]
)
def test_times_of_networks(system: str, network: int, op: str, kind: str, tmp_path: Path) -> None:
    sizes = {"tensor_par": 8, "pipeline_par": 8, "data_par": 8, "num_procs": 512, "batch_size": 64, **OFF}
    made = loaded("gpt3-175B", system, execution(ALL_REDUCED[0], **sizes), tmp_path)
    file = json.loads((HERE / f"{system}.json").read_text(encoding="utf-8"))["networks"][network]
    scalar, offset = file["ops"][op]
    sent = 1e8 * scalar * (1 + (offset or 0) / 8)
    seconds = file["latency"] + sent / (file["bandwidth"] * 1e9 * file["efficiency"])
    dims = ["network0"] if network == 0 else ["network1[8]"]
    found = communication_seconds(Collective(kind), 1e8, dims, made.system, made.assumptions)
    assert found == pytest.approx(seconds, rel=1e-12)


def test_degrees_lie_on_their_networks(tmp_path: Path) -> None:
    sizes = {"tensor_par": 4, "pipeline_par": 8, "data_par": 2, "batch_size": 64, "data_par_net": 0}
    made = imported(ALL_REDUCED[0], tmp_path, **sizes, **OFF)
    assert made.pins is not None
    assert {dim.name: dim.size for dim in made.system.network} == {"network0": 8, "network1": 8}
    assert made.pins.on_axes == {
        "tp": 4, "tp_dims": ("network0[4]",), "pp": 8, "pp_dims": ("network1",), "dp": 2, "dp_dims": ("network0[2@4]",)
    }  # fmt: skip
    assert (made.graph.batch, made.graph.microbatch, made.interleave) == (64, 1, 1)


def test_without_an_execution_all_is_free() -> None:
    made = load_case(HERE / "megatron-1T.json", HERE / "h100_80g_nvl8.json")
    assert made.pins is None
    assert [dim.size for dim in made.system.network] == [8, 8192]
    assert made.system.chip.peak_flops == 1e15  # float16 of two types
    assert (made.graph.repeat, made.graph.trains) == (128, True)
    assert made.assumptions.sequence_parallelism == "allow"


@pytest.mark.parametrize(("chips", "sizes"), [(64, [8, 8]), (4096, [8, 512]), (4, [4])])
def test_so_many_processors_as_are_asked_for(chips: int, sizes: list[int]) -> None:
    case = load_case(HERE / "gpt3-175B.json", HERE / "a100_80g.json", chips=chips)
    assert [dim.size for dim in case.system.network] == sizes


@pytest.mark.parametrize("chips", [0, 12, 10**6])
def test_processors_that_fill_no_groups(chips: int) -> None:
    with pytest.raises(DocumentError, match="ask for"):
        load_case(HERE / "gpt3-175B.json", HERE / "a100_80g.json", chips=chips)


def test_float8_takes_its_own_engines(tmp_path: Path) -> None:
    made = imported(ALL_REDUCED[2], tmp_path, datatype="float8", **OFF)
    assert made.system.chip.peak_flops == 2e15
    assert made.graph.words.activations == 1
    vector = [row.share for row in made.system.chip.efficiency or () if row.unit == "vector"]
    assert vector == pytest.approx([0.95 * 0.06, 0.5 * 0.06, 0.1 * 0.06])


def test_a_second_memory_of_no_size_is_not_there(tmp_path: Path) -> None:
    data = json.loads((HERE / "a100_80g.json").read_text(encoding="utf-8"))
    data["mem2"]["GiB"] = 0
    data["processing_mode"] = "roofline"
    made = load_case(HERE / "gpt3-175B.json", written(data, tmp_path))
    assert list(made.system.chip.tiers) == ["dram"]
    assert {row.memory for row in made.system.chip.efficiency or ()} == {None}
    assert made.assumptions.overlap == "compute_memory"


# ------------------------------------------------------------------- whole executions, as that program printed them

BEST = list(csv.DictReader((HERE / "best_executions.csv").open(encoding="utf-8")))
ROWS = {row["variant"]: row for row in csv.DictReader((HERE / "executions.csv").open(encoding="utf-8"))}
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


def executed(row: dict[str, str], tmp_path: Path) -> Score:
    words: dict[str, Any] = {"true": True, "false": False}
    said = {name: words.get(row[name], int(row[name]) if row[name].isdigit() else row[name]) for name in FIELDS}
    whole = {**said, "attention_type": "multihead", "training": True}
    return judged(loaded(row["model"], row["system"], whole, tmp_path))


@pytest.mark.parametrize("variant", ["full_ar", "none_ar", "attn_rsag_redo", "attn_rsag_redo_int"])
def test_every_part_is_that_of_calculon(variant: str, tmp_path: Path) -> None:
    row = ROWS[variant]
    (held,) = executed(row, tmp_path).memory or ()
    ours = {name: sum(getattr(held, part) for part in parts) for name, parts in PARTS.items()}
    assert ours == pytest.approx({name: float(row[name]) for name in PARTS}, rel=1e-9, abs=1.0)
    assert held.total == pytest.approx(float(row["mem_tier1_req_B"]), rel=1e-9)


@pytest.mark.parametrize("row", BEST, ids=[f"{row['search']} {row['rank']}" for row in BEST])
def test_the_best_executions_of_its_searches(row: dict[str, str], tmp_path: Path) -> None:
    """Activations fused into products, products that overlap with their communication, messages in parts."""
    score = executed(row, tmp_path)
    (held,) = score.memory
    assert held.total == pytest.approx(float(row["mem_tier1_req_B"]), rel=1e-9)
    assert score.step_time_s == pytest.approx(float(row["total_time_s"]), rel=0.015)


# ------------------------------------------------------------------- what is refused


def test_the_table_is_about_all_fields() -> None:
    assert set(Execution.model_fields) <= set(re.findall(r"\w+", executions.__doc__ or ""))


@pytest.mark.parametrize(
    ("changes", "again", "zero"),
    [
        ({"activation_recompute": "full", "optimizer_sharding": True}, 17, 1),
        ({"activation_recompute": "attn_only"}, 3, 0),
        ({"activation_recompute": "none", "optimizer_sharding": True, "data_par": 1, "num_procs": 64}, 0, 0),
        ({"activation_recompute": "full", "optimizer_sharding": True, "training": False}, 0, 0),
    ],
)
def test_what_is_recomputed_and_shared_out(changes: dict[str, Any], again: int, zero: int, tmp_path: Path) -> None:
    """Copies share the optimizer's state where there are any, and something is trained."""
    base = {"optimizer_sharding": False, "data_par": 2, "num_procs": 128, "pipeline_par": 8, "batch_size": 64}
    made = imported(ALL_REDUCED[0], tmp_path, **{**base, **changes})
    assert sum(kernel.pass_ == "recompute" for kernel in made.graph.kernels) == again
    assert made.options()["zero"] == zero


def test_every_value_that_cannot_be_said_is_named_at_once(tmp_path: Path) -> None:
    wanted = {
        "datatype": "float4", "attention_type": "multiquery",
        "tensor_par_comm_type": "p2p_rs_ag",
    }  # fmt: skip
    with pytest.raises(DocumentError) as error:
        imported(ALL_REDUCED[0], tmp_path, **wanted)
    assert [issue.where for issue in error.value.issues] == [f"$.{name}" for name in wanted]
    assert "$.attention_type: found 'multiquery': shared keys and values (not supported yet)" in str(error.value)


def test_what_lies_in_the_second_memory_is_placed(tmp_path: Path) -> None:
    made = imported(ALL_REDUCED[0], tmp_path, activations_offload=True, optimizer_offload=True)
    assert made.options()["place"] == {
        "activations": "memory2", "gradients": "memory2", "optimizer": "memory2"
    }  # fmt: skip
    assert made.assumptions.offload == "calculon"
    with pytest.raises(DocumentError, match="weight_offload: found true without training"):
        imported(ALL_REDUCED[0], tmp_path, **OFF, weight_offload=True, training=False)


def test_gathered_activations_that_are_kept_are_not_gathered_again(tmp_path: Path) -> None:
    """Twice in each direction; with seq_par_ag_redo two more for the backward pass, and one for attention without."""
    for redo, recompute, times in ((True, "attn_only", 4), (False, "attn_only", 3), (False, "none", 2)):
        made = imported(SCATTERED, tmp_path, seq_par_ag_redo=redo, activation_recompute=recompute)
        assert made.assumptions.backward_gathers == ("layer" if redo else "kept_calculon")
        assert judged(made).collectives["all_gather.backward"] == times


@pytest.mark.parametrize(("way", "overlap"), [("ring", "ring"), ("pipe", "pipe_twice")])
def test_products_overlap_with_their_communication(way: str, overlap: str, tmp_path: Path) -> None:
    """Of a ring of 8 is left 7/8 of what the dim takes of the processor, and a little of the smallest product."""
    made = imported(SCATTERED, tmp_path, tensor_par_overlap=way)
    assert (made.assumptions.tensor_overlap, made.system.dim("network0").processor_usage) == (overlap, 0.15)
    plain = judged(replace(made, assumptions=made.assumptions.with_(tensor_overlap=None)))
    shown = sum(one.network_s for one in judged(made).partitions) / sum(one.network_s for one in plain.partitions)
    assert 0.0 <= shown - (7 / 8 * 0.15 + (2 / 8 if way == "pipe" else 0.0)) < 0.01
    assert [kernel.name for kernel in made.graph.kernels if kernel.op == "gemm"][:2] == ["QKV", "Projection"]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"num_procs": 32}, r"\$\.num_procs: found 32, but tensor_par x pipeline_par x data_par is 64"),
        ({"batch_size": 63, "microbatch_size": 2}, r"\$\.batch_size: found 63, no multiple of data_par x microbatch"),
        ({"pipeline_par": 1, "num_procs": 8, "pipeline_interleaving": 2}, "found 2 without a pipeline"),
        ({"seq_par_ag_redo": True}, "which gathers nothing"),
        ({"pipeline_par_net": 7}, r"\$\.pipeline_par_net: found 7, but the system has 2 networks"),
        ({"pipeline_par_net": 0}, r"\$\.tensor_par_net: found degrees of 64 in all on network 0, which has 8"),
        ({"tensor_par": 0}, r"\$\.tensor_par: .*expected a number of 1 or more"),
        ({"microbatch_size": "1"}, r"\$\.microbatch_size: "),
        ({"microbatches": 4}, r"\$\.microbatches: unknown key"),
        ({"datatype": "float8"}, r"a100_80g.json: .*\n.*\$\.matrix: computes in float16, not in float8"),
    ],
)
def test_executions_that_cannot_be(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=words):
        imported(ALL_REDUCED[0], tmp_path, **{**OFF, **changes})


@pytest.mark.parametrize(
    "place, value, words",
    [
        (("networks", 0, "ops", "all_reduce"), [2.0], r"\$\.networks\[0\]\.ops\.all_reduce"),
        (("networks", 0, "ops", "p2p"), [1.0, 0], r"\$\.networks\[0\]\.ops\.p2p"),
        (("networks", 0, "ops", "all_to_all"), [1.0, 0], r"\$\.networks\[0\]\.ops\.all_to_all: unknown key"),
        (("networks", 0, "efficiency"), 1.5, r"\$\.networks\[0\]\.efficiency"),
        (("networks", 1, "size"), 12, r"\$\.networks\[1\]\.size: found 12, no multiple of the 8 processors"),
        (("matrix", "float16", "gflops_efficiency"), [[1, 0.6], [16, 0.9], [0, 0.1]], "found a size of 16 behind 1"),
        (("matrix", "float16", "gflops_efficiency"), [[1, 0.6]], "so smaller ones have no share"),
        (("mem1", "MB_efficiency"), [[10, 0.5]], r"\$\.mem1\.MB_efficiency"),
        (("mem1", "GiB"), 0, r"\$\.mem1\.GiB: found 0"),
        (("mem2", "GBps"), 9999, r"\$\.mem2\.GBps: found 9999, more than the 2048 of mem1"),
        (("vector", "float16", "tflops"), 400, r"\$\.vector\.float16\.tflops: found 400 TFLOP/s, more than the 312"),
        (("processing_mode",), "overlap", r"\$\.processing_mode"),
        (("matrix", "float16"), None, r"\$\.matrix\.float16"),
        (("vectors",), {}, r"\$\.vectors: unknown key.*did you mean 'vector'"),
    ],
)
def test_systems_that_cannot_be(place: tuple[str | int, ...], value: Any, words: str, tmp_path: Path) -> None:
    data = json.loads((HERE / "a100_80g.json").read_text(encoding="utf-8"))
    part = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(DocumentError, match=words):
        load_case(HERE / "gpt3-175B.json", written(data, tmp_path))


@pytest.mark.parametrize(
    "change, words", [({"vocab": 1}, r"\$\.vocab: unknown key"), ({"hidden": None}, r"\$\.hidden")]
)
def test_applications_that_cannot_be(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = json.loads((HERE / "gpt3-175B.json").read_text(encoding="utf-8")) | change
    with pytest.raises(DocumentError, match=words):
        load_case(written(data, tmp_path), HERE / "a100_80g.json")
