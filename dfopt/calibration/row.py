"""A row of a table of measured training steps: the model, the mapping and the seconds, and how cells are read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Cells = Mapping[str, str]
Sequence = Literal["none", "allow"]

AS_GIVEN: Final = re.compile("torchtitan", re.IGNORECASE)
"""Sources whose products in 8 bits keep tensors of 16: torchao's do, Transformer Engine's do not."""
_ZOO: Final = {"deepseekv3": "deepseek-v3", "deepseek-v3": "deepseek-v3", "kimi_k2": "kimi-k2"}
"""Graphs of models with latent attention, by how tables call them."""
_CLOSE = 0.08  # relative: a stated number of parameters is rounded, and leaves out biases and norms


class Cannot(Exception):
    """Raised where a row cannot be used; the message says why."""


@dataclass(frozen=True)
class RunModel:
    """Sizes of a measured decoder model, or a zoo graph with parameters.

    ``zoo``: that graph; ``stated`` are its parameters then.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    seq: int
    gated_mlp: bool
    tie_embeddings: bool
    experts: int | None = None
    chosen: int = 1
    zoo: str | None = None
    stated: float = 0.0

    @property
    def matrices(self) -> int:
        """Parameters of the matrices of all layers, including all experts and routers.

        Examples
        --------
        >>> RunModel(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True).matrices == 2 * 12 * 64**2
        True
        """
        return self._matrices(self.experts or 1)

    def _matrices(self, experts: int) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        router = self.hidden * (self.experts or 0)
        return self.layers * (attention + router + experts * (3 if self.gated_mlp else 2) * self.hidden * self.ffn)

    @property
    def parameters(self) -> float:
        """Number of parameters, embedding and logits included."""
        if self.zoo is not None:
            return self.stated
        return self.matrices + self.vocab * self.hidden * (1 if self.tie_embeddings else 2)

    def flop(self, samples: int) -> float:
        """FLOP of a training step without recomputation: three passes, full scores (Narayanan et al., SC21, eq. 3).

        Of experts those that a token chooses.

        Examples
        --------
        Equation 3 counts a fourth pass, of what is recomputed; without it 72 B s l h^2 (1 + s/6h + V/12lh):

        >>> model = RunModel(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
        >>> round(model.flop(4) / (72 * 4 * 32 * 2 * 64**2 * (1 + 32 / (6 * 64) + 1000 / (12 * 2 * 64))), 12)
        1.0
        """
        if self.zoo is not None:
            raise Cannot(f"FLOP of {self.zoo}, which are not counted here")
        scores = 4 * self.layers * self.heads * self.head_dim * self.seq
        return 3.0 * samples * self.seq * (2 * (self._matrices(self.chosen) + self.vocab * self.hidden) + scores)


@dataclass(frozen=True)
class TrainingRow:
    """A measured training step; None: not stated by the source.

    ``copies`` is DP as Megatron-LM counts it: ``contexts`` chips hold one replica, ``expert_groups`` replicas one set
    of experts. ``dtypes``: data types of the graph, if not 16 bits throughout; ``main_gradients``: type of accumulated
    gradients, if not fp32. ``library_attention``: scores stay on the chip; else each product and the softmax is a
    kernel, with dropout of scores in GPT models. ``between``: bandwidth of a chip to other nodes, B/s, if the source
    states it. ``loss_apart``: each operation of the loss is a kernel. ``overlaps_tensor``, ``overlaps_weights``,
    ``overlaps_messages``: whether TP communication overlaps with products, the all-gather of weights with the first
    forward pass, and messages to other stages with other chunks of layers.
    """

    name: str
    source: str
    model: RunModel
    chip: str
    chips: int
    tensor: int
    pipeline: int
    copies: int
    batch: int
    seconds: float
    dtypes: tuple[tuple[str, str], ...] = ()
    microbatch: int | None = None
    interleave: int | None = None
    recompute: str | None = None
    sequence_parallelism: Sequence | None = None
    zero: int | None = None
    main_gradients: str | None = None
    contexts: int = 1
    expert_groups: int = 1
    library_attention: bool = False
    causal: bool = False
    scores_dropout: bool = False
    loss_apart: bool = False
    overlaps_gradients: bool = False
    overlaps_tensor: bool | None = False
    overlaps_weights: bool = False
    overlaps_messages: bool = False
    between: float | None = None
    unmodelled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Untaken:
    """A row that was not used, with the reason."""

    name: str
    source: str
    reason: str


def number(cells: Cells, column: str, least: int = 1) -> int:
    """Integer in a column.

    Parameters
    ----------
    cells, column
        Texts of the row by column, and the name of the column.
    least : int
        Smallest number that is allowed.

    Raises
    ------
    Cannot
        For any other text, and for a smaller number.
    """
    text = cells.get(column, "")
    try:
        value = float(text)
    except ValueError:
        raise Cannot(f"{column} is not stated" if not text else f"{column}: found {text!r}, no number") from None
    if not (value.is_integer() and least <= value <= 1e15):
        raise Cannot(f"{column}: found {text!r}, expected a whole number of {least} or more")
    return int(value)


