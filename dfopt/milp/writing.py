"""A model as a text file that any solver reads, with the names of its blocks."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from dfopt.documents.files import replaced
from dfopt.errors import DocumentError, Issue
from dfopt.milp.model import Model
from dfopt.milp.pulp_child import build
from dfopt.milp.pulp_door import as_data

_LONGEST = 200  # characters of a name; some readers stop at 255
# Words of the LP format, and what its readers take for a number: 3, .5, e7
_TAKEN = re.compile(
    r"min|max|minimi[sz]e|maximi[sz]e|subject|such|st|bounds?|free|inf(inity)?|gen(erals?)?|int(egers?)?"
    r"|bin(ary|aries)?|semi\w*|sos\d?|end|[\d.].*|e\d.*",
    re.IGNORECASE,
)
_AROUND: Final = 20  # characters that PuLP adds to a name, such as the number of a variable


def write_model(model: Model, path: str | os.PathLike[str]) -> None:
    r"""Write a model as an MPS or LP file, atomically.

    Column (3, 1) of a block "A" is called ``A_3_1``, row 12 of a block
    "precedence" ``precedence_12``.  A row with two different sides becomes two,
    ``row_0.lower`` and ``row_0.upper``, and the constant of the objective a
    column fixed to 1.

    Raises
    ------
    DocumentError
        If the path does not end in .mps or .lp, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> m = Model("pick")
    >>> take = m.binary("take", (2, 2))
    >>> m.rows("once", [(take, 1.0)], lower=1.0)
    >>> m.minimize([(take, [[3.0, 1.0], [2.0, 5.0]])], offset=4.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(m, f"{folder}/pick.lp")
    ...     print(Path(folder, "pick.lp").read_text())
    \* dfopt *\
    Minimize
    OBJ: 4 constant + 3 take_0_0 + take_0_1 + 2 take_1_0 + 5 take_1_1
    Subject To
    once_0: take_0_0 + take_0_1 >= 1
    once_1: take_1_0 + take_1_1 >= 1
    Bounds
    constant = 1
    Binaries
    take_0_0
    take_0_1
    take_1_0
    take_1_1
    End
    """
    target = Path(os.path.realpath(path))  # through a link, not over it
    suffix = target.suffix.lower()
    if suffix not in (".mps", ".lp"):
        raise DocumentError(
            path, [Issue("$", f"found the suffix {target.suffix!r}, expected .mps or .lp", "name it so")]
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PuLP, about its next version
        import pulp

        problem, _ = build(pulp, as_data(model.arrays()), *_names(model))
        with replaced(target) as part:
            if suffix == ".mps":
                problem.writeMPS(part)
            else:
                problem.writeLP(part, max_length=_LONGEST + _AROUND)


def _names(model: Model) -> tuple[list[str], list[str]]:
    """Return legal, unique names of the columns, the constant's last, and of the rows."""
    places = [(name, at) for name, block in model.column_blocks.items() for at in np.ndindex(*block.shape)]
    columns = ["_".join([name, *map(str, at)]) for name, at in places]
    rows = (f"{name}_{i}" for name, block in model.row_blocks.items() for i in range(block.stop - block.start))
    return _unique([*columns, "constant"]), _unique(rows)


def _unique(names: Iterable[str]) -> list[str]:
    """Return the names made legal for both formats; a name that is there already gets a number.

    Examples
    --------
    >>> _unique(["A_3", "A[3]", "free", "e5", "1st"])
    ['A_3', 'A_3_', '_free', '_e5', '_1st']
    >>> _unique(["a b", "a_b"])
    ['a_b', 'a_b_x2']
    """
    used: dict[str, None] = {}
    for name in names:
        legal = re.sub(r"[^A-Za-z0-9_]", "_", name)[:_LONGEST] or "_"
        legal = f"_{legal}" if _TAKEN.fullmatch(legal) else legal
        fresh, number = legal, 2
        while fresh in used:
            fresh, number = f"{legal}_x{number}", number + 1
        used[fresh] = None
    return list(used)
