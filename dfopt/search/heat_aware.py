"""Heat asked for by a search: the three answers for the plan of a result, and the heat-aware mapping of some plans."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dfopt.bnb import Candidate, Clock, LeafAnswer
from dfopt.documents.graph import Graph
from dfopt.documents.heat import HeatProof, HeatReport
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.errors import Infeasible, Issue, NoSolution, PlanError, SystemSpecError
from dfopt.heat.answers import ThreeAnswers
from dfopt.heat.period import HeatEffort
from dfopt.heat.settle import physical
from dfopt.judge import evaluate
from dfopt.machines.stacks import with_stack
from dfopt.milp import check_solver
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.problem import one_by_one
from dfopt.setting.instance import Setting
from dfopt.setting.stages import is_cut
from dfopt.solving.options import Options
from dfopt.solving.priced import priced_mapping
from dfopt.solving.solved import Solved

HEAT_GAP = 1e-4  # relative: closer than the leakage is known, levels of many partitions are hard to prove
_FULL: Final = 1e-9  # relative: a bandwidth that is less by rounding alone is the full one


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
    """Report three ways to keep a stack cool under the plan and sharding of a result: see :func:`dfopt.heat`.

    Parameters
    ----------
    result : Result
        Result of :func:`dfopt.solve`.
    stack : Stack, optional
        Stack of the chip; by default that of the result's system.
    gap : float
        Relative gap at which the heat-aware search may stop.
    time_limit : float, s
        Limit for all three answers.
    one_kelvin : bool
        Whether to also compute the gain per kelvin of a higher temperature limit.
    solver, seed
        See :func:`dfopt.milp.solve`.
    """
    system = needs_stack(result.system, stack)
    options = Options(result.request, Clock.of_limit(time_limit)).asking(
        gap=gap, solver=check_solver(solver), seed=seed, formulation="auto", pin_sharding={}
    )
    setting = Setting(result.graph, system, result.assumptions)
    return three_answers(setting, result.mapping, options).report(one_kelvin)


def three_answers(setting: Setting, mapping: Mapping, options: Options) -> ThreeAnswers:
    """The three answers on heat for the plan and sharding of a mapping, on a system with a stack.

    Parameters
    ----------
    setting
        Graph, system with a stack, and resolved assumptions.
    mapping
        The mapping, whose plan and sharding stay.
    options
        Limits of the search: gap, time and solver.
    """
    ready = priced_mapping(setting, mapping, replace(options, progress=None), listed=True)
    asked = options.request
    return ThreeAnswers(ready, mapping, HeatEffort(asked.gap, options.clock.last, asked.solver, asked.seed))


def needs_stack(system: System, stack: Stack | None) -> System:
    """The system with its chip as a stack: the given stack, or its own.

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
    """The best mapping of a search, re-optimized under the temperature limits of its system's stack.

    Parameters
    ----------
    best, others : Solved
        The mappings of the fastest plans without heat. Another plan is left out where no mapping of its plan and
        sharding is faster even without heat, which only ever slows.
    setting : Setting
        Setting whose system has a stack.
    options : Options
        Options of the search, with the clock for all plans together.

    Returns
    -------
    Solved, HeatProof
        It is the fastest of the answers: a plan and its sharding with new partitions, clocks and pauses. The proof has
        the bounds, and a note in words. If ``sharding_objective: joint`` chose the sharding, it is free here too.

    Raises
    ------
    PlanError
        If the blocks of kernels cannot be listed, of any plan.
    Infeasible
        If no mapping keeps the limits.
    """
    plans, settings = [best, *others], dict[Graph, Setting]()
    for solved in plans:
        settings.setdefault(solved.graph, replace(setting, graph=solved.graph))
    open_, why_kept = _open(plans, setting)
    answers = _Made(settings, options.asking(gap=max(options.request.gap, HEAT_GAP), top=1))
    for number, solved in enumerate(plans):
        if answers.answers and _at_least(solved, setting.system) >= answers.fastest.step_s:
            answers.skipped += 1
            continue
        left = options.clock.seconds_left / (len(plans) - number + bool(open_))
        try:
            answers.answer(solved, Clock.of_limit(left))
        except (Infeasible, PlanError) as error:
            answers.refused.append(error)
    own = len(answers.answers)
    if open_:
        answers.look_further(open_)
    if not answers.answers:
        raise answers.refused[0]
    note = answers.note(setting.system, len(plans), len(answers.answers) - own, why_kept)
    return answers.fastest.solved, answers.fastest.proof.model_copy(update={"note": note})


def _open(plans: Sequence[Solved], setting: Setting) -> tuple[list[Solved], str]:
    """Those whose sharding may be chosen anew, and why that of others is kept."""
    if setting.assumptions.sharding_objective != "joint":
        return [], "each with its sharding"
    if _at_least(replace(plans[0], bound=1.0), setting.system) < 1.0:
        return [], "each with its sharding, because the system's memory is slower than the stack's and bounds no other"
    open_ = [solved for solved in plans if not is_cut(solved.graph, solved.plan)]
    if len(open_) < len(plans):
        return open_, "with the sharding that they have where kernels drawn once are on several pipeline stages"
    return open_, ""


