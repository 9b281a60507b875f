"""Faults put into the search, each alone in a copy of the checkout, whose tests have to fail."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from claims.rows import ROOT, Asked, Row, run


class Mutation(NamedTuple):
    """A fault: where, what the source has there, once, what is put in its place, and tests to begin with."""

    name: str
    file: str
    text: str
    instead: str
    first: tuple[str, ...]

    def count(self, root: Path = ROOT) -> int:
        """How often the source has the text."""
        return (root / self.file).read_text(encoding="utf-8").count(self.text)

    def apply(self, root: Path) -> None:
        """Put the fault into a checkout."""
        path = root / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.text, self.instead), encoding="utf-8")


LIMIT = 240.0  # seconds of a run of pytest; a fault may keep the search from ending
BOUNDS, WHOLE, SEVERAL, LARGE = (
    f"tests/regions/test_{name}.py" for name in ("bounds", "best_mapping", "several", "large_layers")
)
MUTATIONS = [
    Mutation(
        "dominance: kernels whose output is handed on to other stages are compared without it",
        "dfopt/regions/reductions.py",
        "messages.handed.tolist() if messages.sends else ())",
        "())",
        (LARGE,),
    ),
    Mutation(
        "reduced costs: options go that are a little below the cutoff",
        "dfopt/regions/reductions.py",
        "keep_o = np.isfinite(step_o) & (step_o < max(cutoff, step_o.min() * _MORE))",
        "keep_o = np.isfinite(step_o) & (step_o < max(0.9 * cutoff, step_o.min() * _MORE))",
        (BOUNDS, SEVERAL),
    ),
    Mutation(
        "path bound: one per cent too high",
        "dfopt/regions/relaxations.py",
        '"""\n        return facts.by_all',
        '"""\n        return 1.01 * facts.by_all',
        (BOUNDS, WHOLE),
    ),
    Mutation(
        "dual of resources: one per cent too high",
        "dfopt/regions/relaxations.py",
        "return facts.by_dual",
        "return 1.01 * facts.by_dual",
        (BOUNDS, WHOLE),
    ),
    Mutation(
        "dual of resources in any tiles: one per cent too high",
        "dfopt/regions/relaxations.py",
        "layers = [untiled(of.menu, of.chip, [arcs",
        "layers = [1.01 * untiled(of.menu, of.chip, [arcs",
        (BOUNDS, WHOLE),
    ),
    Mutation(
        "leaves: of several mappings, others may be as good as the last that is found",
        "dfopt/regions/leaves.py",
        "last = lows[-1] if len(candidates) == asked.top else view.cutoff",
        "last = view.cutoff",
        (SEVERAL,),
    ),
    Mutation(
        "one conversion price: a tenth too little",
        "dfopt/terms/rules/network.py",
        'return Charge("network_s", incidence, scope, seconds[produced, layouts])',
        'return Charge("network_s", incidence, scope, 0.9 * seconds[produced, layouts])',
        (WHOLE,),
    ),
]


def mutations(asked: Asked) -> Iterator[Row]:
    """Seven faults in the search, each of which the tests of `tests/regions` have to catch."""
    for one in MUTATIONS[: asked.most]:
        if (times := one.count()) != 1:
            seen = f"{one.file} has `{one.text}` {times} times, expected once: write the mutation anew"
            yield Row("mutations", one.name, seen, "caught", None)
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "figures", "notebooks"))
            one.apply(copy)
            seconds, seen, caught = 0.0, "survived", False
            for tests in (*one.first, "tests/regions"):
                words = ["-m", "pytest", "-x", "-q", *tests.split()]
                done = run(words, root=copy, limit=LIMIT, HYPOTHESIS_PROFILE="mut")
                seconds += done.seconds
                if done.code is None:  # a later file may say what is wrong
                    seen = f"no answer from {tests} in {LIMIT:g} s"
                elif done.code != 0:
                    failed = [line for line in done.out.splitlines() if line.startswith("FAILED")]
                    caught = done.code == 1 and bool(failed)
                    seen = failed[0].split(" - ")[0] if caught else f"pytest ended with {done.code}: {done.last}"
                    break
        yield Row("mutations", one.name, f"{seen}, {seconds:.0f} s", "caught", caught)
