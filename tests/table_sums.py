"""What blocks of kernels pay in all of a resource: incidence times amount, charge by charge."""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.terms.incidence import counts
from dfopt.terms.table import Table


def sums_of(table: Table, amount_vc: Floats, member_bk: Bools, resource: str) -> Floats:
    """The total of a resource without levels, shape (vectors, blocks)."""
    found_vb = np.zeros((len(amount_vc), len(member_bk)))
    for charge, columns in zip(table.charges, table.columns_c, strict=True):
        if charge.resource == resource:
            found_vb += amount_vc[:, columns] @ counts([charge.incidence], member_bk).T
    return found_vb
