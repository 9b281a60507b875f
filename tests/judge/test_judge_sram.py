"""The time of SRAM traffic against arithmetic done by hand."""

from __future__ import annotations

import math

import pytest
from judge_cases import PLAIN, machine, place
from test_judge_hand import ONE, PAIR

from dfopt.documents.system import Sram, System
from dfopt.errors import DocumentError
from dfopt.judge import evaluate


@pytest.mark.parametrize(
    ("overlap", "seconds"), [("perfect", 11.2), ("none", 4.096 + 6.4 + 11.2), ("compute_memory", 11.2)]
)
@pytest.mark.parametrize("parts", [(0, 0), (0, 1)])
def test_by_hand(overlap: str, seconds: float, parts: tuple[int, int]) -> None:
    """a reads 256 B and 64 B of weights and writes 128 B, b reads 128 B and 64 B and writes 256 B, cut or not."""
    sram = Sram(capacity=1e9, bandwidth=80.0)
    free = machine()
    system = free.model_copy(update={"chip": free.chip.model_copy(update={"sram": sram})})
    score = evaluate(place(PAIR, {"a": parts[0], "b": parts[1]}, ONE), PAIR, system, PLAIN.with_(overlap=overlap))
    assert math.fsum(part.sram_s or 0.0 for part in score.partitions) == pytest.approx(11.2)
    assert {part.bound_by for part in score.partitions} == {"sram"}
    assert (score.bound_by, score.sram_share) == ("sram", 1.0)
    if parts == (0, 0):
        assert score.layer_time_s == pytest.approx(seconds)


def test_without_a_limit_nothing_is_said_of_it() -> None:
    score = evaluate(place(PAIR, {"a": 0, "b": 1}, ONE), PAIR, machine(), PLAIN)
    assert score.sram_share is None and "sram_share" not in score.to_data()
    assert all(part.sram_s is None for part in score.partitions)
    assert machine().chip.sram.model_dump(exclude_none=True) == {"capacity": 1e9}
    assert "bandwidth" not in machine().to_data()["chip"]["sram"]


def test_a_bandwidth_of_nothing_is_refused() -> None:
    data = machine().to_data()
    data["chip"]["sram"]["bandwidth"] = "0 GB/s"
    with pytest.raises(DocumentError, match=r"\$\.chip\.sram\.bandwidth"):
        System.from_data(data)
