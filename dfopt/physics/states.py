"""States: bytes that stay in a memory of a chip, as a table. What a new feature keeps is a new entry.

The optimiser and the judge read the table, and each keeps its own books by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from dfopt.documents.system import Chip

Amount = Literal["weights", "saved", "waiting", "tables", "table gradients", "table optimizer"]
Held = dict[str, dict[str, float]]
"""Bytes that one chip holds, by tier and name of the state."""


@dataclass(frozen=True)
class Kind:
    """A kind of state: an entry of the table. Entries of one name add up.

    Attributes
    ----------
    of
        What it is made of: bytes of one evaluation of some kernels, on one chip.
    label, lever
        For messages: what people call it, and what makes it smaller.
    lifetime
        ``step``: one for every layer of a stage. ``microbatch``: also one for every microbatch that waits for its
        backward pass. ``partition``: the most of one layer, or of what runs once.
    per_parameter
        The assumption that says how many bytes a parameter has of it; if left out, as many as it is made of.
    trained
        Whether it exists only where gradients are kept.
    tier
        The memory that it lies in.
    """

    name: str
    of: Amount
    label: str
    lever: str = ""
    lifetime: Literal["step", "microbatch", "partition"] = "step"
    per_parameter: str | None = None
    trained: bool = False
    tier: str = "dram"


_FORWARD = "mode forward instead of training"
_SMALLER = "a smaller optimizer_bytes_per_parameter"
KINDS: Final = (
    Kind("weights", "weights", "weights"),
    Kind("gradients", "weights", "gradients", _FORWARD, trained=True),
    Kind(
        "optimizer", "weights", "optimizer state", _SMALLER, per_parameter="optimizer_bytes_per_parameter", trained=True
    ),
    Kind("activations", "saved", "saved activations", lifetime="microbatch", trained=True),
    Kind("activations", "waiting", "saved activations", lifetime="partition"),
    Kind("tables", "tables", "tables and matrices"),
    Kind("gradients", "table gradients", "gradients", _FORWARD),
    Kind("optimizer", "table optimizer", "optimizer state", _SMALLER, trained=True),
)
LABELS: Final = {kind.name: kind.label for kind in KINDS}
"""Names of states, in the order in which people read them."""


def capacities(chip: Chip) -> dict[str, float]:
    """Bytes of every memory of a chip that has a limit, by tier."""
    return {} if chip.dram.capacity is None else {"dram": chip.dram.capacity}
