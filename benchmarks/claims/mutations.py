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
LAYER, WHOLE = "tests/joint/test_layer_search.py", "tests/joint/test_joint_search.py"
MUTATIONS = [
    Mutation(
        "dominance of labels: smaller shares and paid layouts do not matter",
        "dfopt/joint/labels.py",
        "self.better_xy[1:, 1:] |= inner & better",
        "self.better_xy[1:, 1:] |= inner",
        (LAYER, WHOLE),
    ),
    Mutation(
        "dominance of cells: the first term is not compared",
        "dfopt/joint/cells.py",
        "beaten = (marks[champion] <= marks[rows]).all(axis=1) & (champion != rows)",
        "beaten = (marks[champion, 1:] <= marks[rows, 1:]).all(axis=1) & (champion != rows)",
        (LAYER, WHOLE),
    ),
    Mutation(
        "promises of conversions: blocks promise nothing to later ones",
        "dfopt/joint/cells.py",
        "promises = np.array(group.unions(inside))",
        "promises = np.zeros(1, dtype=np.int64)",
        (f"{LAYER}::test_a_block_promises_the_layouts_that_a_later_block_may_ask_for", LAYER),
    ),
    Mutation(
        "carried guesses: the source need not pay what its readers took for granted",
        "dfopt/joint/labels.py",
        "np.where(y_outer, True, paying)",
        "np.where(y_outer, True, True)",
        ("tests/joint/test_assignment.py", LAYER, WHOLE),
    ),
    Mutation(
        "tiling in the relaxed stage: weights in parts are priced as the relaxed stage has them",
        "dfopt/joint/layer.py",
        "tight = (member.sum(axis=1) == 1) & member[:, self.tight_k].any(axis=1)",
        "tight = np.zeros(len(member), dtype=bool)",
        (f"{LAYER}::test_a_weight_in_parts_is_alone_where_what_a_block_hands_on_takes_no_sram", LAYER),
    ),
    Mutation(
        "one conversion price: a tenth too little",
        "dfopt/joint/couplings.py",
        "seconds_ca=tables.conversion_tls[tensors[np.argmin(tables.late_t[tensors])]][layout_c],",
        "seconds_ca=0.9 * tables.conversion_tls[tensors[np.argmin(tables.late_t[tensors])]][layout_c],",
        (LAYER, WHOLE),
    ),
]


def mutations(asked: Asked) -> Iterator[Row]:
    """Six faults in the search, each of which the tests of `tests/joint` have to catch."""
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
            for tests in (*one.first, "tests/joint"):
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
