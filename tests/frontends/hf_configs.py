"""Configs of Hugging Face models, with what was published of them.

``tests/golden/hf`` has some as published, but for the order of their lines: meta-llama/Meta-Llama-3.1-8B,
Qwen/Qwen3-8B, Qwen/Qwen3-30B-A3B, mistralai/Mixtral-8x7B-v0.1, deepseek-ai/DeepSeek-V3, openai/gpt-oss-20b,
XiaomiMiMo/MiMo-7B-Base, MiniMaxAI/MiniMax-M3, nvidia/MiniMax-M2.5-NVFP4, nvidia/Gemma-4-26B-A4B-NVFP4,
meta-llama/Llama-4-Maverick-17B-128E-Instruct, nvidia/Gemma-4-31B-IT-NVFP4, Qwen/Qwen3-VL-2B-Instruct,
moonshotai/Kimi-K2.5, nvidia/Kimi-K2.6-NVFP4, zai-org/GLM-5.2, Qwen/Qwen3.5-35B-A3B, nvidia/Nemotron-H-56B-Base-8K,
nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8, nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4 and
deepseek-ai/DeepSeek-V4-Flash. Of the others ``published.yaml`` and ``encoders.yaml`` have the sizes, and sources.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from golden_files import GOLDEN, golden

from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe

Config = dict[str, Any]
FOLDER = GOLDEN / "hf"
FILES: dict[str, Config] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


class Published(NamedTuple):
    """A config, its parameters in billions, those of one token, and bytes kept of a token."""

    config: Config
    parameters: float
    active: float | None = None
    kept_bytes: int | None = None


def published(file: str) -> dict[str, Published]:
    entries = golden(f"hf/{file}").items()
    return {name: Published(**{"config": FILES.get(name), **fields}) for name, fields in entries}


ENCODERS = published("encoders.yaml")
PUBLISHED = published("published.yaml") | ENCODERS
CONFIGS = FILES | {name: model.config for name, model in PUBLISHED.items()}


def inner(config: Config) -> Config:
    """The part of a config that has the sizes of the model that is drawn."""
    parts = ("vision_config",) if config["model_type"] == "clip" else ("text_config", "llm_config", "thinker_config")
    inside = next((name for name in parts if name in config), None)
    return inner(config[inside]) if inside else config


def without(config: Config, *fields: str) -> Config:
    """A config with some fields left out."""
    return {name: value for name, value in config.items() if name not in fields}


def refusal(config: Config) -> str:
    """What is said of a config that is refused."""
    with pytest.raises(DocumentError) as caught:
        recipe(config, "model/config.json")
    return str(caught.value)
