"""How fast a stack's memory serves flows of bytes, and with which commands."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stack_cases import memory, stack

from dfopt.documents.stack_dram import DramBuffers
from dfopt.technology.streams import DramStreams, Flow, Served

FLOW = Flow(64.0, 64.0, write=False)


def serve(memory_of: DramStreams, flows: list[Flow], rate: float = 1.0) -> Served:
    return memory_of.serve(memory_of.by_pattern(flows), rate)


@pytest.mark.parametrize(
    ("run", "interleave", "channels", "wanted"),
    [
        (1.0, 4.0, 1, 1.0),  # less than a burst
        (6.0, 32.0, 1, 3.0),  # all of it in one channel
        (64.0, 4.0, 8, 4.0),  # 8 bytes of it in each channel
        (64.0, 4.0, 64, 2.0),  # one piece of 4 bytes here and there
        (1e6, 4.0, 8, 8.0),  # whole rows of 16 bytes
    ],
)
def test_bursts_per_activate(run: float, interleave: float, channels: int, wanted: float) -> None:
    served = DramStreams(stack(dram=memory(channels, interleave=interleave)))
    flow = Flow(1e6, run, write=False)
    assert served.bursts_per_activate(flow) == wanted


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_streams_share_the_time(parts: list[tuple[float, float, bool, bool]]) -> None:
    memory_of = DramStreams(stack(dram=memory(4, refresh=())))
    found = [Flow(max(b, run), run, w, s) for b, run, w, s in parts]
    whole = math.fsum(flow.bytes for flow in found)
    together, alone = serve(memory_of, found), [serve(memory_of, [flow]) for flow in found]
    # Turning the bus round costs something as soon as there are reads and writes.
    assert together.seconds >= math.fsum(one.seconds for one in alone) * (1 - 1e-12)
    if len({flow.write for flow in found}) == 1:
        assert together.seconds == pytest.approx(math.fsum(one.seconds for one in alone), rel=1e-12)
    assert together.bandwidth == pytest.approx(whole / together.seconds, rel=1e-12)
    assert together.bandwidth <= 400.0
    assert together.binding in {one.binding for one in alone}
    commands = memory_of.by_pattern(found).commands
    assert (commands.reads + commands.writes) * 2.0 == pytest.approx(whole, rel=1e-12)
    assert commands.activates <= commands.reads + commands.writes
    assert commands.bursts_per_activate >= 1 - 1e-12


@given(st.floats(1, 1e4), st.floats(1, 4), st.booleans(), st.booleans())
def test_longer_runs_and_fewer_refreshes_are_never_slower(run: float, more: float, write: bool, far: bool) -> None:
    memory_of = DramStreams(stack(dram=memory(4)))
    short, long = (Flow(1e6, length, write, far) for length in (run, run * more))
    assert serve(memory_of, [long], 1.0).seconds <= serve(memory_of, [short], 1.0).seconds * (1 + 1e-9)
    assert serve(memory_of, [short], 1.0).seconds <= serve(memory_of, [short], 2.0).seconds


def test_what_binds_is_named() -> None:
    def binding(flow: Flow, **changes: object) -> str:
        return serve(DramStreams(stack(dram=memory(**changes))), [flow]).binding

    assert binding(FLOW) == "port"
    short = Flow(64.0, 2.0, write=False)
    assert binding(short) == "activation" or binding(short) == "four_activate"
    assert binding(FLOW, buffers=DramBuffers(requests=1, round_trip=10.0)) == "buffering"


def test_no_traffic_takes_no_time() -> None:
    found = serve(DramStreams(stack()), [])
    assert (found.seconds, found.binding) == (0.0, "none")


def test_turns_of_the_bus_are_in_proportion_to_the_fewer_bursts() -> None:
    memory_of = DramStreams(stack(dram=memory(refresh=())))
    # by hand, in clocks of 0.01: there CL 5 + tBL 2 - CWL 3 + 2, back CWL 3 + tBL 2 + tWTR 4, less two bursts of 2
    lost = 11.0
    for reads, writes in ((3e6, 3e6), (3e6, 3e4), (3e6, 300.0), (3e4, 3e6)):
        mixed = [Flow(reads, reads, write=False), Flow(writes, writes, write=True)]
        apart = sum(serve(memory_of, [flow]).seconds for flow in mixed)
        # half of the 32 requests that a channel can have are of the fewer: a turn there and back for each 16 of those
        bursts, turns = (reads + writes) / 2, min(reads, writes) / 2 / 16
        assert serve(memory_of, mixed).seconds / apart == pytest.approx(1 + turns * lost / (2 * bursts), rel=1e-12)


def test_what_the_formula_does_not_hold_for_is_told_with_its_reason() -> None:
    """Mixes, few banks, and queues of fewer than four visits; a plain stream of reads is in range."""
    roomy = DramStreams(stack(dram=memory(4, buffers=DramBuffers(requests=64))))
    reads, writes = Flow(1e6, 1e6, write=False), Flow(1e6, 1e6, write=True)

    def told(memory_of: DramStreams, *flows: Flow) -> list[str]:
        return memory_of.out_of_range(memory_of.by_pattern(flows), 1.0)

    assert told(roomy) == told(roomy, reads) == told(roomy, writes) == []
    assert told(roomy, reads, writes) == ["a mix of reads and writes, whose turns the controller chooses"]
    short = DramStreams(stack(dram=memory(4, buffers=DramBuffers(requests=8))))
    assert told(short, reads) == ["queues of 8 bursts hold fewer than 4 visits"]
    two = DramStreams(stack(dram=memory(4, bank_groups=1, banks_per_group=2)))
    assert told(two, reads) == ["2 banks, fewer than 4"]
