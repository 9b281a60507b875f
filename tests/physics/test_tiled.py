"""Communication hidden behind products: the closed form against a walk through the tiles, and what shows of windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.errors import PlanError
from dfopt.physics.collectives import Collective
from dfopt.physics.tiled import CommunicationTime, Products, beside_s
from dfopt.physics.window import Window, running

SECONDS = st.floats(0.01, 10.0)
RING, PIPE, WAVES = (Assumptions(tensor_overlap=way) for way in ("ring", "pipe", "waves"))


def walked(network_s: float, compute_s: float, memory_s: float, tiles: int, usage: float, first: bool) -> float:
    """A product tile by tile: alone, then each beside the communication of another one, as Calculon has it."""
    tile, slowed = (compute_s + memory_s) / tiles, (compute_s / (1 - usage) + memory_s) / tiles
    sent, computing = network_s / tiles, compute_s / (1 - usage) / tiles
    whole = tile + first * sent
    for _ in range(tiles - 1):
        whole += slowed + sent - computing if sent > computing else tile + usage * sent
    return whole


@given(SECONDS, SECONDS, SECONDS, st.integers(2, 64), st.floats(0.0, 0.9), st.booleans())
def test_tile_by_tile(
    network_s: float, compute_s: float, memory_s: float, tiles: int, usage: float, first: bool
) -> None:
    chosen = PIPE if first else RING
    found = beside_s(Collective.REDUCE_SCATTER, CommunicationTime(network_s), Products(compute_s, tiles, usage), chosen)
    whole = walked(network_s, compute_s, memory_s, tiles, usage, first)
    assert compute_s + memory_s + found == pytest.approx(whole, rel=1e-9)
    assert first or found <= network_s * (1 + 1e-12)


@given(SECONDS, SECONDS, SECONDS, SECONDS, st.integers(2, 64), st.floats(0.0, 0.9), st.sampled_from([RING, PIPE]))
def test_more_of_either_never_takes_less(
    network_s: float, compute_s: float, sent_s: float, work_s: float, tiles: int, usage: float, chosen: Assumptions
) -> None:
    def whole(sent: float, work: float) -> float:
        return work + beside_s(Collective.ALL_GATHER, CommunicationTime(sent), Products(work, tiles, usage), chosen)

    more = whole(network_s + sent_s, compute_s + work_s)
    assert whole(network_s, compute_s) <= whole(network_s + sent_s, compute_s) * (1 + 1e-12)
    assert whole(network_s + sent_s, compute_s) <= more * (1 + 1e-12)


def sent_in_waves(network_s: float, latency_s: float, compute_s: float, waves: int) -> float:
    """A fused kernel event by event: each wave is sent when it is computed and the message before it is out."""
    computed = out = 0.0
    for _ in range(waves):
        computed += compute_s / waves
        out = max(computed, out) + (network_s - latency_s) / waves
    return out + latency_s


@given(SECONDS, SECONDS, SECONDS, st.integers(2, 64))
def test_waves_take_one_latency_more_than_their_messages(
    link_s: float, late_s: float, work_s: float, waves: int
) -> None:
    sent, products = CommunicationTime(link_s + late_s, late_s), Products(work_s, 4, waves=waves)
    whole = work_s + beside_s(Collective.REDUCE_SCATTER, sent, products, WAVES)
    least = sent_in_waves(link_s + late_s, late_s, work_s, waves)
    # The message of the last wave waits for those before it, which are late themselves.
    assert least * (1 - 1e-9) <= whole <= (least + late_s) * (1 + 1e-9)


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, st.integers(1, 64))
def test_more_of_anything_in_waves_never_takes_less(
    link_s: float, late_s: float, work_s: float, chip_s: float, more_s: float, waves: int
) -> None:
    def whole(link: float, late: float, work: float, chip: float) -> float:
        products = Products(work, 4, waves=waves)
        return work + beside_s(Collective.ALL_GATHER, CommunicationTime(link + late, late, chip), products, WAVES)

    given_s = [link_s, late_s, work_s, chip_s]
    for at in range(4):
        more = [one + more_s * (number == at) for number, one in enumerate(given_s)]
        assert whole(*given_s) <= whole(*more) * (1 + 1e-12)


def test_what_is_no_product_hides_nothing() -> None:
    assert beside_s(Collective.ALL_GATHER, CommunicationTime(4.0), Products(0.0, 4, 0.1), RING) == 4.0
    assert beside_s(Collective.POINT_TO_POINT, CommunicationTime(4.0), Products(9.0, 4, 0.1), RING) == 4.0


def test_windows_of_several_chunks() -> None:
    """The last chunk and those before it, by hand."""
    wide = Window(1.0, 3.0, 1.0, 2.0, 0.5, True, 0.1)
    # 2 layers in a chunk: 1 shows; 2 s hide behind 4 stages x 4.5 s, at 0.1 each; the last chunk has 4 - 3.25 s for 1 s
    assert wide.exposed_s(stages=4, chunks=3, layers=6, microbatches=8) == pytest.approx(1 + 2 * 0.2 + 1 + 0.2 - 0.75)
    assert running([(1.0, 1), (2.0, 2)]) == 7.0


@pytest.mark.parametrize("way", ["kept", "kept_calculon"])
def test_what_can_only_be_scored_is_not_searched(way: str) -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    with pytest.raises(PlanError, match=f"found {way}.*dfopt score"):
        df.optimize(graph, df.load_system("a100-8"), assumptions=Assumptions(**{"backward_gathers": way}))
