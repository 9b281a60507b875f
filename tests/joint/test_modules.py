"""A second axis of chips: modules with schemes of their own, against brute force and by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from proven import check_proven
from small_systems import rings, small_system
from strategies import Dice, assumptions, share, systems

import dfopt as df
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, SequenceState, Tensor
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.routing import Routing
from dfopt.documents.sections import repeated
from dfopt.documents.system import NetworkDim, System
from dfopt.errors import Infeasible, PlanError
from dfopt.judge.members import issues, seen_by_a_chip
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.setting.members import member_graph
from dfopt.setting.module_menu import menu
from dfopt.setting.plans import asked_plans


@dataclass
class Chain:
    """Kernels one after the other, each reading the one before it."""

    tokens: int
    samples: int
    features: int
    kernels: list[Kernel]
    tensors: list[Tensor]

    def add(self, *others: str, **fields: Any) -> str:
        name = f"k{len(self.kernels)}"
        before = [self.kernels[-1].name] if self.kernels else []
        for operand, src in enumerate((*before, *others), start=1):
            two = {"operand": operand} if fields["op"] == "matmul" else {}
            self.tensors.append(Tensor(src=src, dst=name, **two))
        self.kernels.append(Kernel(name=name, **{"n": self.tokens, **fields}))
        return name


@st.composite
def models(draw: st.DrawFn, most: int = 7, serves: bool = True) -> Graph:
    """A residual stream with a mixer and a feed-forward, each more or less of it; if it serves, copies of experts."""
    dice = Dice(draw)
    samples, each, features = dice([2, 4, 3]), dice([1, 2]), dice([4, 2, 6])
    chain = Chain(samples * each, samples, features, [], [])
    stream = chain.add(op="elementwise", m=features, normalizes=dice([False, True]))
    if dice([False, True]):
        heads, dim = dice([(2, 2), (4, 1), (2, 1)])
        chain.add(op="gemm", m=heads * dim, k=features, module="mixer", role=dice([None, None, "latent"]))
        attends = dice([None, "keys", "heads"])
        if attends == "keys" and len(chain.kernels) < most:
            keys, masked = dice([each, 9, 8]), dice([None, 0.75])
            old = 0 if keys == each else keys - each
            sizes = {"bytes_per_token": 4 * heads, "tokens": keys, "reads": old, "writes": min(each, keys)}
            state = SequenceState(name="keys", sequences=samples, heads=dice([1, heads]), **sizes)
            shape = {"outer": heads, "samples": samples, "n": each, "module": "mixer"}
            more = {"density": masked, "states": (state,) if dice([True, False]) else None}
            chain.add(op="matmul", m=keys, k=dim, role="scores", **more, **shape)
            if dice([False, True]) and len(chain.kernels) < most:
                chain.add(op="elementwise", m=keys, role="softmax", density=masked, normalizes=True, **shape)
            chain.add(op="matmul", m=dim, k=keys, role="context", density=masked, masked=masked and 1, **shape)
        elif attends == "heads":
            state = SequenceState(
                name="keys", sequences=samples, heads=dice([1, heads]), bytes_per_token=4 * heads, tokens=dice([9, 3]),
                reads=3, writes=1,
            )  # fmt: skip
            shape = {"outer": heads, "samples": samples, "m": dim, "n": each, "k": dim}
            chain.add(op="matmul", module="mixer", states=(state,) if dice([True, False]) else None, **shape)
        chain.add(op="gemm", m=features, k=heads * dim, module="mixer")
        stream = chain.add(stream, op="elementwise", m=features)
    if dice([True, False]) or len(chain.kernels) == 1:
        inside = dice([4, 8, 6])
        law = dice([None, None, "power_law(1.2) + 1", "counts(5, 2, 1, 1) + 2", "uniform + 2"]) if serves else None
        count = 4 if law and "counts" in law else dice([4, 6])
        routing = law and Routing.model_validate(law)
        sizes = {"count": count, "chosen": 2, "touched": dice([3.5, 4.0])}
        experts = Experts(**sizes, routing=routing) if dice([True, False]) else None
        own = {"module": "experts" if experts else "dense"}
        chain.add(op="gemm", m=inside, k=features, experts=experts, **own)
        if dice([False, True]) and len(chain.kernels) < most - 2:
            chain.add(op="elementwise", m=inside, **own)
        chain.add(op="gemm", m=features, k=inside, experts=experts, **own)
    if dice([False, False, True]) and len(chain.kernels) < most:
        chain.add(op="gemm", m=dice([4, 6]), k=features, module="ends")
    first, last = chain.kernels[0], chain.kernels[-1]
    repeat = dice([1, 4])
    alike = repeat > 1 and (last.m, last.n, last.outer) == (first.m, first.n, first.outer)
    return Graph(
        name="model",
        sections=repeated(repeat),
        microbatch=samples,
        batch=12 * samples,
        kernels=tuple(chain.kernels),
        tensors=tuple(chain.tensors),
        carried=(Tensor(src=last.name, dst=first.name),) if alike else (),
    )


def rounded(graph: Graph) -> Graph:
    """With traffic to twelve digits: two ways to write a sum may differ in the last one."""
    sizes = [float(f"{kernel.dram_bytes_per_chip:.12g}") for kernel in graph.kernels]
    kernels = zip(graph.kernels, sizes, strict=True)
    return graph.model_copy(
        update={"kernels": tuple(kernel.model_copy(update={"dram_bytes_per_chip": size}) for kernel, size in kernels)}
    )


@share(5)  # 300 in CI
@given(models(), st.sampled_from([(2, 1), (4, 2), (3, 3), (6, 2), (6, 3), (4, 4)]), st.data())
def test_optimiser_and_judge_share_modules_out_alike(graph: Graph, axis: tuple[int, int], data: st.DataObject) -> None:
    """Both write down the graph of one chip; it is a graph, and all chips together do no less than the model."""
    members, first = axis
    dims = [("x", first), ("y", members // first)]
    network = tuple(NetworkDim(name=n, topology="switch", size=s, link_bandwidth=10.0) for n, s in dims)
    system = df.load_system("h100-8").model_copy(update={"network": network})
    names = tuple(name for name, size in dims if size > 1)
    near = first if first > 1 else members
    for modules in menu(graph, members):
        plan = Plan(mp=members, mp_dims=names, modules=modules)
        mine = member_graph(graph, modules, members, near)
        assert rounded(mine) == rounded(seen_by_a_chip(graph, plan, system))
        assert not list(issues(plan, graph, system))
        assert Graph.model_validate(mine.to_data()) == mine
        for whole, part in zip(graph.kernels, mine.kernels, strict=True):
            assert ops.flop(part) <= ops.flop(whole) <= members * ops.flop(part) * (1 + 1e-9)
            assert ops.weight_elements(part) <= ops.weight_elements(whole) * (1 + 1e-9)


@share(0.75, nightly=0.5)
@given(models(most=4), assumptions(sharding_objective="joint", tile_rows=1), st.data())
def test_nothing_is_better_than_what_is_found(graph: Graph, chosen: df.Assumptions, data: st.DataObject) -> None:
    check_nothing_better(graph, chosen, data)


@share(0.15)
@given(models(most=4), assumptions(sharding_objective="joint", tile_rows=1, gradient_overlap=None), st.data())
def test_one_milp_is_brute_force(graph: Graph, chosen: df.Assumptions, data: st.DataObject) -> None:
    check_nothing_better(graph, chosen, data, formulation="assignment", p_max=2)


def drawn_system(graph: Graph, chosen: df.Assumptions, data: st.DataObject) -> tuple[System, list[int]]:
    """A machine, and the degrees of a second axis that divide its chips."""
    model = chosen.compute_model
    system = data.draw(systems(graph, cycle=model == "cycle", efficiency=model == "efficiency"))
    return system, [n for n in (2, 3, 4) if system.chips % n == 0]


def legal_plans(graph: Graph, system: System, chosen: df.Assumptions, asked: dict[str, Any]) -> list[Plan]:
    """The plans that are asked for; another world is drawn if there are none."""
    resolved = resolve(chosen, system.chip.execution, system.chip.compute_utilization)
    try:
        return asked_plans(graph, system, Request(**asked), resolved)[0]
    except PlanError:
        reject()


def check_nothing_better(graph: Graph, chosen: df.Assumptions, data: st.DataObject, **more: Any) -> None:
    """Over plans, schemes of modules, shardings and fusions; infeasible exactly when brute force finds nothing."""
    system, degrees = drawn_system(graph, chosen, data)
    assume(len(graph.kernels) <= 6 and degrees)
    asked: dict[str, Any] = {"mp": data.draw(st.sampled_from(degrees)), "dp": 1, "pp": 1} | more
    if chosen.execution == "kernel_by_kernel":
        asked.pop("p_max", None)
    if chosen.empty_partitions == "forbid" and chosen.execution != "kernel_by_kernel":
        asked["p_max"] = 2
    legal = legal_plans(graph, system, chosen, asked)
    assert all(plan.modules is not None for plan in legal)
    check_proven(graph, system, chosen, asked)


def mixture(**more: Any) -> Graph:
    """A norm, and four experts of which eight tokens choose two each."""
    experts = Experts(count=4, chosen=2, touched=4.0)
    up = Kernel(name="up", op="gemm", m=16, k=4, n=8, experts=experts, module="experts")
    down = Kernel(name="down", op="gemm", m=4, k=16, n=8, experts=experts, module="experts")
    norm, add = (Kernel(name=name, op="elementwise", m=4, n=8) for name in ("norm", "add"))
    mix = Kernel(name="mix", op="gemm", m=4, k=4, n=8, module="mixer")
    names = ("norm", "up", "down", "add", "mix")
    tensors = tuple(Tensor(src=src, dst=dst) for src, dst in pairwise(names))
    kernels = (norm, up, down, add, mix)
    return Graph(**{"name": "g", "microbatch": 8, "batch": 8, "kernels": kernels, "tensors": tensors, **more})


@pytest.mark.parametrize(
    ("members", "first", "sent"),
    [
        (2, 2, {"mp": 2 * (1 - 1 / 6)}),  # of the six pairs of experts one is all on the other chip
        (4, 4, {"mp": 4 * (1 - 3 / 6)}),
        (4, 2, {"mp_first": 4 * (1 - 3 / 6), "mp_rest": 2 * (1 - 1 / 6)}),
    ],
)
def test_tokens_go_once_to_each_chip_with_an_expert_of_theirs(members: int, first: int, sent: dict[str, float]) -> None:
    split = member_graph(mixture(), Modules(stream="n", experts="outer"), members, first)
    of = {kernel.name: kernel for kernel in split.kernels}
    whole = 4 * 8 * 2  # bytes of all tokens
    for name in ("norm", "down"):  # dispatch and combine
        assert {one.over: one.bytes for one in of[name].communications} == pytest.approx(
            {over: copies * whole for over, copies in sent.items()}
        )
    assert of["up"].n == of["norm"].n == 8 // members
    read = max(4 / members * (1 - 0.5**8), 1.0)
    assert of["up"].experts == Experts(count=4 // members, chosen=2, touched=read, held=4)
    assert ops.weight_elements(of["up"]) == 8 * 4 * 4 // members


def copied(law: str) -> Graph:
    graph = mixture()
    own = Experts(count=4, chosen=2, touched=4.0, routing=Routing.model_validate(law))
    return graph.model_copy(
        update={"kernels": tuple(k.model_copy(update={"experts": own}) if k.experts else k for k in graph.kernels)}
    )


def test_copies_of_experts_by_hand() -> None:
    """Two copies for four experts of equal loads on two chips: each has one of its own, and both of the others."""
    split = member_graph(copied("uniform + 2"), Modules(stream="n", experts="outer"), 2, 2)
    of = {kernel.name: kernel for kernel in split.kernels}
    # of six pairs of experts one is of the two with no copy, always on both chips; each other every second time
    chips = 1 / 6 * 2 + 5 / 6 * 1.5
    for name in ("norm", "down"):
        assert [(one.over, one.bytes) for one in of[name].communications] == [("mp", pytest.approx(chips * 64))]
    read = (1 - 0.5**8) + 2 * (1 - 0.75**8)  # of a copy every fourth token
    assert of["up"].n == 4 and of["up"].experts is not None
    assert (of["up"].experts.count, of["up"].experts.held) == (3, 4)
    assert of["up"].experts.touched == pytest.approx(read)
    assert ops.weight_elements(of["up"]) == 3 * 8 * 4 == 6 / 4 * ops.weight_elements(mixture().kernels[1]) / 2


def test_copies_are_held_only_where_experts_are_split() -> None:
    for modules in (Modules(stream="n", experts="m"), Modules(stream="n", experts="n")):
        plain, more = (member_graph(graph, modules, 2, 2) for graph in (mixture(), copied("uniform + 2")))
        assert list(map(ops.weight_elements, plain.kernels)) == list(map(ops.weight_elements, more.kernels))
        assert list(map(ops.weights_read, plain.kernels)) == list(map(ops.weights_read, more.kernels))


@pytest.mark.parametrize(("law", "members", "able"), [("uniform + 4", 8, True), ("uniform", 8, False)])
def test_copies_fill_more_chips_than_there_are_experts(law: str, members: int, able: bool) -> None:
    graph = copied(law)
    schemes = {modules.experts for modules in menu(graph, members)}
    assert ("outer" in schemes) == able
    plan = Plan(mp=members, mp_dims=("x",), modules=Modules(stream="n", mixer="n", experts="outer"))
    assert bool(list(issues(plan, graph, machine(members)))) != able


def test_more_copies_than_chips_hold_apart_are_no_plan() -> None:
    graph = copied("uniform + 5")
    assert "outer" not in {modules.experts for modules in menu(graph, 2)}
    assert "outer" in {modules.experts for modules in menu(graph, 4)}
    plan = Plan(mp=2, mp_dims=("x",), modules=Modules(stream="n", mixer="n", experts="outer"))
    (issue,) = {issue.message for issue in issues(plan, graph, machine(2))}
    assert issue == "2 chips for experts of [4], 5 of them twice or more"


def test_what_experts_leave_where_all_tokens_are_is_added_up() -> None:
    split = member_graph(mixture(), Modules(experts="outer"), 2, 2)
    assert [one.kind for kernel in split.kernels for one in kernel.communications] == ["all_reduce"]
    split = member_graph(mixture(), Modules(stream="n", experts="m"), 2, 2)
    kinds = {kernel.name: [one.kind for one in kernel.communications] for kernel in split.kernels}
    assert kinds == {"norm": ["all_gather"], "up": [], "down": ["reduce_scatter"], "add": ["all_gather"], "mix": []}


@pytest.mark.parametrize(("heads", "kept"), [(1, 1.0), (2, 0.5), (8, 0.25)])
def test_what_all_heads_share_is_on_every_chip(heads: int, kept: float) -> None:
    """A latent is copied where heads are shared out, and so is a head of keys where chips outnumber them."""
    state = SequenceState(name="keys", sequences=8, heads=heads, bytes_per_token=8, tokens=5, reads=4, writes=1)
    scores = Kernel(name="scores", op="matmul", outer=8, samples=8, m=5, k=4, n=1, states=(state,), module="mixer")
    graph = Graph(name="g", microbatch=8, batch=8, kernels=(scores,))
    split = member_graph(graph, Modules(mixer="outer"), 4, 4).kernels[0]
    assert split.states is not None and split.outer == 2
    assert split.states[0].held_bytes == kept * state.held_bytes
    apart = member_graph(graph, Modules(stream="n", mixer="n"), 4, 4).kernels[0]
    assert apart.states is not None and apart.states[0].held_bytes == state.held_bytes / 4


def machine(size: int = 4, dram: float = 1e6, bandwidth: float = 1e3, link: float = 1e2) -> System:
    return small_system(*rings(size, rate=link), tiles=2, peak=1e4, sram=1e6, bandwidth=bandwidth, capacity=dram)


def test_degrees_of_modules_are_one_second_axis() -> None:
    result = df.optimize(mixture(), machine(), ep=4, attention_dp=4)
    assert result.plan.mp == 4 and result.plan.modules is not None and result.plan.modules.experts == "outer"
    assert result.plan.label.startswith("TP1 MP4(x) PP1 DP1 [")
    assert "mp" not in df.optimize(mixture(), machine(), ep=1).plan.to_data()
    for asked, said in (
        ({"ep": 4, "attention_dp": 2}, "attention_dp 2 and mp 4: modules share one second axis"),
        ({"ep": 2, "modules": {"experts": "m"}}, "ep 2 is experts: outer, found experts: m"),
    ):
        with pytest.raises(PlanError, match=said):
            df.optimize(mixture(), machine(), **asked)
    with pytest.raises(PlanError, match="g has no second axis: no kernel says which module it belongs to"):
        df.optimize(Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=4, n=4),)), machine(), mp=2)


def test_the_judge_refuses_modules_that_cannot_share() -> None:
    result = df.optimize(mixture(), machine(), ep=4)
    assert "modules with one scheme each over the second axis" in result.proof
    with pytest.raises(PlanError, match="g has no module 'ends': it has experts, mixer, stream"):
        df.optimize(mixture(), machine(), modules={"ends": "n"})
    for changes, said in (
        ({"modules": None}, "found none on a second axis of 4 chips"),
        ({"modules": Modules(stream="n", mixer="n")}, "no scheme of experts"),
    ):
        wrong = result.mapping.model_copy(update={"plan": result.plan.model_copy(update=changes)})
        with pytest.raises(PlanError, match=said):
            df.evaluate(wrong, mixture(), machine())
    odd = mixture(microbatch=3, batch=3)  # eight tokens are not those of three sequences
    assert all(modules.stream == "none" for modules in menu(odd, 2))


def test_schemes_of_modules_that_talk_alike_are_apart() -> None:
    """Experts by expert and by features end in the same collective, and differ in what a chip computes."""
    experts = Experts(count=4, chosen=2, touched=3.5)
    own = {"op": "gemm", "m": 4, "k": 4, "n": 4, "experts": experts, "module": "experts"}
    kernels = (Kernel(name="k0", op="elementwise", m=4, n=4), Kernel(name="k1", **own), Kernel(name="k2", **own))
    tensors = tuple(Tensor(src=src, dst=dst) for src, dst in pairwise(("k0", "k1", "k2")))
    graph = Graph(name="g", microbatch=2, batch=24, kernels=kernels, tensors=tensors)
    system = small_system(*rings(2, rate=20.0), tiles=2, peak=300.0, compute_utilization=0.5, sram=257e9, bandwidth=40)
    chosen = df.Assumptions(layer_boundary="dram", sharding_objective="joint", tile_rows=1)
    asked = {"mp": 2, "dp": 1, "pp": 1, "assumptions": chosen}
    found = df.optimize(graph, system, **asked)
    schemes = "outer", "m", "n"
    every = [df.optimize(graph, system, modules={"experts": scheme}, **asked).value for scheme in schemes]
    assert found.value == pytest.approx(min(every), rel=1e-12)


@share(0.3)
@given(models(), st.sampled_from(["dram", "bandwidth", "link"]))
def test_more_of_a_machine_never_hurts(graph: Graph, what: str) -> None:
    few: dict[str, float] = {"dram": 600.0, "bandwidth": 1e3, "link": 1e2}
    asked = {"mp": 2, "pp": 1}
    try:
        little = df.optimize(graph, machine(**few), **asked).value
    except (Infeasible, PlanError):
        assume(False)
    assert df.optimize(graph, machine(**{**few, what: 2 * few[what]}), **asked).value <= little * (1 + 1e-9)
