"""Passes of a kernel: which of a step's runs through the model it belongs to.

The word phase is left to what serving does: prefill, decode, verify, mixed (:mod:`dfopt.documents.phase`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from dfopt.documents.base import problem
from dfopt.errors import shown

Pass = Literal["forward", "recompute", "backward", "update"]
"""recompute: what the backward pass computes again, since the forward pass did not keep it."""
_EARLIER: Final = tuple(name for name in get_args(Pass) if name != "recompute")


def with_passes(data: dict[str, Any]) -> dict[str, Any]:
    """Data of a graph of version 2 or older with its key ``phase`` renamed to ``pass``.

    Examples
    --------
    >>> with_passes({"kernels": [{"name": "a", "phase": "update"}, {"name": "b"}]})["kernels"]
    ({'name': 'a', 'pass': 'update'}, {'name': 'b'})
    """
    kernels = data.get("kernels")
    if not isinstance(kernels, list | tuple):
        return data
    return {**data, "kernels": tuple(_with_pass(kernel, place) for place, kernel in enumerate(kernels))}


def _with_pass(kernel: Any, place: int) -> Any:
    if not isinstance(kernel, Mapping):
        return kernel  # is refused with all other issues
    if "pass" in kernel:
        remedy = "write 'schema: dfopt/graph/3', or phase as that version has it"
        raise problem("unknown key of an earlier version", remedy, f"$.kernels[{place}].pass")
    if "phase" not in kernel:
        return kernel
    phase = kernel["phase"]
    if phase not in _EARLIER:
        message = f"found {shown(phase)}, expected {', '.join(_EARLIER[:-1])} or {_EARLIER[-1]}"
        raise problem(message, "leave it out of a forward kernel", f"$.kernels[{place}].phase")
    return {("pass" if key == "phase" else key): value for key, value in kernel.items()}


def way_of(variant: str | None) -> str:
    """Recomputation mode in the variant name of a training graph.

    Examples
    --------
    >>> way_of("recompute: full"), way_of(None)
    ('full', 'none')
    """
    return (variant or "recompute: none").removeprefix("recompute: ")
