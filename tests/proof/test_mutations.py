"""Faults of the search: a check that has them too refuses the wrong answers that they lead to."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_path import beside_its_own

from dfopt.search.verify import verify

FAULTY = beside_its_own(Path(__file__).resolve().parents[2] / "benchmarks" / "joint.py").faulty
QUICK = FAULTY.committed()[:3]  # all others: python benchmarks/joint.py --only faults


@pytest.mark.parametrize("number", range(len(QUICK)))
def test_without_a_fault_the_answers_are_right(number: int) -> None:
    """Their values are those that faults are held against."""
    result = QUICK[number].solved()
    assert result.status == "optimal" and result.value == pytest.approx(QUICK[number].value, rel=1e-9)
    assert verify(result).verdict == "verified optimal"


@pytest.mark.parametrize(
    ("number", "name"), [(number, name) for number, question in enumerate(QUICK) for name in question.faults]
)
def test_a_wrong_answer_is_refused(number: int, name: str) -> None:
    """A region with the best mapping is closed, and other code shows that there is a better one than the answer."""
    [fault] = (each for each in FAULTY.FAULTS if each.name == name)
    assert QUICK[number].word(fault, QUICK[number].faults[name]) == "refused"


def test_every_relaxation_has_a_fault() -> None:
    """Those of the search, by the classes of its list."""
    from claims.faults import RELAXATIONS

    from dfopt.regions.facts import FactCache
    from dfopt.regions.problem import relaxations_of

    names = {f"relaxation {type(each).__name__}" for each in relaxations_of(FactCache())}
    assert names == {each.name for each in RELAXATIONS}


@pytest.mark.parametrize("name", [fault.name for fault in FAULTY.FAULTS])
def test_a_fault_is_in_a_place_that_there_is(name: str) -> None:
    [fault] = (each for each in FAULTY.FAULTS if each.name == name)
    with fault.put_in(1.0):
        pass
