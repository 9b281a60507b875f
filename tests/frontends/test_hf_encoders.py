"""Configs of encoders and of Whisper: the models of the zoo, and nothing that is taken for granted in silence.

Sizes: the config.json of answerdotai/ModernBERT-base, google-bert/bert-base-uncased, BAAI/bge-m3,
distilbert/distilbert-base-uncased, google/vit-base-patch16-224, openai/clip-vit-large-patch14,
google/siglip-so400m-patch14-384 and openai/whisper-large-v3; but for those of the zoo they are recalled, not
confirmed on the hub.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hf_changes import explains_a_change
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe
from dfopt.frontends.hf.families import SORTS
from dfopt.workloads import expand
from dfopt.workloads.stack import StackParameters, counts

Config = dict[str, Any]
BERT: Config = {
    "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "hidden_act": "gelu", "position_embedding_type": "absolute", "torch_dtype": "float16",
    "gradient_checkpointing": False, "layer_norm_eps": 1e-12,
}  # fmt: skip
TOWER: Config = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
    "image_size": 224, "patch_size": 14, "num_channels": 3, "torch_dtype": "float16",
}  # fmt: skip
CONFIGS: dict[str, Config] = {
    "bert-base": BERT,
    "bge-m3": BERT | {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024, "vocab_size": 250002,
        "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "type_vocab_size": 1,
        "max_position_embeddings": 8194,
    },
    "distilbert-base": {
        "model_type": "distilbert", "activation": "gelu", "dim": 768, "hidden_dim": 3072, "n_heads": 12, "n_layers": 6,
        "max_position_embeddings": 512, "sinusoidal_pos_embds": False, "vocab_size": 30522, "torch_dtype": "float32",
    },
    "modernbert-base": {
        "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "hidden_size": 768, "vocab_size": 50368,
        "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152, "hidden_activation": "gelu",
        "max_position_embeddings": 8192, "global_attn_every_n_layers": 3, "local_attention": 128, "norm_bias": False,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32", "position_embedding_type": "absolute",
    },
    "vit-b-16": TOWER | {
        "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 16,
        "intermediate_size": 3072, "qkv_bias": True, "hidden_act": "gelu",
    },
    "clip-vit-large": {
        "model_type": "clip", "architectures": ["CLIPModel"], "torch_dtype": "float32", "text_config": {},
        "logit_scale_init_value": 2.6592, "projection_dim": 768,
        "vision_config": TOWER | {"model_type": "clip_vision_model", "hidden_act": "quick_gelu", "torch_dtype": None},
    },
    "siglip-so400m": TOWER | {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304,
        "image_size": 384, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": True,
    },
    "whisper-large-v3": {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 1280,
        "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "decoder_layers": 32, "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120, "encoder_layers": 32, "num_hidden_layers": 32, "num_mel_bins": 128,
        "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 51866, "torch_dtype": "float16",
        "activation_function": "gelu", "is_encoder_decoder": True, "scale_embedding": False,
    },
}  # fmt: skip
# in millions: those of the checkpoints without the heads of tasks, of which ViT's classifier has 0.8, and the pooling
# head of SigLIP 15.2 of 428.2; of Whisper's 1543.5 those of the encoder are 637
PUBLISHED = {
    "bert-base": 109.5, "bge-m3": 567.8, "distilbert-base": 66.4, "modernbert-base": 149.0,
    "vit-b-16": 86.6 - 0.8, "clip-vit-large": 303.2,
    "siglip-so400m": 428.2 - 15.2, "whisper-large-v3": 1543.5 - 637.0,
}  # fmt: skip


def inside(config: Config) -> Config:
    found: Config = config.get("vision_config", config)
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_counts_are_those_that_were_published(name: str) -> None:
    began = time.process_time()
    found = recipe(CONFIGS[name], "config.json")
    assert time.process_time() - began < 0.2
    assert counts(StackParameters(**found["parameters"])).parameters / 1e6 == pytest.approx(PUBLISHED[name], rel=2e-3)
    assert expand(found).kernels


def test_every_type_is_tried() -> None:
    tried = {inside(config)["model_type"] for config in CONFIGS.values()}
    assert set(SORTS["encoders"]) - tried == {"roberta", "camembert", "deit"}  # as XLM-R, and as ViT


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("bert-base", {"seq": 384}),
        ("whisper-large-v3", {"phase": "prefill", "seq": 100, "context": 0}),
        ("whisper-large-v3", {"phase": "decode", "context": 100}),
    ],
)
def test_a_config_is_the_model_of_the_zoo(name: str, phase: Config) -> None:
    asked = {key: value for key, value in phase.items() if value != 0}
    found = recipe(CONFIGS[name], "config.json")
    mine = expand(found | {"parameters": found["parameters"] | asked | {"batch": 8}})
    known = df.load_graph(name, **asked, batch=8)
    assert (mine.kernels, mine.tensors) == (known.kernels, known.tensors)


def test_what_is_left_out_is_said() -> None:
    def said(name: str) -> str:
        return str(recipe(CONFIGS[name], "config.json")["description"])

    assert "what a task adds left out (architectures ['BertForMaskedLM'])" in said("bert-base")
    assert "0.3032 billion parameters of its image tower" in said("clip-vit-large")
    assert "text_config left out: only the image tower is drawn and counted" in said("clip-vit-large")
    assert "the encoder, a model of its own, whose tokens the decoder attends to, left out" in said("whisper-large-v3")
    assert "the attention that puts all patches together left out (vision_use_head True)" in said("siglip-so400m")


def test_windows_of_modernbert_look_both_ways_in_two_of_three_layers() -> None:
    found = recipe(CONFIGS["modernbert-base"], "config.json")["parameters"]
    assert found["sections"] == [{"layers": ["global", "local", "local"], "repeat": 7}, {"layers": ["global"]}]
    assert found["layers"]["local"]["mixer"]["window"] == 64 + 1 + 64
    assert "window" not in found["layers"]["global"]["mixer"]


def test_an_image_is_its_patches_and_a_sentence_its_positions() -> None:
    assert recipe(CONFIGS["siglip-so400m"], "config.json")["parameters"]["seq"] == 27**2
    assert recipe(CONFIGS["clip-vit-large"], "config.json")["parameters"]["seq"] == 16**2 + 1
    assert recipe(CONFIGS["bge-m3"], "config.json")["parameters"]["seq"] == 8192


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_nothing_is_taken_for_granted_in_silence(name: str, data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[name])
    inner = inside(config)
    explains_a_change(config, config if data.draw(st.booleans()) else inner, inner["model_type"], data)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("bert-base", {"num_attention_heads": 7}, "$.num_attention_heads: found 7, expected a divisor of the 768"),
        ("bert-base", {"is_decoder": True}, "$.is_decoder: found true, expected false: an encoder"),
        ("bert-base", {"position_embedding_type": "relative_key"}, "expected absolute: learned ones"),
        ("bge-m3", {"max_position_embeddings": 2}, "$.max_position_embeddings: found 2, expected more than the 2"),
        ("vit-b-16", {"patch_size": 300}, "$.patch_size: found 300, expected 224 at most"),
        ("whisper-large-v3", {"is_encoder_decoder": False}, "$.is_encoder_decoder: found false, expected true"),
    ],
)
def test_what_is_not_understood_is_refused(name: str, change: Config, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        recipe(CONFIGS[name] | change, "config.json")
    assert said in str(caught.value)
