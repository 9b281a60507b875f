"""What configs say of their quantization: types of the graph, found out weight by weight, or a refusal by its path."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.dtypes import Dtypes
from dfopt.errors import DocumentError
from dfopt.frontends.hf import read, recipe
from dfopt.workloads import load_graph

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "hf"
FILES: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
LLAMA, EXPERTS = FILES["llama-3.1-8b"], FILES["qwen3-30b-a3b"]
LATENT = {name: value for name, value in FILES["deepseek-v3"].items() if name != "quantization_config"}
NVFP4 = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
MODELOPT: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
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


def refusal(config: dict[str, Any], said: dict[str, Any]) -> str:
    with pytest.raises(DocumentError) as caught:
        recipe(config | {"quantization_config": said}, "m.json")
    return str(caught.value)


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
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, {"weights": "int4_g128_zp"}),
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
        "awq": {
            "quant_method": "awq",
            "bits": 4,
            "group_size": 128,
            "zero_point": True,
            "modules_to_not_convert": names,
        },
    }[style]
    narrow = "int4_g128_zp" if style == "awq" else "nvfp4"
    apart = any((part in kept) not in ("mixer" in kept, "experts" in kept) for part in ("dense", "shared"))
    if forgotten or apart:
        assert "$.quantization_config" in refusal(SMALL, said)
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
        (LLAMA, {"quant_method": "bitsandbytes"}, "$.quantization_config.quant_method: found 'bitsandbytes', expected"),
        (LLAMA, {}, "$.quantization_config.quant_method: missing"),
        (LLAMA, MODELOPT | {"quant_algo": "NVFP3"}, "$.quantization_config.quant_algo: found 'NVFP3', expected MIXED"),
        (LLAMA, MODELOPT | {"group_size": 32}, "$.quantization_config.group_size: found 32, expected that of NVFP4"),
        (LLAMA, MODELOPT | {"bits": 4}, "$.quantization_config.bits: not understood, and could change a size"),
        (LLAMA, MODELOPT | {"ignore": ["decoder.x*"]}, "$.quantization_config.ignore[0]: found 'decoder.x*', expected"),
        (LLAMA, MODELOPT | {"ignore": [3]}, "$.quantization_config.ignore[0]: found 3, expected a name"),
        (
            LLAMA,
            MODELOPT | {"ignore": ["lm_head", "model.layers.7.self_attn*"]},
            "$.quantization_config.ignore[1]: found attention of two types",
        ),
        (LLAMA, MODELOPT | {"kv_cache_quant_algo": "FP6"}, "$.quantization_config.kv_cache_quant_algo: found 'FP6'"),
        (LLAMA, compressed(FP8, {"num_bits": 3}), "config_groups.group_0.input_activations: found {"),
        (LLAMA, compressed({"num_bits": 4, "type": "int", "group_size": 48}), "config_groups.group_0.weights: found {"),
        (LLAMA, compressed(INT4, sparsity_config={"a": 1}), "$.quantization_config.sparsity_config: found"),
        (LLAMA, compressed(INT4, ignore=["re:.*(x"]), "$.quantization_config.ignore[0]: found 're:.*(x', expected"),
        (
            LLAMA,
            MODELOPT | {"config_groups": {"group_0": {"weights": FP8, "input_activations": FP8}}},
            "$.quantization_config.config_groups: found {",
        ),
        (
            LLAMA,
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"x": {"quant_algo": "A"}},
            },
            "$.quantization_config.quantized_layers.x: found",
        ),
        (FILES["gpt-oss-20b"], {"quant_method": "mxfp4", "a": 1}, "$.quantization_config.a: not understood"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_path(
    config: dict[str, Any], said: dict[str, Any], message: str
) -> None:
    assert message in refusal(config, said)


def test_modules_of_two_schemes_are_those_of_two_classes() -> None:
    layers = {f"model.layers.{n}.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16} for n in range(48)}
    layers |= {f"model.layers.{n}.self_attn": {"quant_algo": "FP8"} for n in range(48)}
    said = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert dtypes(EXPERTS, said) == {"weights": "fp8", "experts": "nvfp4", "operands": "nvfp4"}
    layers["model.layers.3.mlp.experts"] = {"quant_algo": "FP8"}
    assert "quantized_layers.model.layers.3.mlp.experts: found experts of two types" in refusal(EXPERTS, said)
    weightonly = {name: {"quant_algo": "W8A16"} if "attn" in name else one for name, one in layers.items()}
    weightonly["model.layers.3.mlp.experts"] = {"quant_algo": "NVFP4"}
    assert "found products of" in refusal(EXPERTS, said | {"quantized_layers": weightonly})


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
