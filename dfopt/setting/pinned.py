"""Plans under which schemes that are fixed by hand are legal: what one of them forbids is left out, not refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.setting.instance import Setting


def forbidden_pins(setting: Setting, pins: Mapping[str, Sharding], degree: int) -> str:
    """A sentence on why kernels cannot have their pinned schemes; empty if they can.

    Parameters
    ----------
    setting
        The graph and the assumptions under which schemes are legal.
    pins
        Schemes by kernel.
    degree
        Tensor-parallel chips.
    """
    for kernel in setting.graph.kernels if degree > 1 else ():
        legal = ops.legal_schemes(kernel, degree, setting.assumptions)
        if reason := forbidden(kernel, pins.get(kernel.name, legal[0]), legal, degree):
            return reason
    return ""


def forbidden(kernel: Kernel, scheme: Sharding, legal: Sequence[Sharding], degree: int) -> str:
    """A sentence on why a kernel cannot have a scheme; empty if it can.

    Parameters
    ----------
    kernel, scheme
        The kernel, and the requested scheme.
    legal
        Schemes that it can have.
    degree
        Tensor-parallel chips.
    """
    if scheme in legal:
        return ""
    return f"kernel {kernel.name!r} cannot be sharded by {scheme!r} over {degree} chips; it allows {', '.join(legal)}"
