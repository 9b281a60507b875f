"""Every claim about language models, from their files to wide expert parallelism: a row of a table for each.

    python benchmarks/models.py [--list] [--only NAME ...] [--seconds S] [--examples N] [--reference DIR] [--json FILE]

A claim that is missed is a row, and so is one that could not be said: then the exit code is 1. What needs the measured
rows and files of others (``--reference``) is passed over without them, which its row says. Seconds are those on the
clock, imports and loading included.
"""

from __future__ import annotations

import sys
from collections import Counter

from claims import configs, serving, suites, use, wide
from claims.rows import Asked, Section, listed, parser_of, table

SECTIONS: dict[str, Section] = {
    "nothing-broken": suites.nothing_broken,
    "counts": configs.counts,
    "configs": configs.configs,
    "phases": suites.phases,
    "bounds": serving.bounds,
    "kernels": serving.kernels,
    "decode": serving.decode,
    "sn40l": serving.sn40l,
    "shardings": suites.shardings,
    "wide-ep": wide.wide_ep,
    "wide-training": wide.wide_training,
    "all-to-all": serving.all_to_all,
    "speed": suites.speed,
    "shortcuts": suites.shortcuts,
    "onnx": suites.onnx,
    "bad-input": use.bad_input,
    "fresh": use.fresh,
}


def main(words: list[str] | None = None) -> int:
    """Print the table, and how many claims are met."""
    given = parser_of(__doc__, SECTIONS).parse_args(words)
    if given.list:
        listed(SECTIONS)
        return 0
    asked = Asked(seconds=given.seconds, examples=given.examples, reference=given.reference)
    rows = table(SECTIONS, given.only, asked, given.json)
    counts = Counter(row.verdict.strip("*") for row in rows)
    words = {"yes": "met", "no": "missed", "error": "errors", "passed over": "passed over for want of data"}
    print(f"\n{len(rows)} claims: " + ", ".join(f"{counts[key]} {word}" for key, word in words.items() if counts[key]))
    return int(counts["yes"] + counts["passed over"] < len(rows))


if __name__ == "__main__":
    sys.exit(main())
