"""Where kernels say what they keep, and memory is counted as Calculon does: what fits is what fits by brute force."""

from __future__ import annotations

from brute import joint_optimum
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import ROWS, World, keeping, share, worlds
from test_assignment import SQUEEZE, check, squeezed
from test_joint_search import test_what_fits_is_what_fits_by_brute_force as fits

from dfopt.documents.request import Request

fits_by_brute_force = fits.hypothesis.inner_test


@st.composite
def tight(draw: st.DrawFn) -> tuple[World, dict[str, object]]:
    """Worlds whose best mapping without limits is a little too large for the DRAM."""
    fixed: dict[str, object] = {"execution": [draw(st.sampled_from(["dataflow", "library", "kernel_by_kernel"]))]}
    if fixed["execution"] == ["dataflow"]:  # rows state what listed partitions hide
        fixed["gradient_overlap"] = None
    world = draw(keeping(worlds(most=4, least=2, trains=True, roomy=True, tile_rows=ROWS, **fixed)))
    asked = {"p_max": draw(st.integers(1, 4))} if world.assumptions.execution != "kernel_by_kernel" else {}
    free = joint_optimum(world.graph, world.system, world.assumptions, Request(**asked), [world.plan])
    assume(free is not None and max(one.dram_bytes for one in free.score.stages) > 0)
    return squeezed(world, free.score, "dram", draw(st.sampled_from(SQUEEZE))), asked


@share(0.3)
@given(tight())
def test_one_milp_of_a_plan_is_brute_force(case: tuple[World, dict[str, object]]) -> None:
    check(*case)


@share(0.3)
@given(keeping(worlds(most=4, least=2, trains=True, tile_rows=ROWS)), st.data())
def test_the_search_is_brute_force(world: World, data: st.DataObject) -> None:
    fits_by_brute_force(world, data)