def measured(cells: Cells, column: str) -> float:
    """Positive number in a column; raises `Cannot` for other text."""
    try:
        value = float(cells[column])
    except ValueError:
        raise Cannot(f"{column} is not stated") from None
    if not 0 < value < math.inf:
        raise Cannot(f"{column}: found {value:g}, expected more than 0")
    return value


def maybe(cells: Cells, column: str) -> int | None:
    """Integer in a column, or None if empty."""
    return number(cells, column, 0) if cells.get(column) else None


def model_of(cells: Cells, seq: str, parameters: float) -> RunModel:
    """Decoder of the sizes in a row; gate of the MLP and tied embedding follow from its number of parameters.

    A table has no ranks of latent attention: a model that has it is the graph of the zoo, if that has such layers.

    Parameters
    ----------
    cells
        Texts of the row, by column.
    seq : str
        Name of the column with the length of a sequence.
    parameters : float
        Number of parameters of the model.

    Raises
    ------
    Cannot
        If the row does not state a size.
    """
    latent = cells.get("kv_heads", "").upper() == "MLA"
    zoo = next((name for begin, name in _ZOO.items() if latent and cells["model"].lower().startswith(begin)), None)
    if latent and zoo is None:
        raise Cannot("latent attention, whose ranks are not stated")
    experts = maybe(cells, "experts")
    heads, hidden = number(cells, "heads"), number(cells, "hidden")
    head_dim = maybe(cells, "head_dim") or hidden // heads
    groups = heads if latent else maybe(cells, "kv_heads") or heads
    shape: dict[str, Any] = dict(
        layers=number(cells, "layers"), hidden=hidden, heads=heads, kv_heads=groups,
        head_dim=head_dim, ffn=number(cells, "moe_ffn") if experts else maybe(cells, "ffn") or 4 * hidden,
        vocab=maybe(cells, "vocab") or 51200, seq=number(cells, seq), experts=experts,
        chosen=number(cells, "topk") if experts else 1,
    )  # fmt: skip
    if zoo is not None:
        return RunModel(**shape, gated_mlp=True, tie_embeddings=False, zoo=zoo, stated=parameters)
    kinds = [
        RunModel(**shape, gated_mlp=gated, tie_embeddings=tied) for gated in (False, True) for tied in (True, False)
    ]
    closest = min(kinds, key=lambda model: abs(model.parameters / parameters - 1))
    if abs(closest.parameters / parameters - 1) > _CLOSE:
        counted = f"{closest.parameters / 1e9:.3g}e9 counted"
        raise Cannot(f"a decoder of these sizes has not {parameters / 1e9:.4g}e9 parameters: {counted}")
    return closest


def degrees(cells: Cells, chips: int) -> tuple[int, int, int, int]:
    """Degrees TP, PP and DP of a row, and its context-parallel degree."""
    tensor, pipeline, copies = (number(cells, axis) for axis in ("tp", "pp", "dp"))
    contexts = maybe(cells, "cp") or 1
    if tensor * pipeline * copies * contexts != chips:
        more = f" x cp {contexts}" if contexts > 1 else ""
        raise Cannot(f"tp {tensor} x pp {pipeline} x dp {copies}{more} is not {chips} chips")
    return tensor, pipeline, copies, contexts


_Types = tuple[tuple[str, str], ...]
_EIGHT: Final = ("fp8", "fp8-cs", "fp8 rowwise", "fp8-cs (fp8-mx)")
_TYPES: Final[dict[str, _Types]] = {
    **dict.fromkeys(("fp16", "bf16", "amp_bf16"), ()),
    **dict.fromkeys(_EIGHT, (("weights", "fp8"), ("operands", "fp8"), ("ends", "bf16"))),
    **dict.fromkeys(("mxfp8", "fp8-mx"), (("weights", "mxfp8"), ("operands", "mxfp8"), ("ends", "bf16"))),
    "nvfp4": (("weights", "nvfp4"), ("operands", "nvfp4"), ("ends", "bf16")),
}


def types_of(precision: str, converted: bool = False) -> _Types:
    """Data types of a graph in mixed precision: weight products in ``precision``, all else in 16 bits.

    ``converted``: products save their converted inputs for the gradients, not the original ones.

    Examples
    --------
    >>> types_of("MXFP8", converted=True)
    (('weights', 'mxfp8'), ('operands', 'mxfp8'), ('ends', 'bf16'), ('saved', 'mxfp8'))
    """
    if precision.lower() not in _TYPES:
        raise Cannot(f"precision {precision or 'not stated'}")
    types = _TYPES[precision.lower()]
    return (*types, *(("saved", value) for name, value in types if name == "operands" and converted))
