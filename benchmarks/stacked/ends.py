"""Figure 16 at both ends of the range of every constant, one at a time, the area law refitted to figure 15 each time.

    python benchmarks/stacked/ends.py run [--jobs 2]
    python benchmarks/stacked/ends.py claims

``run`` takes the mappings that answered figure 16, solved again under their degrees on the design that had them. At
each end each number of layers is judged with its own mapping and those of one layer less and more, on each chip that
won in the curve, and the best counts. No plan is searched anew there, so a curve is what known mappings reach. The
first run is the file as it is. Curves go to ``results/ends.jsonl``. Ends that move no rate and no area are left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from area_law import ends
from asked import HERE, LAYERS, add_record, answers, degrees_of, question, records_of, with_sizes
from claimed import published_16, rank

import dfopt
from dfopt.documents.design import Design
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.system import System
from dfopt.errors import DfoptError, NoSolution
from dfopt.library import as_design

ANSWERS: Final = HERE / "results" / "ends.jsonl"
STILL: Final = (
    "power",
    "energy",
    "usd",
    "defects_per_cm2",
    "yield",
    "pitch",
    "network_area",
)  # what they move is no rate
Regime = tuple[str, str]
Chip = tuple[float, float]  # buffer and port


class Known(NamedTuple):
    """A mapping that answered a row of figure 16."""

    mapping: Mapping
    graph: Graph


class Curve(NamedTuple):
    """What is known of a curve: the mapping of each number of layers, and the chips that won somewhere."""

    known: dict[int, Known]
    chips: tuple[Chip, ...]

    def near(self, layers: int) -> list[Known]:
        """The mappings of as many layers, one less and one more."""
        return [self.known[at] for at in (layers, layers - 1, layers + 1) if at in self.known]


def known_of(regime: Regime) -> Curve:
    """What is known of a curve."""
    rows = {int(key[2]): row for key, row in answers("16").items() if key[:2] == regime and row["tokens_per_s"]}
    found = dict[int, Known]()
    for layers, row in rows.items():
        asked = question(*regime, microbatch=row["microbatch"], **degrees_of(row["plan"]))
        of = with_sizes(start(), {**row["design"], "connected_layers": layers})
        with suppress(NoSolution):  # in its time: its neighbors have mappings
            result = dfopt.solve(asked.pop("graph"), of, time_limit=60, gap=0.02, **asked)
            found[layers] = Known(result.mapping, result.graph)
    chips = {(row["design"]["buffer"], row["design"]["buffer_port"]): None for row in rows.values()}
    return Curve(found, tuple(chips))


def start() -> Design:
    """The design whose sizes the figure chooses."""
    return as_design("stacked-256")


def curve(of: Design, regime: Curve) -> dict[int, float]:
    """Tokens/s over the number of layers; 0 where none of the mappings fits, or there is no such chip."""
    return {
        layers: max(
            (tokens(of, layers, chip, one) for chip in regime.chips for one in regime.near(layers)), default=0.0
        )
        for layers in LAYERS
    }


@cache
def system_of(of: str, layers: int, chip: Chip) -> System | None:
    """A machine of the figure; none where there is none."""
    sizes = {"dram_layers": layers, "connected_layers": layers, "buffer": chip[0], "buffer_port": chip[1]}
    try:
        return dfopt.derive(with_sizes(Design.from_data(json.loads(of), "stacked-256"), sizes)).system
    except DfoptError:
        return None


def tokens(of: Design, layers: int, chip: Chip, one: Known) -> float:
    """What the judge says of a mapping on a chip with so many layers; 0 where it does not fit."""
    system = system_of(json.dumps(of.to_data()), layers, chip)
    if system is None:
        return 0.0
    try:
        score = dfopt.evaluate(one.mapping, one.graph, system)
    except DfoptError:
        return 0.0
    return 0.0 if score.violations else score.tokens_per_s


def run(jobs: int) -> None:
    """Judge what is open."""
    done = {tuple(record["key"]) for record in records_of(ANSWERS)}
    moved = [one for one in ends() if not one.name.endswith(STILL)]
    cases = [(("as in the file", ""), start()), *(((one.name, one.end), one.design) for one in moved)]
    todo = [(key, of) for key, of in cases if key not in done and of is not None]
    if not todo:
        return
    regimes = list(published_16())
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs) as pool:
        known = dict(zip(regimes, pool.map(known_of, regimes, chunksize=1), strict=True))
        for key, of in todo:
            curves = pool.starmap(curve, [(of, known[regime]) for regime in regimes], chunksize=1)
            record = {" ".join(regime): one for regime, one in zip(regimes, curves, strict=True)}
            add_record(ANSWERS, {"key": key, "curves": record})


def counts(curves: dict[str, dict[str, float]]) -> tuple[int, int]:
    """Of how many curves the peak is within two layers of the published one, and the rank correlation 0.8 or more."""
    near = alike = 0
    for regime, theirs in published_16().items():
        ours = {int(layers): value for layers, value in curves[" ".join(regime)].items()}
        near += abs(max(ours, key=ours.__getitem__) - max(theirs, key=theirs.__getitem__)) <= 2
        alike += rank([theirs[layers] for layers in LAYERS], [ours[layers] for layers in LAYERS]) >= 0.8
    return near, alike


def keeps(curves: dict[str, dict[str, float]]) -> bool:
    """Whether both counts are those that figure 16 has to have."""
    return min(counts(curves)) >= 8


def claims() -> None:
    """How many curves keep their peak and their order, at each end."""
    found = records_of(ANSWERS)
    for record in found:
        near, alike = counts(record["curves"])
        said = f"{near:2} of 10 peaks within 2, {alike:2} ranks of 0.8"
        print(f"{' '.join(record['key']):40} {said}{'' if keeps(record['curves']) else '   FAILS'}")
    kept = sum(keeps(record["curves"]) for record in found if record["key"][1])
    print(f"both counts in {kept} of {sum(bool(record['key'][1]) for record in found)}, limit 90 %")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "claims"))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.what == "run":
        run(given.jobs)
    else:
        claims()


if __name__ == "__main__":
    main()
