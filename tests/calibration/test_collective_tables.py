"""What a table of collectives says of a node, and links between nodes, by hand."""

from pathlib import Path

import pytest

from dfopt.calibration.calibrate import with_collectives
from dfopt.calibration.tables import node_factors
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.calibration import Calibration
from dfopt.library import load_system
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds

LINK, OVERHEAD = 300e9, 9e-6  # of a100-512


def table(path: Path) -> Path:
    """Times of all-reduces at 0.8 of the link and 20 us beside the overhead, of all-gathers at 0.5 and 10 us."""
    rows = ["system,op_name,num_gpus,message_bytes,latency_ms"]
    for kind, passes, share, fixed in (("all_reduce", 2, 0.8, 20e-6), ("all_gather", 1, 0.5, 10e-6)):
        for chips in (2, 8):
            for size in (4e6, 64e6, 1e9):
                seconds = OVERHEAD + fixed + passes * (chips - 1) / chips * size / (LINK * share)
                rows.append(f"a100,{kind},{chips},{size:.0f},{seconds * 1e3:.12g}")
    path.write_text("\n".join([*rows, "a100,all_reduce,8,512,0.02"]) + "\n", encoding="utf-8")
    return path


def test_shares_and_fixed_times_are_found_again(tmp_path: Path) -> None:
    best, factors, count = node_factors(table(tmp_path / "nccl.csv"), "a100", load_system("a100-512"))
    assert (best, count, set(factors)) == (0.8, 12, {"all_reduce", "all_gather"})
    gather = factors["all_gather"]
    assert (gather.bandwidth_share, gather.latency) == (pytest.approx(0.625), pytest.approx(10e-6))


@pytest.mark.parametrize("chips", [2, 8])
def test_a_part_of_a_node_takes_what_was_measured(tmp_path: Path, chips: int) -> None:
    system, _ = with_collectives(load_system("a100-512"), table(tmp_path / "nccl.csv"), "a100")
    name = "node" if chips == 8 else f"node[{chips}]"
    seconds = communication_seconds(Collective.ALL_GATHER, 64e6, [name], system, Assumptions())
    assert seconds == pytest.approx(OVERHEAD + 10e-6 + (chips - 1) / chips * 64e6 / (LINK * 0.5))


def test_steps_of_a_ring_between_nodes_add_up(tmp_path: Path) -> None:
    system, _ = with_collectives(load_system("a100-512"), table(tmp_path / "nccl.csv"), "a100")
    plain = load_system("a100-512")
    for kind, steps in ((Collective.ALL_GATHER, 15), (Collective.ALL_REDUCE, 30)):
        there, before = (communication_seconds(kind, 1e6, ["cluster[16]"], s, Assumptions()) for s in (system, plain))
        rounds = 4 * (steps // 15)  # of a switch without factors, 1 us each
        assert there - before == pytest.approx(steps * 9.6e-6 - rounds * 1e-6)


def test_an_earlier_calibration_has_no_factors() -> None:
    made = Calibration.load("systems/calibrations/a100-calibrated.yaml")
    earlier = made.model_copy(update={"factors": None})
    assert not earlier.applied(load_system("a100-512")).network[0].factors
    assert set(made.applied(load_system("a100-512")).network[1].factors) == {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
    }
