"""Measured kernels that are fused with their collective, against the formula of waves.

    python benchmarks/reference/fused.py CSV

The table is figure 8 of DeepStack (arXiv:2604.04750; tile-ai/DeepStack, 8ed05cc4, data/fig08), on 8 H100: compute time,
latency and time on the links of each kernel are its authors', the formula is `dfopt.physics.tiled`. Two things are
worked out here, with nothing fitted to these rows:

- *Waves.* A product has as many as its output tiles need; the output of a product behind an all-to-all is a chip's part
  of the tokens. ``--given`` takes those of the file instead. The program that reduces experts sends four parts, as the
  file says, and the switch is taken to add them up (unconfirmed).
- *Reduce-scatter.* What arrives is written into memory, and then read to be added up: the bytes of the whole output,
  each way (`dfopt.physics.beside`), at the shares of memory bandwidth that the calibration of the H100 has.

It prints the mean error of each kind, and that of the model of the file. Rows without a compute time are left out.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.kernel import Kernel
from dfopt.documents.system import System
from dfopt.library import load_system
from dfopt.machines.calibrations import assumed_on
from dfopt.physics.beside import collective_s
from dfopt.physics.collectives import Collective
from dfopt.physics.tiled import CommunicationTime, Products, beside_s, waves_of

CHIPS: Final = 8
KINDS: Final = {
    "ag_gemm": Collective.ALL_GATHER,
    "gemm_rs": Collective.REDUCE_SCATTER,
    "moe_reduce": Collective.ALL_REDUCE,
    "ulysses": Collective.ALL_TO_ALL,
}
BF16: Final = 2  # bytes


def kind_of(row: Mapping[str, str]) -> str:
    """The kind of kernel that a row is of."""
    return next(kind for kind in KINDS if row["kernel"].startswith(kind))


def waves(row: Mapping[str, str], system: System, given: bool) -> int:
    """Waves of a product: as the file says, or by its shape on one chip."""
    kind, tokens, features = kind_of(row), int(row["M_or_seq"]), int(row["N_or_out"])
    if given or kind == "moe_reduce":
        return int(row["waves"])
    shared = int(row["kernel"].rpartition("sp")[2]) if kind == "ulysses" else 1
    return waves_of([Kernel(name="a", op="gemm", m=features, n=tokens // shared)], 1, system.chip)


def seconds(row: Mapping[str, str], system: System, assumptions: Assumptions, given: bool) -> float:
    """Seconds of a fused kernel."""
    kind = KINDS[kind_of(row)]
    compute_s, hop_s, link_s = (float(row[name]) for name in ("compute_s", "noc_hop_s", "noc_link_s"))
    adding_s = 0.0
    if kind is Collective.REDUCE_SCATTER:
        elements = float(row["M_or_seq"]) * float(row["N_or_out"])
        adding_s = collective_s(kind, BF16 * elements, elements, CHIPS, system.chip, assumptions, again=False)
    sent = CommunicationTime(hop_s + link_s, hop_s, adding_s)
    return compute_s + beside_s(kind, sent, Products(compute_s, CHIPS, waves=waves(row, system, given)), assumptions)


def errors(rows: Sequence[Mapping[str, str]], given: bool = False) -> dict[str, tuple[int, float, float]]:
    """Of each kind: rows, mean error of the formula, and mean error of the model of the file."""
    chosen, system, _ = assumed_on("h100-calibrated", load_system("h100-8"))
    chosen = chosen.with_(tensor_overlap="waves", collective_work="every")
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row["compute_s"]:
            measured_s, theirs_s = (1e-3 * float(row[name]) for name in ("measured_ms", "deepstack_ms"))
            ours_s = seconds(row, system, chosen, given)
            found[kind_of(row)].append((abs(ours_s / measured_s - 1), abs(theirs_s / measured_s - 1)))
    return {
        kind: (len(each), *(sum(one) / len(each) for one in zip(*each, strict=True)))  # type: ignore[misc]
        for kind, each in found.items()
    }


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--given", action="store_true", help="take the waves of the file")
    asked = parser.parse_args(arguments)
    with open(asked.csv, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    print("kernel       rows   mean error   of the file's model")
    for kind, (count, ours, theirs) in errors(rows, asked.given).items():
        print(f"{kind:12} {count:4} {ours:11.2%} {theirs:21.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])