@dataclass(frozen=True)
class _Aware:
    """A plan's heat-aware mapping, its seconds per step, a bound on those, and those of the throttled mapping."""

    solved: Solved
    proof: HeatProof
    step_s: float
    bound_s: float
    throttled_s: float


def _candidate(aware: _Aware) -> Candidate:
    return Candidate(aware.step_s, JudgedMapping(None, aware.solved))


class _Made:
    """What came of some plans: answers by plan and sharding, those that could not be faster, and why others have none.

    ``bound_s``: seconds that no sharding beats of the plans where it was free.
    """

    def __init__(self, settings: dict[Graph, Setting], options: Options) -> None:
        self.settings, self.options = settings, options
        self.answers: dict[Hashable, _Aware] = {}
        self.refused: list[Infeasible | PlanError] = []
        self.skipped, self.bound_s = 0, np.inf

    @property
    def fastest(self) -> _Aware:
        return min(self.answers.values(), key=lambda answer: answer.step_s)

    def answer(self, solved: Solved, clock: Clock) -> _Aware:
        """The heat-aware mapping of a plan, tile count and schemes."""
        key = (
            solved.graph,
            solved.plan,
            solved.mapping.tile_count,
            tuple(kernel.sharding for kernel in solved.mapping.kernels),
        )
        if key not in self.answers:
            self.answers[key] = _aware(solved, self.settings[solved.graph], replace(self.options, clock=clock))
        return self.answers[key]

    def look_further(self, plans: Sequence[Solved]) -> None:
        """Look for faster mappings under other shardings of some plans, and bound them all."""

        def within(free: Solved, cutoff: float) -> LeafAnswer:
            try:
                answer = self.answer(free, self.options.clock)
            except PlanError as error:  # its blocks cannot be listed: nothing is shown
                raise NoSolution(0.0, 0.0, str(error)) from error
            return LeafAnswer([_candidate(answer)], answer.bound_s)

        open_ = dict[Setting, dict[Plan, None]]()
        for solved in plans:
            open_.setdefault(self.settings[solved.graph], {})[solved.plan] = None
        kept = [_candidate(self.fastest)] if self.answers else []
        self.bound_s = one_by_one({of: [*some] for of, some in open_.items()}, within, self.options, kept).bound

    def note(self, system: System, plans: int, shardings: int, why_kept: str) -> str:
        """What was done, and over which set the answer is the best."""
        assert system.stack is not None
        fastest = self.fastest
        gap = max(0.0, 1 - min(self.bound_s, *(answer.bound_s for answer in self.answers.values())) / fastest.step_s)
        which, over = "the best plan", "that plan and sharding allow" if why_kept else "that plan allows"
        if plans > 1:
            which = f"{len(self.answers) - shardings} of the {plans} fastest plans"
            over = f"these plans allow, {why_kept}" if why_kept else "these plans allow"
        if not why_kept:
            which += f" and {shardings} shardings more"
        note = (
            f"then partitions, levels and pauses of {which} were chosen anew under the limits on heat of the stack"
            f" {system.stack.name}: {fastest.step_s:.6g} s per step there, within {100 * gap:.2g} % of what {over},"
            f" throttled {fastest.throttled_s:.6g} s"
        )
        if self.skipped:
            note += f"; {self.skipped} of the plans are no faster even without heat"
        if self.refused:
            note += f"; no answer for {len(self.refused)} of the plans: {self.refused[0]}"
        return note


def _at_least(solved: Solved, system: System) -> float:
    """Seconds of a step that no mapping of a plan and its sharding beats, on the stack or without it.

    Without heat the memory is taken to give its full bandwidth. A memory that is slower than the stack's says nothing.
    """
    assert system.stack is not None
    return solved.bound if system.chip.fastest.bandwidth >= system.stack.dram.peak * (1 - _FULL) else 0.0


def _aware(solved: Solved, setting: Setting, options: Options) -> _Aware:
    """The heat-aware mapping of one plan."""
    answers = three_answers(setting, solved.mapping, options)
    if answers.why:
        raise PlanError(answers.why)
    aware = answers.aware()
    mapping = answers.best_of(aware).mapping
    score = evaluate(mapping, solved.graph, setting.system, setting.assumptions)
    seconds = physical(score).step_time_s
    return _Aware(
        solved=replace(solved, mapping=mapping, score=score, value=score.step_time_s),
        proof=answers.proof(aware),
        step_s=seconds,
        # a step is a multiple of the interval, and what does not depend on it
        bound_s=min(seconds, aware.step_s * (1 - aware.answer.gap)),
        throttled_s=answers.throttle.step_s,
    )
