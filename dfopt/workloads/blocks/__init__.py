"""What layers of models are built from: mixers, feed-forwards, and the ends of a model, each a small module."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dfopt.workloads.blocks.attention import Attention
from dfopt.workloads.blocks.beside import Beside
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.compressed import CompressedAttention
from dfopt.workloads.blocks.cross import CrossAttention
from dfopt.workloads.blocks.gated_convolution import GatedConvolution
from dfopt.workloads.blocks.mamba import Mamba, Mamba2
from dfopt.workloads.blocks.mla import LatentAttention
from dfopt.workloads.blocks.mlp import Mlp
from dfopt.workloads.blocks.moe import MixtureOfExperts
from dfopt.workloads.blocks.recurrent import GatedDeltaNet, KimiDeltaAttention

__all__ = ["Block", "FeedForward", "Mixer"]

Mixer = Annotated[
    Attention
    | Beside
    | CompressedAttention
    | CrossAttention
    | LatentAttention
    | GatedConvolution
    | GatedDeltaNet
    | KimiDeltaAttention
    | Mamba
    | Mamba2,
    Field(discriminator="kind"),
]
FeedForward = Annotated[Mlp | MixtureOfExperts, Field(discriminator="kind")]
