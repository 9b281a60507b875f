"""Types of Hugging Face models: the sizes that were published, and nothing that is taken for granted in silence."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

import pytest
from hf_changes import Change, explained, explains_a_change
from hf_configs import CONFIGS, ENCODERS, FILES, PUBLISHED, Config, inner, without
from hypothesis import given
from hypothesis import strategies as st
from strategies import share

import dfopt as df
from dfopt.frontends.hf import FAMILIES, recipe
from dfopt.frontends.hf.wrapped import WRAPPERS
from dfopt.workloads import expand
from dfopt.workloads.decoder import DecoderParameters, as_stack
from dfopt.workloads.stack import StackParameters, counts


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_as_large_as_published(name: str) -> None:
    model, found = PUBLISHED[name], recipe(CONFIGS[name], "m.json")
    decoder = found["workload"] == "decoder"
    parameters = DecoderParameters(**found["parameters"]) if decoder else StackParameters(**found["parameters"])
    size = counts(as_stack(parameters) if isinstance(parameters, DecoderParameters) else parameters)
    assert size.parameters / 1e9 == pytest.approx(model.parameters, rel=2e-3 if name in ENCODERS else 0.015)
    assert model.active is None or size.active / 1e9 == pytest.approx(model.active, rel=0.02)
    assert model.kept_bytes in (None, size.bytes_per_token)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_is_read_at_once_and_drawn(name: str) -> None:
    began = time.process_time()
    found = recipe(CONFIGS[name], "m.json")
    assert time.process_time() - began < 0.2
    phase = {} if name in ENCODERS else {"phase": "decode", "context": 300}
    assert expand(found | {"parameters": found["parameters"] | phase}).kernels


def test_every_type_is_tried() -> None:
    untried = set(FAMILIES) - {inner(config)["model_type"] for config in CONFIGS.values()}
    # as others are: with experts or without, Mamba, DeepSeek-V3 and V4, XLM-R, ViT; or in files that were saved
    alike = {
        "qwen3_5_text",
        "qwen3_vl_moe_text",
        "falcon_mamba",
        "deepseek_ref",
        "deepseek_v32",
        "roberta",
        "camembert",
    }
    alike |= {"deit", "glm", "glm4v_text", "glm4v_moe_text", "qwen2_vl_text", "qwen2_5_vl_text", "minimax_m3_vl_text"}
    assert untried == alike
    assert {kind for wrapper in WRAPPERS.values() for kind in wrapper.texts} <= set(FAMILIES)


ZOO = ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen3.5-35b-a3b", "nemotron-h-56b",
       "nemotron-3-super", "deepseek-v4-flash")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *((name, {"seq": 2048, "phase": "prefill"}) for name in ZOO),
        *((name, {"seq": 2048, "phase": "decode", "context": 4096}) for name in ZOO),
        ("bert-base", {"seq": 384, "batch": 8}),
        ("whisper-large-v3", {"phase": "prefill", "seq": 100, "batch": 8}),
        ("whisper-large-v3", {"phase": "decode", "context": 100, "batch": 8}),
    ],
)
def test_a_config_is_the_model_of_the_zoo(name: str, asked: Config, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    drawn, known = (df.load_graph(graph, **asked) for graph in (tmp_path, name))
    same = ("kernels", "tensors", "sections", "carried", "repeat", "word_bytes")
    assert [getattr(drawn, field) for field in same] == [getattr(known, field) for field in same]


@given(st.sampled_from(sorted(CONFIGS)), st.data())
@share(4.0)  # of decoders, states, encoders and the rest
def test_nothing_is_taken_for_granted_in_silence(name: str, data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[name])
    part = inner(config)
    explains_a_change(config, config if data.draw(st.booleans()) else part, part["model_type"], data)


@pytest.mark.parametrize("field", sorted(FILES["deepseek-v3"]))
@pytest.mark.parametrize("what", ["removed", "renamed"])
def test_no_field_of_deepseek_v3_is_taken_for_granted(field: str, what: str) -> None:
    before = FILES["deepseek-v3"]
    config = without(before, field) | ({} if what == "removed" else {f"{field}_": before[field]})
    refused = explained(before, config, config, "deepseek_v3", Change(what, field, before[field]))
    assert field in (refused or field)
