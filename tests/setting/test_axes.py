"""Another axis is an entry of one table: plans, bounds, memory, the judge, labels, documents and frames have it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from in_turn import InTurn
from strategies import plans_on

import dfopt as df
from dfopt.documents.axes import AXES, Axis, groups, keys
from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.documents.result import Result
from dfopt.documents.study import Study
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import DocumentError, Infeasible, PlanError
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds

PACKAGE = Path(df.__file__).parent


@contextmanager
def one_more(axis: Axis) -> Iterator[Axis]:
    """Let plans have another axis for a while, behind the others."""

    def forget() -> None:
        groups.cache_clear()
        keys.cache_clear()

    AXES[axis.name] = axis
    forget()
    try:
        yield axis
    finally:
        del AXES[axis.name]
        forget()


@pytest.fixture
def experts() -> Iterator[Axis]:
    """Copies of everything but the experts, of which this graph has four."""

    def refuses(graph: Graph, degree: int) -> str | None:
        return f"XP {degree} does not divide the 4 experts of {graph.name}" if 4 % degree else None

    with one_more(Axis("xp", "expert parallelism", "batch", refuses)) as axis:
        yield axis


def machine(dram: float = 1e12) -> System:
    dims = (("x", "ring", 2), ("y", "switch", 4))
    network = tuple(NetworkDim(name=n, topology=t, size=s, link_bandwidth=1e10, latency=1e-6) for n, t, s in dims)
    chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e9), dram=Dram(bandwidth=1e11, capacity=dram))
    return System(name="s", chip=chip, network=network)


def layers(**last: object) -> Graph:
    kernels = (
        Kernel(name="a", op="gemm", m=480, k=480, n=480, resident_bytes=1e6),
        Kernel(name="b", op="gemm", m=480, k=480, n=480, **last),
        Kernel(name="grad", op="weight_update", m=480, k=480, n=480, pass_="update"),
    )
    tensors = (Tensor(src="a", dst="b"), Tensor(src="b", dst="grad", operand=1), Tensor(src="a", dst="grad", operand=2))
    return Graph(name="g", repeat=8, batch=96, kernels=kernels, tensors=tensors)


def solved(**asked: object) -> Result:
    return df.optimize(layers(), machine(), **asked)


def study_of(folder: Path, **options: int) -> Study:
    """A study of the graph on the machine, both in files."""
    graph, system = folder / "g.yaml", folder / "s.yaml"
    layers().dump(graph)
    machine().dump(system)
    return Study(name="one", graphs=[{"graph": str(graph)}], systems=[{"system": str(system)}], options=options)


def test_plans_share_dims_out_to_it_and_keep_its_rule(experts: Axis) -> None:
    legal, rejected = plans_on(layers(), machine(), parts=True)
    assert {plan.xp for plan in legal} == {1, 2, 4}
    assert all(plan.shards * plan.stages * plan.copies == 8 == plan.tp * plan.pp * plan.dp * plan.xp for plan in legal)
    assert "TP2(x) PP1 DP2(y[2]) XP2(y[2@2])" in {plan.label for plan in legal}
    assert {one.reason for one in rejected if one.plan.xp == 8} == {"XP 8 does not divide the 4 experts of g"}
    assert {plan.xp_dims for plan in plans_on(layers(), machine(), xp=2, parts=True)[0]} == {("x",), ("y[2@2]",)}
    with pytest.raises(PlanError, match=r"XP 3.*TP x PP x DP x XP must be 8"):
        plans_on(layers(), machine(), xp=3)


def test_copies_on_it_are_timed_bounded_and_judged_as_copies_on_another(experts: Axis) -> None:
    mine, other = (solved(tp=2, tp_dims=("x",), pp=1, zero=(0,), **{axis: 4}) for axis in ("xp", "dp"))
    assert mine.plan.label == "TP2(x) PP1 DP1 XP4(y)"
    assert other.plan.label == "TP2(x) PP1 DP4(y)"
    assert mine.step_time_s == other.step_time_s
    assert mine.score.gradient_reduction_s == other.score.gradient_reduction_s > 0
    assert mine.score.stages[0].dram_bytes == other.score.stages[0].dram_bytes  # tables over all copies
    setting = Setting(layers(), machine(), mine.assumptions)
    bounds = [PlanBounds(setting).seconds(setting.under(one.plan)) for one in (mine, other)]
    assert bounds[0] == bounds[1] <= mine.step_time_s
    assert df.evaluate(mine.mapping, layers(), machine()).step_time_s == mine.step_time_s
    both = solved(tp=2, xp=2, dp=2, pp=1)
    assert both.plan.copies == 4 and both.plan.microbatches == 24
    assert not verify(both).problems


def test_the_judge_knows_its_rule_and_its_dims(experts: Axis) -> None:
    mapping = solved(tp=2, xp=4, xp_dims=("y",)).mapping
    for changes, said in (
        ({"xp": 8, "tp": 1, "tp_dims": (), "xp_dims": ("x", "y"), "microbatches": 12}, r"\$\.plan\.xp: XP 8 does not"),
        ({"xp_dims": ("x",)}, r"\$\.plan\.xp_dims: x 2 give 2 chips, but xp is 4"),
        ({"xp": 2, "xp_dims": ("y",)}, r"tp x pp x dp x xp is 2 x 1 x 1 x 2 = 4"),
    ):
        wrong = mapping.model_copy(update={"plan": df.Plan(**mapping.plan.to_data() | {"schema": ""} | changes)})
        with pytest.raises(PlanError, match=said):
            df.evaluate(wrong, layers(), machine())


def test_kernels_communicate_over_it(experts: Axis) -> None:
    exchange = Communication(kind="all_to_all", bytes=1e6, over="xp")
    graph = layers(communications=(exchange,))
    split, whole = (df.optimize(graph, machine(), tp=1, pp=1, xp=xp) for xp in (4, 1))
    assert split.score.collectives["all_to_all.forward"] == 1
    assert "all_to_all.forward" not in whole.score.collectives


def test_it_is_full_where_all_chips_are(experts: Axis) -> None:
    with pytest.raises(Infeasible, match=r"TP1 PP1 DP2\(x\) XP4\(y\).*DRAM"):
        df.optimize(layers(), machine(dram=1e6), dp=2, xp=4)


def test_documents_and_frames_have_its_keys(experts: Axis, tmp_path: Path) -> None:
    result = solved(tp=2, xp=4, xp_dims=("y",))
    result.dump(tmp_path / "r.json")
    assert Result.load(tmp_path / "r.json") == result
    assert (result.request.xp, result.request.asked_degrees) == (4, {"tp": 2, "xp": 4})
    assert result.plan.to_data()["xp_dims"] == ["y"] and "xp" not in solved(tp=8).plan.to_data()
    study = study_of(tmp_path, tp=2, xp=4)
    assert study.columns[-1] == "xp"
    assert study.options.asked_degrees == {"tp": 2, "xp": 4}
    assert result.plan.counts == {"tp": 2, "mp": 1, "pp": 1, "dp": 1, "xp": 4} | {
        "microbatches": 24, "layers_per_stage": 8, "interleave": 1,
    }  # fmt: skip


def test_the_frame_of_a_sweep_has_a_column_of_it(experts: Axis, tmp_path: Path) -> None:
    frame = df.sweep(study_of(tmp_path, tp=2, pp=1), executor=InTurn()).frame()
    assert frame.status.tolist() == ["optimal"]
    row = frame.iloc[0]
    assert row.tp * row.pp * row.dp * row.xp == 8
    assert row.plan == solved(tp=2, pp=1).plan.label


def test_a_copy_of_a_plan_works_out_anew_what_follows() -> None:
    plan = df.Plan(tp=4, tp_dims=("y",), dp=2)
    before = plan.shards, plan.shard_dims, plan.copies, hash(plan), plan.to_data()
    other = plan.model_copy(update={"tp": 2, "tp_dims": ("x",)})
    assert (other.shards, other.shard_dims, other.copies) == (2, ("x",), 2)
    assert before == (
        4,
        ("y",),
        2,
        hash(df.Plan(tp=4, tp_dims=("y",), dp=2)),
        df.Plan.from_data(plan.to_data()).to_data(),
    )
    assert other != plan == df.Plan(tp=4, tp_dims=("y",), dp=2)


def test_an_axis_of_kernels_shards_them_with_the_others() -> None:
    with one_more(Axis("sp", "sequence parallelism", "kernels")):
        mine = solved(sp=2, tp=4, sp_dims=("x",), pp=1)
        assert mine.plan.label == "TP4(y) PP1 DP1 SP2(x)"
        assert mine.plan.shards == 8 and mine.plan.shard_dims == ("y", "x")
        same = solved(tp=8, tp_dims=("y", "x"))
        assert mine.step_time_s == same.step_time_s
        assert [k.sharding for k in mine.mapping.kernels] == [k.sharding for k in same.mapping.kernels]
    with pytest.raises(DocumentError, match=r"\$\.sp: unknown key \(axes of a plan: tp, mp, pp, dp"):
        df.Plan.from_data({"schema": "dfopt/plan/1", "sp": 2})


def test_no_code_names_an_axis() -> None:
    """Outside the table, nothing is asked for an axis by its name, and no function takes one."""
    named = {key for axis in AXES.values() for key in axis.keys}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = {
                ast.Attribute: lambda n: n.attr, ast.keyword: lambda n: n.arg, ast.arg: lambda n: n.arg,
                ast.Name: lambda n: n.id,
            }.get(type(node), lambda n: None)(node)  # fmt: skip
            assert said not in named, f"{path}:{node.lineno} names {said}"
