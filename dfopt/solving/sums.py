"""What schemes have to meet: partial sums a kernel that adds them up, layers of one kind the layouts of another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.physics import ops
from dfopt.solving.menu import Menu
from dfopt.terms.sharded_graph import Bools


def meeting(menu: Menu, allowed_o: Bools) -> Bools | None:
    """The options that are left once partial sums have to meet; none if a kernel is left without."""
    tables, allowed = menu.tables, allowed_o.copy()
    scheme = np.array([ops.split_axis(one) for one in tables.scheme_o])
    leaves = np.isin(scheme, ["outer", "k"])
    for _ in range(len(tables.partial_kk) + 1):
        for k, into in tables.partial_kk:
            mine, host = tables.kernel_o == k, tables.kernel_o == into
            if not (allowed & mine & ~leaves).any():
                allowed &= ~host | (scheme == "k")
            if not (allowed & host & (scheme == "k")).any():
                allowed &= ~mine | ~leaves
    enough = np.bincount(tables.kernel_o, allowed, tables.kernels).all()
    return allowed if enough else None


def handed_on(menu: Menu, allowed_o: Bools) -> Iterator[Bools]:
    """The options that are left, apart for every layout in which layers of all kinds may hand tensors on."""
    tables, found = menu.tables, [allowed_o]
    for first in dict.fromkeys(k for k, _ in tables.alike_kk):
        ends = np.isin(tables.kernel_o, [first, *(other for k, other in tables.alike_kk if k == first)])
        layouts = np.unique(tables.produced_o[tables.of_kernel[first]])
        found = [allowed & (~ends | (tables.produced_o == layout)) for allowed in found for layout in layouts]
    for allowed in found:
        if np.bincount(tables.kernel_o, allowed, tables.kernels).all():
            yield allowed
