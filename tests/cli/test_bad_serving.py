"""What the command line says to bad input about serving: models, phases, batches, and files of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import assert_refused, call, own_folder, run
from test_bad_input import BAD, INFEASIBLE, USAGE, Case, words_of

_inside = pytest.fixture(autouse=True)(own_folder)

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 32, "torch_dtype": "bfloat16",
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
NONSENSE = """
schema: dfopt/graph/3
name: nonsense
workload: stack
parameters:
  hidden: 64
  vocab: 100
  seq: 16
  phase: {segments: [{sequences: 1, new: 4, cached: {a: 1}, sees: [0, [1]]}]}
  layers: {l: {mixer: {kind: atention, heads: 4}, feed_forward: {kind: mlp, ffn: [1, {x: 2}]}}}
  sections: [{layers: [l, {k: 1}], repeat: -2}]
"""
LLAMA = "solve llama-3.1-8b h100-8"


def of(name: str, options: str, *says: str, code: int = BAD, model: str = LLAMA) -> Case:
    return Case(name, f"{model} {options}", code, says)


CASES = [
    # --- phases
    of("no such phase", "--phase decoding", "$.parameters.phase", "found 'decoding'", "did you mean 'decode'"),
    of("context of a prompt", "--phase prefill --context 9", "$.parameters.context", "found 9", "decode and verify"),
    of("window of a decode step", "--phase decode --window 3", "$.parameters.draft", "found 3", "write phase: verify"),
    of("hit without a phase", "--hit 3", "$.parameters.hit", "found 3", "prefill only", "write phase: prefill"),
    of("hit of it all", "--phase prefill --prompt 9 --hit 9", "$.parameters.hit", "found 9", "at most 8"),
    of("prompt shorter than hit", "--phase prefill --prompt 4 --hit 9", "$.parameters.hit", "found 9", "at most 3"),
    of("context below 0", "--phase decode --context -1", "--context", "greater than or equal to 0", code=USAGE),
    of("training that serves", "--phase decode --param mode=training", "$.parameters.phase", "leave one of them out"),
    of("a phase of no language model", "--phase decode", "$.parameters.phase", "cannot be replaced", "'dlrm'",
       model="solve dlrm-a h100-8"),
    of("mixed of nothing", "--phase mixed", "$.parameters.segments", "missing", "1x512@0,16x1@4096"),
    of("a segment that is none", "--phase mixed --segments 1x8,2by3", "'2by3'", "SEQUENCESxNEW@CACHED"),
    of("a segment of no tokens", "--phase mixed --segments 1x0@4", "$.parameters.segments", "a number of 1 or more"),
    of("segments of one phase", "--phase decode --segments 1x8", "$.parameters.segments", "found 1x8@0", "mixed only"),
    of("segments that want nothing", "--phase mixed --segments 1x8:none", "no token whose logits are wanted"),
    of("tree without a root", "--phase verify --tree 1,2", "$.parameters.tree", "found a depth of 1, but none of 0"),
    of("tree of words", "--phase verify --tree 0,one", "$.parameters.tree", "found '0,one'", "a whole number"),
    of("tree beside a window", "--phase verify --tree 0,1 --window 1", "$.parameters.tree", "leave one of them out"),
    # --- batches
    of("batch of a word", "--phase decode --batch many", "--batch", "expected a number from 1 on, or max", code=USAGE),
    of("microbatch above the batch", "--phase decode --batch 8 --microbatch 16", "$.parameters.batch", "the 16 of one"),
    of("microbatch that divides nothing", "--phase decode --batch 8 --microbatch 3", "microbatches of 3", "multiple of",
       code=USAGE),
    of("batch of a model that does not fit", "--phase decode --batch max", "short by", "levers", "weights",
       code=INFEASIBLE, model="solve llama-3.1-405b h100-8"),
    of("a batch that does not fit", "--phase decode --batch 512 --context 120000", "caches of sequences", "short by",
       "levers", code=INFEASIBLE),
    of("largest batch of what keeps nothing", "--batch max", "--batch max: nothing that the graph keeps", code=USAGE,
       model="solve gpt2-small h100-8"),
    # --- types and experts
    of("type that is none", "--phase decode --param dtypes.kv=fp7", "$.parameters.dtypes.kv", "found 'fp7'", "'fp8'"),
    of("routing of no experts", "--phase decode --param routing=uniform", "$.parameters.routing", "leave it out"),
    of("routing that is none", "--phase decode --param routing=zipf", "$.parameters.routing", "found 'zipf'",
       "'power_law'", model="solve qwen3-30b-a3b h100-8"),
    of("copies of no expert", "--phase decode --param routing=uniform+0", "$.parameters.routing", "found 'uniform+0'",
       "a number of 1 or more", model="solve qwen3-30b-a3b h100-8"),
    of("copies of experts that train", "--param mode=training --param routing=uniform+8",
       "$.parameters.routing.redundant", "leave them to serving", model="solve qwen3-30b-a3b h100-8"),
    of("more copies than chips hold apart", "--phase decode --ep 2 --param routing=uniform+200",
       "200 copies of 128 experts, more than 2 chips can hold apart", code=USAGE, model="solve qwen3-30b-a3b h100-8"),
    # --- files
    Case("a chip for a system", "solve llama-3.1-8b h100", BAD, (
        "found the name of a chip", "did you mean 'h100-8'", "the design of this name is designs/h100")),
    Case("no such file", "solve nope/config.json h100-8", BAD, ("nope/config.json", "no such file", "check the")),
    Case("a folder without a model", "solve FOLDER h100-8", BAD, ("without the config.json of a model", "name a file")),
    Case("import of a folder without a model", "import hf FOLDER -o out.yaml", BAD, ("config.json", "no such file")),
    Case("import of no model", "import hf F -o out.yaml", BAD, ("$.model_type", "missing"), other="{}", suffix=".json"),
    Case("nonsense within nonsense", "solve F h100-8", BAD, (
        "6 problems", "$.parameters.phase.segments[0].cached: found a mapping of 1 key, expected a whole number",
        "$.parameters.phase.segments[0].sees[1]: found a list of 1", "did you mean 'attention'",
        "$.parameters.layers.l.feed_forward.ffn", "$.parameters.sections[0].layers[1]", "repeat: found -2",
    ), other=NONSENSE),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_serving(case: Case, tmp_path: Path) -> None:
    assert_refused(call(*words_of(case, tmp_path)), case.code, *case.says)


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        ({"model_type": "xyz_llm"}, "$.model_type: ", "found 'xyz_llm', which dfopt does not read yet"),
        ({"hidden_size": None}, "$.hidden_size: ", "found nothing"),
        ({"num_experts": 8}, "$.num_experts: ", "not understood, and could change a shape, a cost or a size"),
        ({"hidden_size": {"of": 3}}, "$.hidden_size: ", "found a mapping of 1 key"),
    ],
)
def test_a_config_that_is_not_understood(tmp_path: Path, change: dict[str, Any], where: str, says: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    assert_refused(call("solve", tmp_path, "h100-8", "--phase", "decode"), BAD, where, says)


def test_types_beside_a_config_are_not_left_out(tmp_path: Path) -> None:
    """A quantized model says its types in a file of its own, which decides what is read and computed."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "hf_quant_config.json").write_text("{}")
    for words in (("solve", tmp_path, "h100-8"), ("import", "hf", tmp_path, "-o", tmp_path / "x.yaml")):
        assert "hf_quant_config.json" in run(*words, code=BAD).err
