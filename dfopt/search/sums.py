"""Partial sums that have to meet a kernel that adds them up, under schemes of all kernels or those that are left."""

from __future__ import annotations

import numpy as np

from dfopt.joint.menu import Menu
from dfopt.physics import ops
from dfopt.setting.tables import Bools, Ints


def meets(menu: Menu, options_k: Ints) -> bool:
    """Whether partial sums meet a kernel that adds them up."""
    scheme = [ops.split_axis(menu.tables.scheme_o[o]) for o in options_k.tolist()]
    return all(scheme[into] == "k" or scheme[k] not in ("outer", "k") for k, into in menu.tables.partial_kk)


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
