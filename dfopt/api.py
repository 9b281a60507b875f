"""The judge and the generator of chips for those who have names and paths: they take documents, and know no zoo."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dfopt import judge
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.calibration import Calibration
from dfopt.documents.design import Design
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatReport
from dfopt.documents.mapping import Mapping
from dfopt.documents.names import renamed
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.errors import PlanError, did_you_mean
from dfopt.library import as_design, as_system, graph_under, load_mapping
from dfopt.machines.calibrations import assumed_again, assumed_on
from dfopt.machines.stacks import load_stack
from dfopt.physics.collective_time import CollectiveTime, collective_time
from dfopt.physics.collectives import Collective
from dfopt.search.heat_aware import HEAT_GAP, heat_answers
from dfopt.technology.derived_design import DerivedDesign
from dfopt.units import parse


def collective(
    kind: str,
    system: System | Design | str | os.PathLike[str],
    size: float,
    dims: Sequence[str] = (),
    assumptions: Assumptions | Calibration | str | None = None,
) -> CollectiveTime:
    """Time of one collective on a system.

    Parameters
    ----------
    kind : str
        ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast`` or ``point_to_point``.
    system : System, name or path
        A design stands for the system that it gives.
    size : float
        Bytes of the larger buffer of one chip, as nccl-tests counts.
    dims : sequence of str
        Network dims that the chips span, or parts of dims such as ``cluster[2]``, in the order in which a
        reduce-scatter uses them; all if left out, the innermost first.
    assumptions : Assumptions, Calibration or str, optional
        Conventions, or the name of a profile, or ``calibrated``; the default profile if left out.

    Raises
    ------
    DfoptError
        For an unknown kind, system, dim, size or profile.

    Examples
    --------
    >>> import dfopt as df
    >>> gather = df.collective("all_gather", "h100-8", 1e9)
    >>> f"{gather.time_s * 1e3:.3f} ms, {gather.bus_bandwidth / 1e9:.0f} GB/s"
    '1.956 ms, 447 GB/s'
    """
    kinds = [each.value for each in Collective]
    if kind not in kinds:
        raise PlanError(f"kind: found {kind!r}, expected a collective; {did_you_mean(kind, kinds, ', '.join(kinds))}")
    machine = as_system(system)
    chosen, machine, _ = assumed_on("default" if assumptions is None else assumptions, machine)
    return collective_time(Collective(kind), size, machine, dims, chosen)


def score(
    mapping: Mapping | Result | str | os.PathLike[str],
    graph: Graph | str | os.PathLike[str],
    system: System | Design | str | os.PathLike[str],
    assumptions: Assumptions | Calibration | str | None = None,
    stack: Stack | str | os.PathLike[str] | None = None,
    *,
    physical: bool = True,
    throttle: bool = True,
) -> Score:
    """Evaluate a mapping: time, traffic, memory and broken limits.

    Parameters
    ----------
    mapping : Mapping, Result or path
        A place for every kernel of the graph, and a plan for the system.
    graph, system : Graph and System, or names or paths of them
        The workload and the machine; a design stands for the system that it gives.
    assumptions : Assumptions, Calibration or str, optional
        Conventions, or the name of a profile, or ``calibrated``. If left out, those of a result, with
        the shares of its calibration; of a mapping the default profile.
    stack : Stack, name or path, optional
        The chip as a stack of dies; the system's own if left out.
    physical : bool
        False: leave the stack aside, whether given or the system's.
    throttle : bool
        False: on a stack that gets too hot, stay at the nominal frequency and only say so.

    Returns
    -------
    Score
        Times, bytes and binding resources. Limits that the mapping breaks are sentences in ``violations``; the times
        are then those that it would have if it could run. With a stack, ``physical`` has its figures there.

    Raises
    ------
    DocumentError, PlanError, SystemSpecError
        If the mapping, its plan or the chip do not fit: see `dfopt.judge.evaluate`.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve("gpt2-small", "sn10-8-ring", tp=8)
    >>> df.score(result, "gpt2-small", "sn10-8-ring").step_time_s == result.step_time_s
    True
    """
    machine, chosen = as_system(system), None
    result = mapping if isinstance(mapping, Result) else None
    if isinstance(mapping, Result):
        if assumptions is None:
            chosen, machine, _ = assumed_again(mapping.assumptions, mapping.system, machine)
        mapping = mapping.mapping
    elif not isinstance(mapping, Mapping):
        mapping = load_mapping(mapping)[0]
    if stack is not None and not isinstance(stack, Stack):
        stack = load_stack(stack)
    if assumptions is not None:
        chosen, machine, _ = assumed_on(assumptions, machine)
    workload = graph if isinstance(graph, Graph) else graph_under(mapping, result, graph)
    return judge.evaluate(mapping, workload, machine, chosen, stack, physical=physical, throttle=throttle)


@renamed(finite_difference="one_kelvin")
def heat(
    result: Result | str | os.PathLike[str],
    stack: Stack | str | os.PathLike[str] | None = None,
    *,
    gap: float | str = HEAT_GAP,
    time_limit: float = 60.0,
    one_kelvin: bool = True,
    solver: str = "highs",
    seed: int = 0,
) -> HeatReport:
    """Compare three ways to deal with heat: ignore it, throttle, or choose partitions and clocks around it.

    Parameters
    ----------
    result : Result or path
        Its plan, sharding and graph are kept; partitions are chosen anew with the memory's effective bandwidth.
    stack : Stack, name or path, optional
        The chip as a stack of dies; the one of the result's system if left out.
    gap : float or str
        Relative gap at which a solve may stop, such as 0.01 or ``1%``; 0 asks for a proof.
    time_limit : float
        Seconds for everything.
    one_kelvin : bool
        Whether to solve once more with limits that are 1 K higher.
    solver, seed
        Solver and random seed of the MILPs, see :func:`dfopt.milp.solve`.

    Returns
    -------
    HeatReport
        ``ignore``: the fastest mapping, however hot. ``throttle``: the same at the highest uniform level that keeps
        the limits, with pauses if none does. ``aware``: partitions, levels and pauses chosen together; missing, with a
        note, where blocks of kernels cannot be listed.

    Raises
    ------
    SystemSpecError
        If there is no stack.
    Infeasible
        If even a resting chip is above a limit.

    Examples
    --------
    >>> import dfopt as df
    >>> cool = df.load_stack("hybrid-vault", {"limits.logic": "60 degC"})
    >>> report = df.heat(df.solve("gpt2-small", "sn10-8-ring", tp=8), cool, gap="1%", one_kelvin=False)
    >>> [answer.name for answer in report.answers], report.answers[2].logic_max_c <= 60.05
    (['ignore', 'throttle', 'aware'], True)
    """
    return heat_answers(
        result if isinstance(result, Result) else Result.load(result),
        stack if stack is None or isinstance(stack, Stack) else load_stack(stack),
        gap=parse(gap, "ratio") if isinstance(gap, str) else gap,
        time_limit=time_limit,
        one_kelvin=one_kelvin,
        solver=solver,
        seed=seed,
    )


def derive(design: Design | str | os.PathLike[str], on: Stack | str | os.PathLike[str] | None = None) -> DerivedDesign:
    """Derive a chip, and a system of such chips, from a technology and budgets.

    Parameters
    ----------
    design : Design or path
        Budgets and their shares, with a technology.
    on : Stack, name or path
        Stack for the properties that the design does not state in its ``stack``: package and cooling, timings of the
        DRAM, DRAM dies on the chip, limits. By default ``hbm3``, or ``hybrid-vault`` if the design has DRAM layers.

    Returns
    -------
    DerivedDesign
        It has ``components``, ``stack`` and, if the design has a template, ``system``; each is computed on first use.

    Raises
    ------
    DocumentError
        For a file that is no design; `SystemSpecError` for shares that are ``auto``, for the system of a design without
        a template, and for a component that the system needs and that is off.

    Examples
    --------
    >>> import dfopt as df
    >>> from dfopt.documents.technology import CoreUnit, DramStacks, Supply, Technology
    >>> supply = Supply(nominal_v=0.8, threshold_v=0.2, margin_v=0.2)
    >>> core = CoreUnit(
    ...     area_mm2=2.0, flop_per_cycle=1024.0, power=1.0, frequency=1e9, supply=supply, units_per_cluster=4
    ... )
    >>> dram = DramStacks(
    ...     stack=4e9, stack_area_mm2=100.0, controller_area_mm2=5.0, links_per_stack=1024, links_per_mm=400.0,
    ...     frequency=1e9, supply=supply, energy=32e-12, static_w_per_bit=0.0,
    ... )
    >>> share = {"core": 0.5, "dram": 0.1}
    >>> chip = df.derive(Design(
    ...     name="mine", technology=Technology(name="t", core=core, dram=dram),
    ...     budgets={"chip_area_mm2": 400.0, "package_area_mm2": 800.0, "power": 200.0},
    ...     shares={"area": share, "power": share, "perimeter": {"dram": 0.5}},
    ... ))
    >>> chip.components.core.units, chip.components.dram.stacks
    (100.0, 4.0)
    >>> round(chip.stack.side_x * chip.stack.side_y * 1e6, 9), len(chip.stack.tiles), len(chip.stack.levels)
    (400.0, 27, 8)
    """
    return DerivedDesign(as_design(design), on)
