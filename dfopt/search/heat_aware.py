"""Heat asked for by a search: the three answers for the plan of a result, and the heat-aware mapping of some plans."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dfopt.bnb import Clock
from dfopt.documents.heat import HeatProof, HeatReport
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.errors import Infeasible, Issue, PlanError, SystemSpecError
from dfopt.heat.answers import ThreeAnswers
from dfopt.heat.period import Effort
from dfopt.heat.settle import physical
from dfopt.judge import evaluate
from dfopt.machines.stacks import with_stack
from dfopt.milp import check_solver
from dfopt.search.heat_regions import least_with_heat
from dfopt.setting.instance import Setting
from dfopt.solving.candidate import prepare_mapping
from dfopt.solving.options import Options
from dfopt.solving.relaxed import covers
from dfopt.solving.solved import Solved

HEAT_GAP = 1e-4  # relative: closer than the leakage is known, levels of many partitions are hard to prove


def heat_answers(
    result: Result,
    stack: Stack | None = None,
    *,
    gap: float = HEAT_GAP,
    time_limit: float = 60.0,
    one_kelvin: bool = True,
    solver: str = "highs",
    seed: int = 0,
) -> HeatReport:
    """Deal with heat in three ways, under the plan and the sharding of a result: see :func:`dfopt.heat`."""
    system = needs_stack(result.system, stack)
    options = Options(result.request, Clock.of_limit(time_limit)).asking(
        gap=gap, solver=check_solver(solver), seed=seed, formulation="auto", pin_sharding={}
    )
    setting = Setting(result.graph, system, result.assumptions)
    return three_answers(setting, result.mapping, options).report(one_kelvin)


def three_answers(setting: Setting, mapping: Mapping, options: Options) -> ThreeAnswers:
    """The answers for the plan and sharding of a mapping, on a system with a stack."""
    ready = prepare_mapping(setting, mapping, replace(options, progress=None))
    asked = options.request
    return ThreeAnswers(ready, mapping, Effort(asked.gap, options.clock.last, asked.solver, asked.seed))


def needs_stack(system: System, stack: Stack | None) -> System:
    """The system with its chip as a stack: the one given, or its own.

    Raises
    ------
    SystemSpecError
        If there is none.
    """
    if stack is not None:
        return with_stack(system, stack)
    if system.stack is None:
        issue = Issue("$.stack", "found none, expected a stack of dies", "give one, such as --stack hybrid-vault")
        raise SystemSpecError(system.name, [issue])
    return system


def made_aware(
    best: Solved, setting: Setting, options: Options, others: Sequence[Solved] = ()
) -> tuple[Solved, HeatProof]:
    """The best mapping of a search, re-optimised under the limits on heat of its system's stack.

    Parameters
    ----------
    best, others : Solved
        The mappings of the fastest plans without heat. Another plan is left out where no mapping of its plan and
        sharding is faster even without heat, which only ever slows.
    setting : Setting
        With a system that has a stack.
    options : Options
        As of the search, with the clock for all plans together.

    Returns
    -------
    Solved, HeatProof
        The fastest of the answers: a plan and its sharding with other partitions, clocks and pauses; what was shown, in
        figures and in the sentence of its note. Where ``sharding_objective: joint`` chose the sharding it is free here
        too.

    Raises
    ------
    PlanError
        If the blocks of kernels cannot be listed, of any plan.
    Infeasible
        If no mapping keeps the limits.
    """
    plans = [best, *others]
    open_, kept = _open(plans, setting)
    made = _Made([], 0, [], kept)
    for number, one in enumerate(plans):
        if made.answers and _at_least(one, setting.system) >= made.fastest.step_s:
            made.skipped += 1
            continue
        left = options.clock.seconds_left / (len(plans) - number + bool(open_))
        mine = replace(options, clock=Clock.of_limit(left)).asking(gap=max(options.request.gap, HEAT_GAP))
        try:
            made.answers.append(_aware(one, Setting(one.graph, setting.system, setting.assumptions), mine))
        except (Infeasible, PlanError) as error:
            made.refused.append(error)
    if open_:
        _search(made, open_, setting, options)
    if not made.answers:
        raise made.refused[0]
    found = made.fastest
    return found.solved, found.proof.model_copy(update={"note": made.note(setting.system, len(plans))})


def _open(plans: Sequence[Solved], setting: Setting) -> tuple[list[Solved], str]:
    """Those whose sharding may be chosen anew, and why that of others is kept."""
    if setting.assumptions.sharding_objective != "joint":
        return [], "each with its sharding"
    if _at_least(replace(plans[0], bound=1.0), setting.system) < 1.0:
        return [], "each with its sharding, because the system's memory is slower than the stack's and bounds no other"
    open_ = [one for one in plans if covers(one.graph, one.plan)]
    if len(open_) < len(plans):
        return open_, "with the sharding that they have where kernels drawn once are on several pipeline stages"
    return open_, ""


def _search(made: _Made, plans: Sequence[Solved], setting: Setting, options: Options) -> None:
    """Look for faster mappings under other shardings of some plans, and bound them all."""
    options = options.asking(gap=max(options.request.gap, HEAT_GAP), top=1)
    answers = {(one.solved.graph, _sharding(one.solved)): one for one in made.answers}
    own = len(answers)

    def aware(free: Solved) -> _Aware:
        key = free.graph, _sharding(free)
        if key not in answers:
            answers[key] = _aware(free, replace(setting, graph=free.graph), options)
        return answers[key]

    settings = {graph: replace(setting, graph=graph) for graph in {one.graph: None for one in plans}}
    of_each = {of: [*{one.plan: None for one in plans if one.graph == graph}] for graph, of in settings.items()}
    made.bound_s = least_with_heat(of_each, options, aware, made.fastest.step_s if own else np.inf)
    made.answers, made.shardings = [*answers.values()], len(answers) - own


def _sharding(one: Solved) -> Hashable:
    """What tells answers apart: plan, tile count and schemes."""
    return one.plan, one.mapping.tile_count, tuple(kernel.sharding for kernel in one.mapping.kernels)


@dataclass(frozen=True)
class _Aware:
    """A plan's heat-aware mapping, its seconds per step, a bound on those, and those of the throttled mapping."""

    solved: Solved
    proof: HeatProof
    step_s: float
    bound_s: float
    throttled_s: float


