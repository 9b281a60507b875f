"""Files that ``dfopt export`` wrote, read by the tools they are for: each tool's own parser and its checks.

    python -m venv tools && tools/bin/pip install torch deepspeed==0.19.8 torchtitan==0.2.2 pyyaml triton transformers
    tools/bin/pip install --no-deps megatron-core==0.16.1
    tools/bin/python benchmarks/reference/export_parsers.py FOLDER [FOLDER ...]

dfopt need not be there, nor a GPU. A folder holds what one export wrote. For ``ds_config.json`` that is
`DeepSpeedConfig` of as many ranks as the batch asks for; for ``torchtitan.toml`` its `ConfigManager`; for ``nemo.yaml``
the sizes and degrees make the `TransformerConfig` of Megatron-Core, which checks them against one another, and the rest
its configurations of optimizer and data-parallel copies (Megatron-Bridge itself needs a GPU's libraries). Megatron-LM's
own parser is not in a package.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock


def deepspeed(file: Path) -> str:
    """What DeepSpeed reads, on as many ranks as make up the batch, and share its sequences."""
    from deepspeed.runtime import config

    said = json.loads(file.read_text(encoding="utf-8"))
    copies = said["train_batch_size"] // said["train_micro_batch_size_per_gpu"] // said["gradient_accumulation_steps"]
    ranks = copies * said.get("sequence_parallel_size", 1)
    with mock.patch.multiple(config.dist, get_world_size=lambda *_: ranks, get_rank=lambda *_: 0):
        read = config.DeepSpeedConfig(said)
    types = {name: getattr(read, name).enabled for name in ("bfloat16_config", "float16_config")}
    stage, wanted = read.zero_optimization_stage, said.get("zero_optimization", {}).get("stage", 0)
    if (stage, types["bfloat16_config"]) != (wanted, "bf16" in said):  # sections that it does not know it passes over
        raise ValueError(f"it read ZeRO-{stage} and {types}")
    return f"batch {read.train_batch_size}, ZeRO-{stage}, TP {read.tensor_parallel_config.autotp_size}"


def torchtitan(file: Path) -> str:
    """What torchtitan reads; it refuses fields that it does not have."""
    from torchtitan.config.manager import ConfigManager

    read = ConfigManager().parse_args(["--job.config_file", str(file)])
    layout = read.parallelism
    return (
        f"TP {layout.tensor_parallel_degree}, PP {layout.pipeline_parallel_degree}, {layout.pipeline_parallel_schedule}"
    )


def nemo(file: Path) -> str:
    """What Megatron-Core makes of the model and of how its copies work."""
    import torch
    import yaml
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_config import TransformerConfig

    said = yaml.safe_load(file.read_text(encoding="utf-8"))
    model = dict(said["model"])
    of_bridge = {"seq_length", "position_embedding_type", "vocab_size"}  # fields of its GPTModelProvider
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    if unknown := set(model) - fields - of_bridge:
        raise ValueError(f"fields that it does not know: {sorted(unknown)}")
    # The recipe of mixed precision sets the type of what is sent between stages.
    kept = {name: value for name, value in model.items() if name in fields}
    read = TransformerConfig(**kept, bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16)
    DistributedDataParallelConfig(**said.get("ddp", {}))
    OptimizerConfig(**said.get("optimizer", {}))
    return f"TP {read.tensor_model_parallel_size}, PP {read.pipeline_model_parallel_size}, {read.num_layers} layers"


PARSERS: dict[str, Callable[[Path], str]] = {
    "ds_config.json": deepspeed,
    "torchtitan.toml": torchtitan,
    "nemo.yaml": nemo,
}


def main(folders: list[str]) -> int:
    """A line for each file; the exit code is 1 where one is refused."""
    if not folders:
        print(__doc__)
        return 2
    sys.argv = sys.argv[:1]  # the parsers read it
    refused = 0
    for folder in map(Path, folders):
        files = [folder / name for name in PARSERS if (folder / name).exists()]
        for file in files:
            try:
                print(f"{file}: read: {PARSERS[file.name](file)}")
            except Exception as error:
                refused += 1
                print(f"{file}: refused: {type(error).__name__}: {error}")
        if not files:
            print(f"{folder}: nothing that a parser here reads ({', '.join(PARSERS)})")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
