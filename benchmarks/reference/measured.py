"""Measured training steps of language models against the model: a mapping is given, its time is compared.

    python benchmarks/reference/measured.py CSV [--assume PROFILE] [--borrow] [--no-memory-limit] [--rows] [--by FIELD]
        [--json FILE]

Tables are those of ``dfopt calibrate`` (:mod:`dfopt.calibration.rows`). TP, PP, DP, interleaving, microbatch,
recomputation and ZeRO are as a row says; what it does not say is chosen for least time and marked ``assumed``. A
profile is the name of assumptions, a file of them, or a calibration. ``--json`` keeps every row, with those that are
not taken and why, in the form of ``dfmodel.py`` with ``profile``, ``source``, ``model`` and ``chip`` beside it; the
quantity is ``step_seconds``. ``--borrow``: chips of no calibration of their own take the shares of the one that is
given, which is marked ``assumed``. What a row says and the model has not is named behind it as ``left out``.

Order: of all pairs of mappings of one model and batch size on as many chips of one kind, whose measured times differ by
more than `NOISE`, the share that the model puts in the same order.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray
from report import Row, finished, write_rows

from dfopt.calibration.row import TrainingRow, Untaken
from dfopt.calibration.rows import read_rows
from dfopt.calibration.steps import MeasuredStep, alike, left_out, row_machine, step_of
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.calibration import Calibration
from dfopt.documents.system import System
from dfopt.errors import DfoptError, Infeasible, SystemSpecError, refuse
from dfopt.library import load_any

QUANTITY = "step_seconds"
NOISE = 0.02


def profile_of(text: str) -> tuple[Assumptions, Calibration | None]:
    """Assumptions by name or file, or those of a calibration, and that.

    Raises
    ------
    DfoptError
        For what is neither.
    """
    found = load_any(text) if Path(text).is_file() else profile(text)
    if isinstance(found, Calibration):
        return found.assumptions, found
    if not isinstance(found, Assumptions):
        refuse(text, f"found a {type(found).__name__}", "give assumptions or a calibration")
    return found, None


def borrowed(calibration: Calibration, system: System) -> System:
    """The system with the shares of a calibration, also of another chip: its dims are matched by their place."""
    if system.chip.name == calibration.chip:
        return calibration.applied(system)
    return calibration.lent(system)


def row_of(
    given: TrainingRow | Untaken, known: dict[TrainingRow, MeasuredStep | DfoptError], options: argparse.Namespace
) -> Row:
    """A row, judged if it can be; equal steps are mapped once."""
    began = time.perf_counter()
    shared: Row = {"case": given.name, "quantity": QUANTITY, "profile": options.profile.profile, "source": given.source}
    if isinstance(given, TrainingRow):
        model = given.model
        shared |= {"model": f"{model.parameters / 1e9:.3g}B {model.seq}", "chip": given.chip, "chips": given.chips}
        shared["batch"] = given.batch
    if isinstance(given, Untaken):
        return finished({**shared, "reported": None, "ours": None, "status": "not taken", "note": given.reason})
    key = alike(given)
    if key not in known:
        try:
            system = row_machine(given, memory_limit=not options.no_memory_limit)
            if options.calibration is not None:
                system = (borrowed if options.borrow else Calibration.applied)(options.calibration, system)
            known[key] = step_of(given, options.profile, system)
        except DfoptError as error:
            known[key] = error
    seconds, step = time.perf_counter() - began, known[key]
    shared |= {"reported": given.seconds, "seconds": round(seconds, 3)}
    if isinstance(step, DfoptError):
        words = ((Infeasible, "refused"), (SystemSpecError, "not taken"))  # the latter: of another chip
        status = next((word for kind, word in words if isinstance(step, kind)), "error")
        return finished({**shared, "ours": None, "status": status, "note": str(step).replace("\n", " ")})
    ratio = step.seconds / given.seconds
    assumed, fitted = list(step.assumed), options.calibration
    if fitted is not None and step.system.chip.name != fitted.chip:
        assumed.append(f"shares of {fitted.chip}")
    notes = [f"assumed: {', '.join(assumed)}"] if assumed else []
    notes += [f"left out: {', '.join(out)}"] if (out := left_out(given)) else []
    gap = step.result.gap
    return finished({**shared, "ours": step.seconds, "ratio": ratio, "ours_is": f"{100 * (ratio - 1):+.1f} %",
                     "gap": gap, "status": "ok", "note": "; ".join(notes)})  # fmt: skip


def rank_correlation(ours: Sequence[float], measured: Sequence[float]) -> float | None:
    """Spearman's rank correlation, equal values at the mean of their ranks; none of fewer than three or equal ones.

    Examples
    --------
    >>> round(rank_correlation([1.0, 2.0, 4.0], [3.0, 5.0, 4.0]), 3)
    0.5
    """
    if len(ours) < 3:
        return None
    ranks = [_ranks(np.asarray(values, dtype=float)) for values in (ours, measured)]
    if any(np.ptp(each) == 0 for each in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    smaller = (values[:, None] > values).sum(axis=1)
    alike = (values[:, None] == values).sum(axis=1)
    return np.asarray(smaller + (alike - 1) / 2, dtype=float)


def summary(rows: list[Row], field: str = "source") -> list[str]:
    """Errors by a field of the rows, and in all."""
    by: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            by[row[field]].append(row)
    lines = [f"{field:58} {'rows':>4} {'mean':>6} {'median':>6} {'max':>6} {'bias':>7} {'rank':>5} {'order':>12}"]
    every = [row for each in by.values() for row in each]
    for name, each in [*by.items(), ("all", every)]:
        errors = [row["ratio"] - 1 for row in each]
        if not errors:
            continue
        sizes = [abs(error) for error in errors]
        rank = rank_correlation([row["ours"] for row in each], [row["reported"] for row in each])
        shown = "-" if rank is None else f"{rank:.2f}"
        right, pairs = ordered(each)
        told = f"{right} of {pairs}" if pairs else "-"
        figures = (
            f"{mean(sizes):6.1%} {median(sizes):6.1%} {max(sizes):6.1%} {mean(errors):+7.1%} {shown:>5} {told:>12}"
        )
        lines.append(f"{name[:58]:58} {len(each):4} {figures}")
    return lines


def ordered(rows: list[Row]) -> tuple[int, int]:
    """Pairs of mappings that are in the order in which they were measured, and how many pairs there are."""
    right = pairs = 0
    alike = ("model", "chip", "chips", "batch")
    for one, other in combinations(rows, 2):
        apart = one["reported"] / other["reported"] - 1
        if any(one[field] != other[field] for field in alike) or abs(apart) <= NOISE or one["ours"] == other["ours"]:
            continue
        pairs += 1
        right += (one["ours"] > other["ours"]) == (apart > 0)
    return right, pairs


def main(arguments: list[str] | None = None) -> int:
    """Compare, and print the tables; 3 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, metavar="CSV")
    parser.add_argument("--assume", default="default", metavar="PROFILE")
    parser.add_argument("--borrow", action="store_true", help="take the shares of a calibration of another chip")
    parser.add_argument("--by", default="source", choices=["source", "model", "chip"], help="print errors by this")
    parser.add_argument("--no-memory-limit", action="store_true", help="let a chip's memory hold everything")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    try:
        options.profile, options.calibration = profile_of(options.assume)
        given = read_rows(options.csv)
    except (DfoptError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    known: dict[TrainingRow, MeasuredStep | DfoptError] = {}
    rows = []
    for one in given:
        rows.append(row_of(one, known, options))
        row = rows[-1]
        if options.rows and row["status"] == "ok":
            print(
                f"{row['case']:44} {row['reported']:9.3f} {row['ours']:9.3f} {row['ours_is']:>8}  {row['note']}",
                flush=True,
            )
    print("\n".join(summary(rows, options.by)))
    for row in rows:
        if row["status"] != "ok":
            print(f"{row['status']}: {row['case']}: {row['note'][:150]}")
    print(f"{len(rows)} rows, {len(known)} different steps, {time.perf_counter() - began:.0f} s")
    if options.json is not None:
        write_rows(rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