@dataclass
class _Made:
    """What came of the plans: answers, those that could not be faster, and why others have none.

    ``kept``: why which shardings were kept; ``bound_s``: seconds that no sharding beats of the plans where it was free.
    """

    answers: list[_Aware]
    skipped: int
    refused: list[Infeasible | PlanError]
    kept: str
    shardings: int = 0
    bound_s: float = np.inf

    @property
    def fastest(self) -> _Aware:
        return min(self.answers, key=lambda one: one.step_s)

    def note(self, system: System, plans: int) -> str:
        """What was done, and over which set the answer is the best."""
        assert system.stack is not None
        found = self.fastest
        gap = max(0.0, 1 - min(self.bound_s, *(one.bound_s for one in self.answers)) / found.step_s)
        which, over = "the best plan", "that plan and sharding allow" if self.kept else "that plan allows"
        if plans > 1:
            which = f"{len(self.answers) - self.shardings} of the {plans} fastest plans"
            over = f"these plans allow, {self.kept}" if self.kept else "these plans allow"
        if not self.kept:
            which += f" and {self.shardings} shardings more"
        note = (
            f"then partitions, levels and pauses of {which} were chosen anew under the limits on heat of the stack"
            f" {system.stack.name}: {found.step_s:.6g} s per step there, within {100 * gap:.2g} % of what {over},"
            f" throttled {found.throttled_s:.6g} s"
        )
        if self.skipped:
            note += f"; {self.skipped} of the plans are no faster even without heat"
        if self.refused:
            note += f"; no answer for {len(self.refused)} of the plans: {self.refused[0]}"
        return note


def _at_least(one: Solved, system: System) -> float:
    """Seconds of a step that no mapping of a plan and its sharding beats, on the stack or without it.

    Without heat the memory is taken to give its full bandwidth. A memory that is slower than the stack's says nothing.
    """
    assert system.stack is not None
    return one.bound if system.chip.fastest.bandwidth >= system.stack.dram.peak * (1 - 1e-9) else 0.0


def _aware(one: Solved, setting: Setting, options: Options) -> _Aware:
    """The heat-aware mapping of one plan."""
    answers = three_answers(setting, one.mapping, options)
    if answers.why:
        raise PlanError(answers.why)
    found = answers.aware()
    mapping = answers.best_of(found).mapping
    score = evaluate(mapping, one.graph, setting.system, setting.assumptions)
    seconds = physical(score).step_time_s
    return _Aware(
        solved=replace(one, mapping=mapping, score=score, value=score.step_time_s),
        proof=answers.proof(found),
        step_s=seconds,
        # a step is a multiple of the interval, and what does not depend on it
        bound_s=min(seconds, found.step_s * (1 - found.answer.gap)),
        throttled_s=answers.throttle.step_s,
    )
