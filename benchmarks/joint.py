"""Every claim about the joint optimum of sharding, fusion, plan and memory, run again: a row of a table for each.

    python benchmarks/joint.py [--list] [--only NAME ...] [--seconds S] [--examples N] [--most N] [--reference DIR]
        [--json FILE]

Seconds are those on the clock, without imports and loading; where a solve is short, the least of three. A claim that is
not met is a row: the exit code is 0 as long as all of it ran.
"""

from __future__ import annotations

import sys

from claims import faulty, memory, mutations, programs, studies, times
from claims.rows import Asked, Section, listed, parser_of, table

MOST = (
    "drawn pairs and questions, checked results and mutations at most, each; if given, of studies only the cells of the"
    " first chip, memory and link of every system"
)
SECTIONS: dict[str, Section] = {
    "reproduced": times.reproduced,
    "forward-times": times.forward_times,
    "pipeline-plans": times.pipeline_plans,
    "training-times": times.training_times,
    "scale": times.scale,
    "drawn": times.drawn,
    "sequence-splits": times.sequence_splits,
    "two-levels": programs.two_levels,
    "local-search": programs.local_search,
    "matrices": programs.matrices,
    "brute": programs.brute,
    "dse": studies.dse,
    "best-plans": studies.best_plans,
    "check": times.check,
    "infeasible": memory.infeasible,
    "tests": programs.tests,
    "nothing-lost": programs.nothing_lost,
    "mutations": mutations.mutations,
    "faults": faulty.faults,
}


def main(words: list[str] | None = None) -> int:
    """Print the table."""
    parser = parser_of(__doc__, SECTIONS)
    parser.add_argument("--attack", type=float, default=20.0, help="seconds of the search around one answer")
    parser.add_argument("--most", type=int, help=MOST)
    given = parser.parse_args(words)
    if given.list:
        listed(SECTIONS)
        return 0
    asked = Asked(given.seconds, given.attack, given.examples, given.most, given.reference)
    table(SECTIONS, given.only, asked, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
