"""What the authors' program DeepFlow printed, held against dfopt: a table for every file that is there.

``python benchmarks/reference/deepflow.py DIR [--json]`` takes ``DIR/predictions`` or files of the same names in ``DIR``
itself. A table that misses its limit makes the exit status 1; a file that is not there is passed over.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from crossflow_tables import gemm, language_model
from line import Line, told
from placement_links import heaviest, loads, placed
from placement_menu import orders_met
from search_tables import searched, traced
from seats import Mesh, Ring, fill, strategy
from sweep_tables import chips, data_parallel, mapped

from dfopt.errors import DfoptError

NAMES = {"kp1": "k1", "kp2": "k2", "dp": "data", "lp": "pipeline"}
MOST_SECONDS = 1.0
PORTS = (0.1, 1.0, 10.0)
Mix = tuple[tuple[Ring, ...], Mesh]


def mix(row: dict[str, str]) -> Mix:
    """The strategy of a layout, and the packages that it is on."""
    degrees = (int(row[name]) for name in NAMES)
    return strategy(*degrees), Mesh(int(row["package_dim"]), int(row["num_packages"]))


def order(row: dict[str, str]) -> list[str]:
    return [NAMES[name] for name in row["order_first_to_last"].split(">")]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["status"] == "ok"]


def sharing(file: Path) -> Iterator[Line]:
    """Rings on the most loaded links, and who leaves its package, as the program counts."""
    layouts = rows(file)
    began = time.process_time()  # of the processor: the same on a busy machine
    equal = 0
    for row in layouts:
        rings, mesh = mix(row)
        found = loads(rings, mesh, fill(rings, mesh, order(row)), "deepflow")
        shared = int(row["max_sharing_inter_link"]), int(row["max_sharing_intra_link"])
        crosses = tuple(row[f"{name}_crosses"] == "True" for name in NAMES)
        equal += found.shared == shared and found.crosses == crosses
    took = time.process_time() - began
    whole = equal == len(layouts) and took < MOST_SECONDS
    seen = f"{equal} of {len(layouts)} layouts equal, {took:.2f} s of the processor"
    yield Line("link sharing, profile deepflow", seen, f"all equal, {MOST_SECONDS:g} s", whole)


def chosen(file: Path) -> Iterator[Line]:
    """Loads counted right: what all together say beside what each has of its own, and the chosen placement."""
    mixes: dict[Mix, list[list[str]]] = {}
    for row in rows(file):
        if int(row["package_dim"]) > 1:
            mixes.setdefault(mix(row), []).append(order(row))
    over, better, worse = [], 0, 0
    for (rings, mesh), of_mix in mixes.items():
        best = min((loads(rings, mesh, fill(rings, mesh, one)) for one in of_mix), key=heaviest)
        together = max(best.shared)
        over += [together / max(own) for ring, own in zip(rings, best.own, strict=True) if ring.chips > 1]
        mine, theirs = heaviest(placed(rings, mesh).loads), heaviest(best)
        better += mine < theirs
        worse += mine > theirs
    if not mixes:
        return
    seen = f"{median(over):.2f} times in the median, {max(over):.2f} at most, {len(over)} parallelisms"
    yield Line("derate by all rings together over that by its own, best order", seen, "", None)
    seen = f"lighter for {better} of {len(mixes)} mixes, heavier for {worse}"
    yield Line("chosen placement beside the best order", seen, "never heavier", not worse)
    met = list(orders_met(mixes, PORTS))
    seen = f"as fast as {sum(met)} of {len(met)} orders, ports {', '.join(f'{port:g}' for port in PORTS)} times a link"
    yield Line("placements that a search lists, all collectives at once", seen, "all", all(met))


TABLES: tuple[tuple[str, Callable[[Path], Iterator[Line]]], ...] = (
    ("placement_link_sharing.csv", sharing),
    ("placement_link_sharing.csv", chosen),
    ("crossflow2021_p4_gemm.csv", gemm),
    ("crossflow2021_v100_gemm.csv", gemm),
    ("crossflow2021_v100_lm.csv", language_model),
    ("gd_search_trace.csv", traced),
    ("gd_search_trace.csv", searched),
    ("repo_stored_lm_sweeps.csv", chips),
    ("repo_stored_lm_sweeps.csv", data_parallel),
    ("repo_stored_lm_sweeps.csv", mapped),
)


def tables(folder: Path) -> Iterator[Line]:
    """Every line of every table whose file is there."""
    for name, table in TABLES:
        for file in (folder / "predictions" / name, folder / name):
            if file.is_file():
                yield from table(file)
                break


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; 1 if a limit is missed, 3 if there is no file at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        found = list(tables(given.folder))
    except DfoptError as error:
        print(error, file=sys.stderr)
        return 3
    if not found:
        names = ", ".join(dict(TABLES))
        print(f"{given.folder}: found none of {names}; give a folder that has one, or predictions/ with it",
              file=sys.stderr)  # fmt: skip
        return 3
    return told(found, given.json)


if __name__ == "__main__":
    sys.exit(main())
