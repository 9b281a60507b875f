"""Sums over the incidences of blocks: small ones, which need no sparse matrices, and large ones are the same bits."""

import subprocess
import sys

import numpy as np
import pytest

from dfopt.arrays import Ints
from dfopt.terms import counting
from dfopt.terms.counting import IncidenceCounts
from dfopt.terms.incidence import AnyOf, Has, Incidence


@pytest.mark.parametrize("some", [None, np.array([3, 0, 3])], ids=["all", "some"])
@pytest.mark.parametrize("vectors", [0, 1, 3, 9])
def test_small_sums_are_those_of_sparse_matrices(
    vectors: int, some: Ints | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(vectors)
    member_bk = draw.random((20, 6)) < 0.4
    incidences: tuple[Incidence, ...] = (*map(Has, range(6)), AnyOf((0, 4)), AnyOf((1, 2, 3)))
    amount_vi = draw.random((vectors, len(incidences)))
    amount_vi[:, 2] = np.inf
    small = IncidenceCounts(member_bk).block_totals(incidences, amount_vi, some)
    monkeypatch.setattr(counting, "_SMALL", -1)
    assert np.array_equal(small, IncidenceCounts(member_bk).block_totals(incidences, amount_vi, some))


def test_small_questions_load_no_sparse_matrices() -> None:
    code = "import sys, dfopt; dfopt.solve('gpt2-small', 'h100-8'); sys.exit('scipy.sparse' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code], check=False).returncode
