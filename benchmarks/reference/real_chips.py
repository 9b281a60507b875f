"""Chips that designs of the zoo derive, held against the datasheets of the cards that they are named after.

``python benchmarks/reference/real_chips.py [--json]`` prints every figure, and the numbers of each technology that
were tuned to a card: those whose line in its file, or in that of a part or base of it, says ``tuned``. The shares of
the designs are chosen for the card too; what is held here is that one set of numbers makes the whole chip, within its
area, its power and its edge. B200 has no limit: nothing is tuned to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from line import Line, told

from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find
from dfopt.library import load_system

# NVIDIA's datasheets of V100 SXM2 16GB, A100 SXM 80GB, H100 SXM 80GB and HGX B200: FLOP/s in 16 bits without sparsity,
# B/s and B of the memory, B/s of all links in one direction (half of what is stated for both).
DATASHEETS = {
    "v100": (125e12, 900e9, 16e9, 150e9),
    "a100": (312e12, 2039e9, 80e9, 300e9),
    "h100": (989.5e12, 3350e9, 80e9, 450e9),
    "b200": (2250e12, 8000e9, 192e9, 900e9),
}
FIGURES = (("peak", 1e12, "TFLOP/s"), ("DRAM", 1e9, "GB/s"), ("capacity", 1e9, "GB"), ("links", 1e9, "GB/s"))
FREE = ("b200",)
WITHIN, MOST_TUNED = 0.1, 6


def derived(name: str) -> tuple[float, float, float, float]:
    """The same figures of a design's chip."""
    system = load_system(f"designs/{name}")
    dram = system.chip.fastest
    return system.chip.peak_flops, dram.bandwidth, dram.capacity or 0.0, system.network[0].link_bandwidth


def tuned(name: str) -> dict[str, list[str]]:
    """What was tuned in every technology and part that a design is made of."""
    found: dict[str, list[str]] = {}

    def read(names: list[str]) -> None:
        for one in names:
            path = find("technologies", one)
            lines = path.read_text(encoding="utf-8").splitlines()
            keys = [line.partition(":")[0].strip() for line in lines if line.partition("#")[2].startswith(" tuned")]
            found[path.stem] = keys
            read(named(load_strict(path)))

    def named(data: object) -> list[str]:
        if isinstance(data, str):
            return [data]
        given = data if isinstance(data, dict) else {}
        return [*given.get("parts", ()), *([given["scaling"]["from"]] if "scaling" in given else [])]

    read(named(load_strict(find("designs", name))["technology"]))
    return found


def rows() -> Iterator[Line]:
    """Every card: its figures, and what was tuned."""
    for name, public in DATASHEETS.items():
        ours = derived(name)
        off = [one / other - 1 for one, other in zip(ours, public, strict=True)]
        seen = ", ".join(
            f"{what} {one / scale:.4g} of {other / scale:.4g} {unit} ({apart:+.1%})"
            for (what, scale, unit), one, other, apart in zip(FIGURES, ours, public, off, strict=True)
        )
        if name in FREE:
            yield Line(name, seen, "", None)
            continue
        yield Line(name, seen, f"{WITHIN:.0%}", max(map(abs, off)) <= WITHIN)
        of_each = tuned(name)
        said = "; ".join(f"{part}: {', '.join(keys) or 'none'}" for part, keys in of_each.items())
        yield Line(f"{name}, tuned", said, f"{MOST_TUNED} of each", max(map(len, of_each.values())) <= MOST_TUNED)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    return told(list(rows()), given.json)


if __name__ == "__main__":
    sys.exit(main())
