"""What configs say of their quantization: types of the graph, found out weight by weight, or a refusal by its path."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hf_configs import FILES, refusal, without
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.dtypes import Dtypes
from dfopt.errors import DocumentError
from dfopt.frontends.hf import read, recipe
from dfopt.workloads import expand, load_graph

LLAMA, EXPERTS = FILES["llama-3.1-8b"], FILES["qwen3-30b-a3b"]
LATENT = without(FILES["deepseek-v3"], "quantization_config")
# quantization_config of Qwen/Qwen3-30B-A3B-FP8, less the modules of all layers but the first
BLOCKS: dict[str, Any] = {
    "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
    "modules_to_not_convert": [
        "lm_head", "model.layers.0.input_layernorm", "model.layers.0.mlp.gate",
        "model.layers.0.post_attention_layernorm",
    ],
}  # fmt: skip
NVFP4 = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
MODELOPT: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
# as llm-compressor writes them
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def compressed(weights: Any, activations: Any = None, **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


def typed(config: dict[str, Any], said: dict[str, Any] | None = None) -> dict[str, Any]:
    config = config if said is None else config | {"quantization_config": said}
    parameters: dict[str, Any] = recipe(config, "m.json")["parameters"]
    return parameters


def dtypes(config: dict[str, Any], said: dict[str, Any] | None = None) -> dict[str, str]:
    found: dict[str, str] = typed(config, said)["dtypes"]
    Dtypes(**found)  # types that graphs have
    return {name: kind for name, kind in found.items() if name not in ("activations", "ends")}


def refused(config: dict[str, Any], said: Any) -> str:
    return refusal(config | {"quantization_config": said})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (MODELOPT, {"weights": "nvfp4", "operands": "nvfp4"}),
        (MODELOPT | {"kv_cache_quant_algo": "FP8"}, {"weights": "nvfp4", "operands": "nvfp4", "kv": "fp8"}),
        (
            MODELOPT | {"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}},
            {"weights": "fp8", "operands": "fp8", "kv": "fp8"},
        ),
        ({"producer": {"name": "modelopt"}, "quant_algo": "FP8"}, {"weights": "fp8", "operands": "fp8"}),
        (MODELOPT | {"quant_algo": "W4A16_AWQ", "group_size": 128}, {"weights": "int4_g128"}),
        (compressed(FP8, FP8 | {"strategy": "token", "dynamic": True}), {"weights": "fp8", "operands": "fp8"}),
        (compressed(INT4, format="pack-quantized"), {"weights": "int4_g128"}),
        (compressed(INT4 | {"symmetric": False, "group_size": 32}), {"weights": "int4_g32_zp"}),
        (compressed(NVFP4, NVFP4 | {"dynamic": "local"}), {"weights": "nvfp4", "operands": "nvfp4"}),
        (compressed(FP8 | {"strategy": "block", "block_structure": [128, 128]}), {"weights": "fp8_128x128"}),
        (AWQ, {"weights": "int4_g128_zp"}),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True, "desc_act": False},
            {"weights": "int4_g64"},
        ),
    ],
)
def test_a_description_is_types_of_the_graph(said: dict[str, Any], found: dict[str, str]) -> None:
    assert dtypes(LLAMA, said) == found
    assert typed(LLAMA, said)["dtypes"]["ends"] == "bf16"


@pytest.mark.parametrize(
    ("name", "found", "inside"),
    [
        ("minimax-m2.5-nvfp4", {"experts": "nvfp4", "operands": "nvfp4", "kv": "fp8"}, {}),
        ("gemma-4-26b-a4b-nvfp4", {"experts": "nvfp4", "operands": "nvfp4", "kv": "fp8"}, {"shared_norms": True}),
        ("gemma-4-31b-nvfp4", {"experts": "nvfp4", "operands": "nvfp4", "kv": "fp8"}, {"typed": "experts"}),
        ("kimi-k2.6-nvfp4", {"experts": "nvfp4", "operands": "nvfp4", "kv": "fp8"}, {"shared_apart": True}),
        ("kimi-k2.5", {"experts": "int4_g32"}, {"shared_apart": True}),
    ],
)
def test_what_is_left_as_it_is_keeps_its_type(name: str, found: dict[str, str], inside: dict[str, Any]) -> None:
    assert dtypes(FILES[name]) == {"weights": "bf16"} | found
    last = [*typed(FILES[name])["layers"].values()][-1]["feed_forward"]
    assert {key: last.get(key) for key in inside} == inside


_MLP = [f"{name}_proj" for name in ("gate", "up", "down")]
PARTS = {
    "mixer": [f"self_attn.{name}_proj" for name in ("q_a", "q_b", "kv_b", "o")] + ["self_attn.kv_a_proj_with_mqa"],
    "dense": [f"mlp.{name}" for name in _MLP],
    "experts": ["mlp.experts"],
    "shared": [f"mlp.shared_experts.{name}" for name in _MLP],
}
SMALL = LATENT | {"num_hidden_layers": 4, "first_k_dense_replace": 1, "n_routed_experts": 2, "num_experts_per_tok": 1}
ALL_EXPERTS = {"modelopt": "{}*", "compressed": "re:{}.*", "awq": "{}"}


def weights(kept: set[str], style: str) -> list[str]:
    """The weights of some parts by name, of a model of a dense layer and three of experts."""
    found = []
    for number in range(4):
        for part in ("mixer", "experts" if number else "dense", *(["shared"] if number else [])):
            names = [f"model.layers.{number}.{name}" for name in PARTS[part] if part in kept]
            found += [ALL_EXPERTS[style].format(name) if part == "experts" else name for name in names]
    return found


@given(st.sets(st.sampled_from(sorted(PARTS))), st.sampled_from(sorted(ALL_EXPERTS)), st.data())
def test_lists_of_names_mean_what_they_say(kept: set[str], style: str, data: st.DataObject) -> None:
    """Parts whose weights are all named keep the type of all else; of one name less the file is refused."""
    names = weights(kept, style)
    forgotten = data.draw(st.sampled_from(names)) if names and data.draw(st.booleans()) else ""
    names = data.draw(st.permutations([name for name in [*names, "lm_head"] if name != forgotten]))
    said = {
        "modelopt": MODELOPT | {"ignore": [], "exclude_modules": names},
        "compressed": compressed(NVFP4, NVFP4) | {"ignore": names},
        "awq": AWQ | {"modules_to_not_convert": names},
    }[style]
    narrow = "int4_g128_zp" if style == "awq" else "nvfp4"
    apart = any((part in kept) not in ("mixer" in kept, "experts" in kept) for part in ("dense", "shared"))
    if forgotten or apart:
        assert "$.quantization_config" in refused(SMALL, said)
        return
    found = typed(SMALL, said)
    types, layers = Dtypes(**found["dtypes"]), found["layers"]
    dense, routed = (layers[name]["feed_forward"] for name in ("dense", "experts"))
    classes = {"mixer": "weights", "experts": "experts", "dense": dense.get("typed", "weights")}
    classes["shared"] = "weights" if routed.get("shared_apart") else "experts"
    for part, of in classes.items():
        assert types.of("experts" if of == "experts" else "weights") == ("bf16" if part in kept else narrow)
    assert types.operands == (None if style == "awq" or len(kept) == 4 else "nvfp4")


def test_an_mlp_beside_the_experts_may_have_their_type() -> None:
    config = FILES["gemma-4-26b-a4b-nvfp4"]
    kept = [name for name in config["quantization_config"]["ignore"] if not name.endswith("mlp*")]
    found = typed(config, config["quantization_config"] | {"ignore": kept})
    inside = found["layers"]["local"]["feed_forward"]
    assert inside["shared_typed"] == "experts" and "shared_apart" not in inside
    assert Dtypes(**found["dtypes"]).of("experts") == "nvfp4" and Dtypes(**found["dtypes"]).of("weights") == "bf16"


@pytest.mark.parametrize(
    ("config", "said", "message"),
    [
        (LLAMA, {"quant_method": "bitsandbytes"}, ".quant_method: found 'bitsandbytes', expected"),
        (LLAMA, {}, ".quant_method: missing"),
        (LLAMA, {"quant_method": "fp8"}, ".fmt: missing (it has no default)"),
        (LLAMA, "fp8", ": found 'fp8', expected null, or a mapping"),
        (LLAMA, BLOCKS | {"bits": 4}, ".bits: not understood"),
        (LLAMA, BLOCKS | {"quant_method": "hqq"}, ".quant_method: found 'hqq'"),
        (LLAMA, BLOCKS | {"weight_block_size": [64, 64]},
         ".weight_block_size: found a list of 2, expected [128, 128] or null"),
        (LLAMA, BLOCKS | {"modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.q_proj"]},
         ".modules_to_not_convert[1]: found attention of two types, as wide as all else (model.layers.0.self_attn"),
        (LLAMA, MODELOPT | {"quant_algo": "NVFP3"}, ".quant_algo: found 'NVFP3', expected MIXED"),
        (LLAMA, MODELOPT | {"group_size": 32}, ".group_size: found 32, expected that of NVFP4"),
        (LLAMA, MODELOPT | {"bits": 4}, ".bits: not understood, and could change a size"),
        (LLAMA, MODELOPT | {"ignore": ["decoder.x*"]}, ".ignore[0]: found 'decoder.x*', expected"),
        (LLAMA, MODELOPT | {"ignore": [3]}, ".ignore[0]: found 3, expected a name"),
        (LLAMA, MODELOPT | {"ignore": ["lm_head", "model.layers.7.self_attn*"]},
         ".ignore[1]: found attention of two types"),
        (LLAMA, MODELOPT | {"kv_cache_quant_algo": "FP6"}, ".kv_cache_quant_algo: found 'FP6'"),
        (LLAMA, MODELOPT | {"config_groups": {"group_0": {"weights": FP8, "input_activations": FP8}}},
         ".config_groups: found {"),
        (LLAMA, MODELOPT | {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"x": {"quant_algo": "A"}}},
         ".quantized_layers.x: found"),
        (LLAMA, compressed(FP8, {"num_bits": 3}), ".config_groups.group_0.input_activations: found {"),
        (LLAMA, compressed(INT4 | {"group_size": 48}), ".config_groups.group_0.weights: found {"),
        (LLAMA, compressed(INT4, sparsity_config={"a": 1}), ".sparsity_config: found"),
        (LLAMA, compressed(INT4, ignore=["re:.*(x"]), ".ignore[0]: found 're:.*(x', expected"),
        (FILES["gpt-oss-20b"], {"quant_method": "mxfp4"}, ".modules_to_not_convert: found"),
        (FILES["gpt-oss-20b"], {"quant_method": "mxfp4", "a": 1}, ".a: not understood"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_its_path(config: dict[str, Any], said: Any, message: str) -> None:
    assert f"$.quantization_config{message}" in refused(config, said)


@pytest.mark.parametrize(
    ("change", "weights", "operands"),
    [
        ({}, "fp8_128x128", "fp8_1x128"),
        ({"scale_fmt": "ue8m0"}, "fp8_128x128_ue8m0", "fp8_1x128_ue8m0"),
        ({"weight_block_size": None, "activation_scheme": "static"}, "fp8", "fp8"),
    ],
)
@pytest.mark.parametrize("wide, name", [("bfloat16", "bf16"), ("float32", "fp32")])
def test_quantized_weights_are_types_of_the_graph(
    change: dict[str, Any], weights: str, operands: str, wide: str, name: str
) -> None:
    found = recipe(EXPERTS | {"quantization_config": BLOCKS | change, "torch_dtype": wide}, "m.json")
    types = {"weights": weights, "operands": operands, "activations": name, "ends": name}
    assert found["parameters"]["dtypes"] == types and "word_bytes" not in found["parameters"]
    assert f"weights in {weights}, with the routers" in found["description"]
    graph = expand(found | {"parameters": found["parameters"] | {"phase": "decode"}})
    assert graph.dtypes == Dtypes(**types)


def test_modules_of_two_schemes_are_those_of_two_classes() -> None:
    layers = {f"model.layers.{n}.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16} for n in range(48)}
    layers |= {f"model.layers.{n}.self_attn": {"quant_algo": "FP8"} for n in range(48)}
    said = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert dtypes(EXPERTS, said) == {"weights": "fp8", "experts": "nvfp4", "operands": "nvfp4"}
    layers["model.layers.3.mlp.experts"] = {"quant_algo": "FP8"}
    assert "quantized_layers.model.layers.3.mlp.experts: found experts of two types" in refused(EXPERTS, said)
    weightonly = {name: {"quant_algo": "W8A16"} if "attn" in name else one for name, one in layers.items()}
    weightonly["model.layers.3.mlp.experts"] = {"quant_algo": "NVFP4"}
    assert "found products of" in refused(EXPERTS, said | {"quantized_layers": weightonly})


def test_types_may_stand_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    beside = tmp_path / "hf_quant_config.json"
    inside = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": inside}))
    types = {"weights": "fp8", "operands": "fp8", "activations": "bf16", "ends": "bf16", "kv": "fp8"}
    assert read(tmp_path)["parameters"]["dtypes"] == types
    assert load_graph(tmp_path, phase="decode").dtypes == Dtypes(**types)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"quantization_config": MODELOPT}))
    with pytest.raises(DocumentError, match="found other types than quantization_config"):
        read(tmp_path)
    beside.write_text(json.dumps({"quantization": {"quant_algo": "FP9"}}))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(DocumentError, match=re.escape("$.quantization.quant_algo: found 'FP9'")) as caught:
        load_graph(tmp_path)
    assert "hf_quant_config.json" in str(caught.value)


def test_a_dense_decoder_of_two_types_is_a_stack() -> None:
    """Attention in bf16 and MLPs in nvfp4: the same layers otherwise."""
    found = recipe(LLAMA | {"quantization_config": MODELOPT | {"ignore": ["*.self_attn*", "lm_head"]}}, "m.json")
    assert found["workload"] == "stack" and "dense MLPs in nvfp4, all else in bf16" in found["description"]
    assert found["description"].startswith("llama with 8.03 billion parameters")
    layer = found["parameters"]["layers"]["layer"]
    assert layer["feed_forward"]["typed"] == "experts" and layer["mixer"]["kv_heads"] == 8
