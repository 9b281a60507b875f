"""Configs of models whose layers differ: DeepSeek-V3 and gpt-oss-20b, as published (``tests/golden/hf``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
from dfopt.errors import DocumentError
from dfopt.frontends.hf import COSMETIC, FAMILIES, recipe
from dfopt.search.verify import verify
from dfopt.workloads import expand
from dfopt.workloads.stack import StackParameters, counts

FILE = Path(__file__).resolve().parents[1] / "golden" / "hf" / "deepseek-v3.json"
CONFIG: dict[str, Any] = json.loads(FILE.read_text())
FAMILY = FAMILIES["deepseek_v3"]


def test_its_sizes_are_those_that_were_published() -> None:
    """671 billion parameters and 37 active ones (arXiv 2412.19437), 576 numbers of a token in each of 61 layers."""
    found = counts(StackParameters(**recipe(CONFIG, FILE)["parameters"]))
    assert found.parameters == pytest.approx(671e9, rel=0.015)
    assert found.active == pytest.approx(37e9, rel=0.02)
    assert found.bytes_per_token == 61 * (512 + 64) * 2
    assert "671 billion parameters, of which a token uses 36.63" in recipe(CONFIG, FILE)["description"]


def test_its_layers_are_dense_and_then_of_experts() -> None:
    graph = expand(recipe(CONFIG, FILE))
    assert [(one.layers, one.repeat) for one in graph.sections or ()] == [(("dense",), 3), (("experts",), 58)]
    assert {kernel.experts.count for kernel in graph.kernels if kernel.experts} == {257}  # the shared one among them


def test_decode_on_eight_chips_is_proven_and_checked() -> None:
    graph = df.load_graph(FILE, phase="decode", context=4096, microbatch=16, batch=16)
    result = df.optimize(graph, "h200-8", tp=8, sensitivity=False)
    assert result.status == "optimal" and result.gap == 0
    assert "layers of a kind alike" in result.proof
    assert [stage.runs for stage in result.score.stages] == [{0: 3, 1: 58, 2: 1, 3: 1}]
    found = verify(result)
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


@pytest.mark.parametrize("kind", ["deepseek_v32", "glm_moe_dsa"])
def test_an_indexer_has_weights_and_keys_of_its_own(kind: str) -> None:
    """In each of 61 layers: queries of 64 heads, one key of 128 features and its norm, and a weight for each head."""
    indexer = {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    known = {name: value for name, value in CONFIG.items() if name != "auto_map"}
    sparse, dense = (
        counts(StackParameters(**recipe(data, FILE)["parameters"]))
        for data in (known | indexer | {"model_type": kind}, CONFIG)
    )
    assert sparse.parameters - dense.parameters == 61 * (1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128)
    assert sparse.bytes_per_token - dense.bytes_per_token == 61 * 128 * 2
    with pytest.raises(DocumentError, match="index_topk: missing"):
        recipe(known | {"model_type": kind, "index_n_heads": 64, "index_head_dim": 128}, FILE)


@pytest.mark.parametrize("field", sorted(CONFIG))
@pytest.mark.parametrize("what", ["removed", "renamed"])
def test_no_field_is_taken_for_granted(field: str, what: str) -> None:
    """What is left out is refused or said; what is called otherwise is refused unless it changes no size."""
    data = {key: value for key, value in CONFIG.items() if key != field}
    free = field in COSMETIC or field in FAMILY.words
    data |= {} if what == "removed" else {f"{field}_x": CONFIG[field]}
    refused = ""
    try:
        found = recipe(data, FILE)
    except DocumentError as error:
        refused = str(error)
    if refused:
        assert field in refused
        return
    assert what == "removed"
    harmless = not free and not FAMILY.fields[field].needed and FAMILY.fields[field].gives(CONFIG[field]) == {}
    said = f"{field} {str(FAMILY.left_out.get(field)).lower()}" in found["description"]
    assert free or said or harmless or field == "quantization_config"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"moe_layer_freq": 2}, "$.moe_layer_freq: found 2, expected 1"),
        ({"q_lora_rank": 0}, "$.q_lora_rank: found 0, expected null, or a whole number"),
        ({"first_k_dense_replace": -1}, "$.first_k_dense_replace: found -1"),
        ({"n_routed_experts": "256"}, "$.n_routed_experts: found '256'"),
        ({"num_nextn_predict_layers": -1}, "$.num_nextn_predict_layers: found -1, expected a whole number from 0 on"),
        ({"index_topk": 2048}, "$.index_topk: not understood"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        recipe(CONFIG | change, FILE)
    assert said in str(caught.value)


OSS: dict[str, Any] = json.loads((FILE.parent / "gpt-oss-20b.json").read_text())


def test_gpt_oss_has_local_and_global_layers_of_experts() -> None:
    """20.9 billion parameters, 3.6 of a token (arXiv 2508.10925); a window of 128 tokens in every other layer."""
    found = recipe(OSS, "gpt-oss-20b/config.json")
    p = StackParameters(**found["parameters"])
    assert counts(p).parameters == pytest.approx(20.9e9, rel=0.015)
    assert counts(p).active == pytest.approx(3.6e9, rel=0.02)
    assert found["parameters"]["sections"] == [{"layers": ["local", "global"], "repeat": 12}]
    assert found["parameters"]["dtypes"]["experts"] == "mxfp4"
    assert (
        "experts in mxfp4, all else in bf16, 49152 B kept of a token; the config leaves out torch_dtype bfloat16"
        in found["description"]
    )
    graph = df.load_graph(FILE.parent / "gpt-oss-20b.json", phase="decode", context=4096, microbatch=8, batch=8)
    held = {s.tokens for kernel in graph.kernels for s in kernel.states or ()}
    assert min(held) <= 128 < max(held)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_types": ["full_attention"]}, "$.layer_types: found 1 of 24 layers"),
        ({"layer_types": ["linear_attention"] * 24}, "$.layer_types: found a list of 24, expected"),
        ({"experts_per_token": 8}, "$.num_experts_per_tok: found 4, but experts_per_token says 8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "modules_to_not_convert: found"),
        ({"attention_bias": False}, "$.attention_bias: found false, expected true"),
    ],
)
def test_what_gpt_oss_does_not_have_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        recipe(OSS | change, FILE)
    assert said in str(caught.value)
