"""Tables of measured steps: every form is read, and what is not taken says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dfopt.calibration.row import RunModel, TrainingRow, Untaken
from dfopt.calibration.rows import read_rows
from dfopt.calibration.steps import graph_of, row_machine, step_of
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.score import Score
from dfopt.errors import Infeasible, PlanError
from dfopt.machines.fields import with_fields

DATA = Path(__file__).parents[2] / "benchmarks" / "reference" / "data"
REPORTED = (
    "model,params,layers,hidden,heads,kv_heads,ffn,seq,gbs,mbs,tp,pp,cp,ep,dp,vp,gpus,system,precision,recompute,"
    "reported_quantity,value,unit,source_url,confidence,fsdp,note,experts,vocab"
)


def reported(tmp_path: Path, **changes: object) -> TrainingRow | Untaken:
    """A row of 8 chips, with some cells changed, of a table that has columns for them."""
    cells: dict[str, object] = dict(
        model="m", params=6.5e9, layers=32, hidden=4096, heads=32, kv_heads=32, ffn=16384, seq=2048, gbs=64, mbs=8,
        tp=1, pp=1, cp=1, ep=1, dp=8, vp=1, gpus=8, system="a100_80gb (x)", precision="bf16", recompute="full",
        reported_quantity="tokens_per_s_per_gpu", value=2048, unit="", source_url="https://a/b", confidence="read",
        fsdp=8, note="FlashAttention", experts="", vocab=50368,
    ) | changes  # fmt: skip
    columns = [*REPORTED.split(","), *(name for name in changes if name not in REPORTED.split(","))]
    path = tmp_path / "table.csv"
    path.write_text(f"{','.join(columns)}\n{','.join(str(cells[name]) for name in columns)}\n", encoding="utf-8")
    (row,) = read_rows(path)
    return row


def taken(tmp_path: Path, **changes: object) -> TrainingRow:
    """A row as above, which is taken."""
    row = reported(tmp_path, **changes)
    assert isinstance(row, TrainingRow), row
    return row


def test_committed_tables_are_taken_whole() -> None:
    korthikanti, vtrain = (read_rows(DATA / name) for name in ("korthikanti_table5.csv", "vtrain_175b.csv"))
    assert [len(korthikanti), len(vtrain)] == [8, 21]
    assert all(isinstance(row, TrainingRow) for row in (*korthikanti, *vtrain))
    first = korthikanti[1]
    assert isinstance(first, TrainingRow)
    assert (first.tensor, first.microbatch, first.seconds) == (8, 4, 1.1)
    assert (first.recompute, first.sequence_parallelism) == ("attention", "allow")
    other = vtrain[0]
    assert isinstance(other, TrainingRow)
    assert (other.recompute, other.interleave) == ("full", 1) and other.seconds == pytest.approx(54.2559)


@pytest.mark.parametrize(
    "quantity, value, seconds",
    [
        ("step_time", 3.5, 3.5),
        ("tokens_per_s_per_gpu", 2048, 8.0),  # 64 x 2048 tokens at 8 x 2048 tokens/s
        # 3 passes x 131072 tokens x (2 (32 x 12 x 4096^2 + 50368 x 4096) + 4 x 32 x 4096 x 2048) FLOP, on 8 chips
        ("model_tflops_per_gpu", 100, 3 * 131072 * (2 * (384 * 4096**2 + 50368 * 4096) + 2**30) / 8e14),
    ],
)
def test_throughput_becomes_seconds(tmp_path: Path, quantity: str, value: float, seconds: float) -> None:
    row = taken(tmp_path, reported_quantity=quantity, value=value)
    assert row.seconds == pytest.approx(seconds)
    assert (row.zero, row.recompute) == (3, "full+attention")
    assert row.unmodelled == ("overlap of parameter gathers",) and row.overlaps_gradients
    assert row.library_attention and row.causal and not row.scores_dropout


def test_the_mlp_is_as_the_parameters_say(tmp_path: Path) -> None:
    plain, gated = taken(tmp_path), taken(tmp_path, params=6.74e9, ffn=11008, vocab=32000)
    assert (plain.model.gated_mlp, gated.model.gated_mlp) == (False, True)
    assert not gated.model.tie_embeddings


def test_a_recipe_says_what_gradients_are_held_in_and_what_copies_share_out(tmp_path: Path) -> None:
    """Megatron-core has a buffer of the type that gradients are reduced in, to which microbatches add."""
    said = {"recipe_grad_reduce_in_fp32": "False", "recipe_distributed_optimizer": "True", "fsdp": 0, "recompute": ""}
    row = taken(tmp_path, **said)
    assert (row.zero, row.main_gradients) == (1, "bf16")
    assert graph_of(row, 1, "none").main_gradients == "bf16"
    silent = taken(tmp_path, fsdp=0)
    assert (silent.zero, silent.main_gradients) == (None, None) and graph_of(silent, 1, "none").main_gradients == "fp32"


def test_a_model_with_latent_attention_is_that_of_the_zoo(tmp_path: Path) -> None:
    """Its ranks are in no table; 61 layers of 7168 features are checked against it."""
    sizes = dict(model="DeepSeekV3 (x)", params=671e9, layers=61, hidden=7168, heads=128, kv_heads="MLA")
    mixture = dict(experts=256, topk=8, moe_ffn=2048, vocab=129280, dp=8, fsdp=0, mbs=1, ep=8)
    row = taken(tmp_path, **sizes, **mixture)
    assert row.model.parameters == 671e9
    graph = graph_of(row, 1, "mla_up_proj+attention")
    assert graph.trains and graph.repeat == 61 and graph.microbatch == 8
    assert graph.dtypes is not None and graph.dtypes.weights == "bf16"
    with pytest.raises(PlanError, match="found 60 layers of 7168 features, but deepseek-v3 has 61"):
        graph_of(replace(row, model=replace(row.model, layers=60)), 1, "attention")
    for changes, words in (({"vp": 2}, "layers of several kinds"), ({"model": "other"}, "whose ranks are not stated")):
        odd = reported(tmp_path, **{**sizes, **mixture, **changes})
        assert isinstance(odd, Untaken) and words in odd.reason


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ({"recipe_recompute": "selective: layernorm+moe_act"}, "moe_act+layernorm+attention"),
        ({"recipe_recompute": "selective: empty list (none)"}, "attention"),
        ({"recipe_recompute": "none (modules listed but granularity unset)"}, "attention"),
        ({"recipe_remat_policy": "selective 'op': saves mm (every second mm recomputed)"}, "op+attention"),
        ({"recipe_recompute": "none", "recipe_match": "partial"}, None),  # of a run that is only near
        ({"recipe_recompute": "none", "recipe_match": "partial", "recompute": "full"}, "full+attention"),
    ],
)
def test_recipes_say_what_is_computed_again(tmp_path: Path, said: dict[str, str], again: str | None) -> None:
    row = taken(tmp_path, **{"recompute": "", **said})
    assert (row.recompute, "recomputation" in str(row.unmodelled)) == (again, False)


def test_a_loss_is_in_one_kernel_unless_the_tool_has_another_default(tmp_path: Path) -> None:
    for url, apart in (("https://github.com/NVIDIA/Megatron-LM/blob/a/b", True), ("https://github.com/a/b", False)):
        row = taken(tmp_path, source_url=url)
        assert row.loss_apart is apart
        graph = graph_of(row, 1, "attention")
        assert [kernel.dram_bytes > 0 for kernel in graph.kernels if kernel.name == "Loss"] == [apart]


def test_libraries_keep_what_products_take_or_what_they_are_given(tmp_path: Path) -> None:
    """Torchtitan reports as many GiB in 8 bits as in 16."""
    kept = {}
    for url in ("https://github.com/NVIDIA/x", "https://github.com/pytorch/torchtitan"):
        types = graph_of(taken(tmp_path, precision="mxfp8", source_url=url), 1, "attention").dtypes
        assert types is not None and types.operands == "mxfp8"
        kept[url] = types.saved
    assert list(kept.values()) == ["mxfp8", None]


def test_where_nothing_is_said_of_zero_state_is_shared_out_if_it_has_to_be() -> None:
    small = RunModel(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
    row = TrainingRow(
        "a", "b", small, "a100", 8, 1, 1, 8, batch=8, seconds=1.0, microbatch=1, interleave=1, recompute="none"
    )
    roomy = row_machine(row)
    whole, shared = (step_of(replace(row, zero=zero), Assumptions(), roomy) for zero in (0, 1))
    held = [fullest(one.result.score) for one in (whole, shared)]
    assert step_of(row, Assumptions(), roomy).assumed == () and held[1] < 0.6 * held[0]
    tight = with_fields(roomy, {"chip.dram.capacity": f"{sum(held) / 2:.0f} B"})
    assert step_of(row, Assumptions(), tight).assumed == ("zero 1",)
    with pytest.raises(Infeasible):
        step_of(replace(row, zero=0), Assumptions(), tight)


def fullest(score: Score) -> float:
    """Bytes that a chip of the fullest stage holds."""
    return max(sum(sum(tier.values()) for tier in stage.states.values()) for stage in score.stages)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"params": 12e9}, "has not 12e9 parameters"),
        ({"dp": 4}, "is not 8 chips"),
        ({"cp": 2}, "x cp 2 is not 8 chips"),
        ({"experts": 8}, "moe_ffn is not stated"),
        ({"precision": "int8"}, "precision int8"),
        ({"kv_heads": "MLA"}, "latent attention"),
        ({"system": "TPU v5p"}, "chip TPU v5p"),
        ({"confidence": "recalled"}, "confidence: recalled"),
        ({"recompute": "every second layer"}, "recompute every second layer"),
        ({"fsdp": 4}, "parameters shared by 4 of 8 copies"),
        ({"value": ""}, "value is not stated"),
        ({"value": 0}, "expected more than 0"),
        ({"layers": "many"}, "layers: found 'many'"),
    ],
)
def test_what_is_not_taken_says_why(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    row = reported(tmp_path, **changes)
    assert isinstance(row, Untaken)
    assert words in row.reason
