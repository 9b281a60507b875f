"""The accounting rules of a layer: every one is an entry of `TERMS`, and says everything about itself.

There are two kinds of rules. A rule of single kernels takes a :class:`~dfopt.terms.kernel.LayerKernel` and yields pairs
of the name of a resource and a float array, shape (options,): what the kernel adds to the resource under each of its
options, in the unit of the resource. The block that holds the kernel pays that once. All other rules take a
:class:`~dfopt.terms.layer.Layer` and yield :class:`~dfopt.terms.charges.Charge`, which say who pays and how often.

Bytes and seconds are those of one chip in one evaluation of the layer.
"""

from __future__ import annotations

from typing import Final

from dfopt.physics.states import Amount
from dfopt.terms.rules.held import (
    CACHES,
    HANDED_ON,
    KEPT,
    PARAMETERS,
    PARTIAL_SUMS,
    REDUCED,
    SAVED,
    TILE_ROWS,
    WAITING,
)  # fmt: skip
from dfopt.terms.rules.network import (
    COLLECTIVES,
    CONVERSIONS,
    LEAST_CONVERSIONS,
    OWN_COMMUNICATIONS,
    REDUCED_EACH,
    STARTS,
)
from dfopt.terms.rules.tensors import CARRIED, END_BUFFERS, ENDS, OPERANDS, OWN_DATA, TENSORS
from dfopt.terms.rules.token_charges import TOKEN_BLOCK_KERNELS, TOKEN_BLOCK_TENSORS
from dfopt.terms.rules.weights import GRADIENTS, WEIGHTS
from dfopt.terms.rules.work import COMPUTE, COMPUTE_TILES, SRAM_TRAFFIC, TENSOR_TRAFFIC

__all__ = ["HELD", "LEAST_TERMS", "OF_KERNELS", "OF_LAYER", "SENT", "TERMS", "TOKEN_BLOCKS", "UNTILED"]

_WEIGHTS: Final[tuple[Amount, ...]] = ("weights", "experts", "parameters")
OF_KERNELS: Final = (
    COMPUTE, SRAM_TRAFFIC, WEIGHTS, GRADIENTS, OPERANDS, ENDS, END_BUFFERS, OWN_DATA, PARAMETERS, REDUCED, CACHES,
    SAVED, KEPT, TOKEN_BLOCK_KERNELS,
)  # fmt: skip
"""Rules of single kernels, see :meth:`dfopt.terms.charges.Term.of_kernel`."""
SENT: Final = (COLLECTIVES, OWN_COMMUNICATIONS, REDUCED_EACH)
"""What single kernels communicate under a plan. These rules take a layer.

Each charge is paid once by the block of one kernel, as in rules of single kernels. It is a constant, or decided by the
option of that kernel.
"""
OF_LAYER: Final = (
    COMPUTE_TILES, TENSOR_TRAFFIC, TENSORS, CARRIED, CONVERSIONS, STARTS, WAITING, PARTIAL_SUMS, HANDED_ON, TILE_ROWS,
    TOKEN_BLOCK_TENSORS,
)  # fmt: skip
"""Rules of several kernels, and of resources with levels."""
TOKEN_BLOCKS: Final = (TOKEN_BLOCK_KERNELS, TOKEN_BLOCK_TENSORS)
"""Rules of blocks of kernels that take their tokens in blocks."""
TERMS: Final = (*OF_KERNELS, *SENT, *OF_LAYER)
"""All rules."""
LEAST_TERMS: Final = tuple(LEAST_CONVERSIONS if term is CONVERSIONS else term for term in TERMS)
"""All rules, with what conversions take at least: for layers in which a tensor has very many readers."""
UNTILED: Final = tuple(term for term in (*TERMS, LEAST_CONVERSIONS) if not term.by_tiles)
"""Rules of which the number of tiles decides nothing."""
HELD: Final[dict[str, tuple[Amount, bool]]] = {
    **{f"{of}{'_copied' * copied}": (of, copied) for of in _WEIGHTS for copied in (False, True)},
    "saved_bytes": ("saved", False),
    "cached_bytes": ("cached", False),
    "working_bytes": ("working", False),
}
"""Resources of what chips hold for as long as they are asked to, of one evaluation: which contents of a state each is,
and whether all chips of the second axis have the same. Bytes, but of parameters their number, which gradients and the
optimizer go by. Weights are without those of experts."""
