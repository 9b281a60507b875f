"""The plans of a result, listed and bounded again, and what the result says of each held against that."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dfopt.bnb import Clock
from dfopt.documents.certificate import Certificate
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import OPEN, GraphRecord, PlanRecord
from dfopt.documents.result import ENDED, NEAR, TOO_MANY, Result
from dfopt.documents.space import Space
from dfopt.errors import PlanError
from dfopt.search.kept import PROOF, Kept
from dfopt.search.other_code import OtherCode, TrustedCounts, tiles_of
from dfopt.search.region_proof import ClaimedPlans, Claims, PlanProof, RegionProof
from dfopt.search.space import together
from dfopt.search.state import SearchState
from dfopt.search.unit_state import TiledPlan
from dfopt.search.unlisted import expanded
from dfopt.setting.instance import Setting
from dfopt.setting.plans import Rejected, asked_plans
from dfopt.solving.options import Options
from dfopt.terms.step.roofline import least_step

SAME: Final = 1e-9
"""Relative: the judge repeats itself to the last digits."""
_Key = tuple[Plan, str | None]
"""A plan, and the way to compute that it is for."""


def differences(path: str, recomputed: Any, theirs: Any) -> list[str]:
    """Differences beyond rounding between a recomputed document and the file's, as sentences that name ``path``."""
    if isinstance(recomputed, dict) and isinstance(theirs, dict):
        keys = [*recomputed, *(key for key in theirs if key not in recomputed)]
        return [d for key in keys for d in differences(f"{path}.{key}", recomputed.get(key), theirs.get(key))]
    if isinstance(recomputed, list) and isinstance(theirs, list) and len(recomputed) == len(theirs):
        return [
            d
            for i, (a, b) in enumerate(zip(recomputed, theirs, strict=True))
            for d in differences(f"{path}[{i}]", a, b)
        ]
    numbers = isinstance(recomputed, int | float) and isinstance(theirs, int | float)
    same = abs(recomputed - theirs) <= SAME * max(abs(recomputed), abs(theirs)) if numbers else recomputed == theirs
    return [] if same else [f"{path}: the file says {theirs!r}, recomputed {recomputed!r}"]


def _some(labels: list[str]) -> str:
    """How many plans, and the first few."""
    different = list(dict.fromkeys(labels))
    few = ", ".join(different[:3]) + ", ..." * (len(different) > 3)
    return f"{len(different)} plan{'s' * (len(different) > 1)} ({few})"


class _Listed(NamedTuple):
    """The plans of a graph."""

    setting: Setting
    legal: list[Plan]
    rejected: list[Rejected]


class Plans:
    """Re-checks the plan records of a result: lists its plans, bounds them again and compares.

    Parameters
    ----------
    result : Result
        The result.
    value : float, s
        Step of its mapping, by the judge.
    clock : Clock
        Limit of the check; plans not reached by then count as not checked.
    certificate : Certificate, optional
        Certificate with the proofs of bounds, in place of a new search for them.

    Attributes
    ----------
    records : list of PlanRecord
        Records of the file, one for each plan.
    least : dict
        For the gap and the level gap: proven lower bound, s, on all mappings, and on those with the sharding of their
        plan, each with the reason why it is not higher.
    problems, unchecked : list of str
        Problems, and claims that could not be checked.
    rests : TrustedCounts
        Claims that only the search's own code could show.
    other : OtherCode
        Proof of bounds by code independent of the search, and its outcome.
    undecided, short : list of str
        Plans that were not proven infeasible, and plans for whose bounds there was no time.
    """

    def __init__(self, result: Result, value: float, clock: Clock, certificate: Certificate | None = None) -> None:
        self.result, self.value, self.clock = result, value, clock
        self.joint = result.assumptions.sharding_objective == "joint"
        self.options = Options(result.request, clock).asking(formulation="auto", gap=0.0, solver="highs", seed=0)
        stated = self.joint and result.request.formulation == "assignment"
        if stated and result.assumptions.execution != "kernel_by_kernel":
            self.options = self.options.asking(p_max=result.p_max)  # the proof says how many partitions there may be
        self.kept = Kept.in_result(result)  # what others had to beat, down to which it has to be shown that they do not
        self.problems, self.unchecked = list[str](), list[str]()
        self.undecided, self.short = list[str](), list[str]()
        self.least = dict.fromkeys(("gap", "level_gap"), (value, ""))
        self.records, self.rests = list[PlanRecord](), TrustedCounts()
        self.other = OtherCode(result, clock, certificate)
        self._left: dict[_Key, list[tuple[int, PlanRecord]]] = {}
        self._apart, self._unlisted = self._by_graph("apart"), self._by_graph("unlisted")

    def check(self) -> None:
        """Compare all plan records of the file with bounds that are proven again; attributes collect the problems."""
        self._take_in(self.result.plans)
        listed = [each for graph in (self.result.graph, *self.result.variants) for each in self._list(graph)]
        self._check_rejected(listed)
        spaces = self._check_listed(listed)
        self._check_left()
        self.problems += [f"certificate: {refused}" for refused in self.other.refused]
        if self.undecided:
            self._unsure(f"$.plans: that nothing fits under {_some(self.undecided)}, only that nothing is faster")
        if self.short:
            self._unsure(f"$.plans: bounds of {_some(self.short)}, which there was no time to show")
        if len(spaces) < len(listed):
            self.unchecked.append("$.space: there was no time to count all mappings")
        elif spaces:
            self.problems += differences("$.space", together(spaces).model_dump(), self.result.space.model_dump())
        self._check_winner()

    @property
    def late(self) -> bool:
        """Whether time ran out, so that claims not shown may still be true."""
        return self.clock.over

    # -- what the file says, and which plans there are --------------------------------------------------------------

    def _by_graph(self, name: str) -> dict[tuple[int, str | None], tuple[int, Any]]:
        """What the file says of graphs, with its place there."""
        every = getattr(self.result, name) or ()
        record_of = {(each.microbatch, each.variant): (number, each) for number, each in enumerate(every)}
        self.problems += [f"$.{name}: two records of one graph"] * (len(record_of) < len(every))
        return record_of

    def _take_in(self, records: Iterable[PlanRecord]) -> None:
        for record in records:
            self._left.setdefault((record.plan, record.variant), []).append((len(self.records), record))
            self.records.append(record)

    def _take(self, key: _Key) -> list[tuple[int, PlanRecord]]:
        """The records of a plan, with their numbers."""
        records = self._left.pop(key, [])
        self.problems += [f"$.plans: no record of {key[0].label}"] * (not records)
        return records

    def _list(self, graph: Graph) -> Iterator[_Listed]:
        """The plans of a graph, if they were listed: those that have no record of their own get one."""
        setting, at = Setting(graph, self.result.system, self.result.assumptions), (graph.microbatch, graph.variant)
        if at in self._apart:
            self._check_apart(setting, *self._apart.pop(at))
            return
        try:
            legal, rejected = asked_plans(graph, setting.system, self.result.request, setting.assumptions)
        except PlanError:  # a microbatch that no plan can use
            return
        if at in self._unlisted:
            number, plans = self._unlisted.pop(at)
            try:
                self._take_in(list(expanded(plans, legal, rejected, self.kept.last, self.result.bound)))
            except ValueError:
                written, there = len(plans.group_of_each), len(legal) + len(rejected)
                self.problems.append(f"$.unlisted[{number}].members: of {written} plans, there are {there}")
        yield _Listed(setting, legal, rejected)

    def _claims(self, setting: Setting, ways: Mapping[Plan, Sequence[Plan]]) -> Claims:
        """What is said that no mapping of the plans of a graph is below, as far as that matters."""
        lows, empty = defaultdict[Plan, dict[int | None, float]](dict), set[TiledPlan]()
        for every in ways.values():
            separate = self._are_apart(setting, every)
            for plan in every:
                for _, record in self._left.get((plan if separate else every[0], setting.graph.variant), ()):
                    bound = self.kept.bound(record, "level_bound")
                    low = min(self.value if bound is None else bound, self.kept.last) * (1 - PROOF)
                    if record.status.startswith("infeasible"):
                        empty.add((plan, record.tile_count))
                        low = np.inf
                    lows[plan][record.tile_count] = low
        return Claims(lows, empty, self.value * (1 - PROOF), self.joint)

    def _are_apart(self, setting: Setting, ways: Sequence[Plan]) -> bool:
        """Whether each variant of a plan has records of its own: else those of the first stand for all."""
        return any((plan, setting.graph.variant) in self._left for plan in ways[1:])

    # -- graph by graph ---------------------------------------------------------------------------------------------

    def _check_apart(self, setting: Setting, number: int, record: GraphRecord) -> None:
        """Hold the record of a graph whose plans were given up together against what all chips have to do."""
        low, where, excluded = least_step(setting), f"$.apart[{number}]", record.status == "pruned_by_bound"
        if abs(record.bound - low) > SAME * low:
            self.problems.append(f"{where}.bound: the file says {record.bound!r}, recomputed {low!r}")
        if excluded and low < self.kept.last * (1 - PROOF):
            self.problems.append(f"{where}.status: a bound of {low!r} excludes nothing")
        if record.note not in (("",) if excluded else (TOO_MANY, NEAR, *ENDED)):
            self.problems.append(f"{where}.note: found {record.note!r}, not why such a graph is given up")
        self._lower(f"microbatches of {record.microbatch}: not all plans are listed", gap=low, level_gap=low)
        self.rests.graphs += not self.other.excludes(setting, min(low, self.kept.last) * (1 - PROOF))

    def _check_rejected(self, listed: Sequence[_Listed]) -> None:
        """Take the records of plans that are none; one of the same look may be a plan for another microbatch."""
        for setting, rejected in ((of.setting, each) for of in listed for each in of.rejected):
            left = self._left.get(key := (rejected.plan, setting.graph.variant), [])
            claim = next((r for r in left if r[1].status == "infeasible" and r[1].note == rejected.reason), None)
            if claim is None:
                self.problems.append(
                    f"$.plans: no record of {rejected.plan.label}, which is infeasible: {rejected.reason}"
                )
                continue
            left.remove(claim)
            if not left:
                del self._left[key]

    def _check_listed(self, listed: Sequence[_Listed]) -> list[Space]:
        """Hold the records of all plans against what could be shown of them.

        Returns
        -------
        list of Space
            How many mappings there are under the plans of each graph, but for graphs that there was no time for.
        """
        spaces = list[Space]()
        for setting, legal, _ in listed:
            plans = ClaimedPlans(setting, SearchState(self.options), legal, self._claims, self.kept.best)
            if self.late and spaces:  # of the first graph something is shown in any time
                for plan in itertools.chain.from_iterable(plans.ways.values()):
                    self.short += [plan.label] * bool(self._left.pop((plan, setting.graph.variant), None))
                why = f"of a microbatch of {setting.graph.microbatch} only what all chips have to do at least"
                self._lower(why, gap=plans.least, level_gap=plans.least)
                continue
            self._prove(plans)
            proof = RegionProof(plans)
            shown = proof.shown()
            self.rests.regions += proof.regions
            for ways in plans.ways.values():
                each = [shown.get(plan, shown[ways[0]]) for plan in ways]
                if not self._are_apart(setting, ways):
                    ways, each = ways[:1], [PlanProof.together(each)]
                for plan, of_plan in zip(ways, each, strict=True):
                    self._check_plan(setting, plan, of_plan)
            spaces.append(plans.size(self.result.request))
        return spaces

    def _prove(self, plans: ClaimedPlans) -> None:
        """Show what is claimed of plans by the judge's figures alone, as far as that is possible."""
        setting, every = plans.setting, [way for ways in plans.ways.values() for way in ways]
        if self.joint:
            claims = {(way, tiles): plans.claims.of(way, tiles) for way in every for tiles in tiles_of(setting, way)}
            proof = self.other.shown(setting, claims)
            plans.proven = frozenset(every) - {plan for plan, _ in proof.open}
            for mapping in proof.below.values():
                plans.refute(mapping)
            self.rests.of_regions += proof.regions
        self.rests.plans += len(every) - len(plans.proven)
        self.rests.of_plans += len(every)

    def _check_left(self) -> None:
        """What is said of other graphs and plans than there are."""
        for name, left in (("apart", self._apart), ("unlisted", self._unlisted)):
            self.problems += [f"$.{name}[{number}]: of none of the graphs here" for number, _ in left.values()]
        for (plan, _), records in self._left.items():
            self.problems += [f"$.plans[{number}]: {plan.label} is none of the plans" for number, _ in records]

    # -- plan by plan -----------------------------------------------------------------------------------------------

    def _check_plan(self, setting: Setting, plan: Plan, shown: PlanProof) -> None:
        """Hold the records of a plan against what could be shown of it."""
        records = self._take((plan, setting.graph.variant))
        if shown.every is not None:
            self._lower(f"{plan.label}: {shown.why or 'another sharding is not excluded'}", gap=shown.every)
        if shown.level is not None:
            self._lower(f"{plan.label}: {shown.why}", level_gap=shown.level)
        allowed = {None, *tiles_of(setting, plan)}
        seen = Counter(record.tile_count for _, record in records)
        if any(count > 1 for count in seen.values()) or not set(seen) <= allowed:
            self.problems.append(f"$.plans: {plan.label} has records of tile counts {sorted(map(str, seen))}")
        for number, record in records:
            self._check_status(number, record, shown)
            self._check_reason(number, record, shown)
            self._check_bounds(number, record, shown)
            self._check_value(number, record)

    def _check_status(self, number: int, record: PlanRecord, shown: PlanProof) -> None:
        """Hold what is said to exclude a plan against what others have to beat, and "infeasible" against what fits."""
        status = record.status
        if status.endswith("_per_level") and shown.for_all and self.joint:
            self._wrong(number, "status", status, "what holds for all shardings")
        elif status.startswith("infeasible"):
            self._check_nothing_fits(number, record, shown)
        beaten = {"pruned_by_bound": record.bound, "pruned_per_level": record.level_bound or 0.0}.get(status)
        beat = self.kept.to_beat(record.plan, record.variant)
        if beaten is not None and beaten < beat * (1 - PROOF):
            self._wrong(number, "status", status, f"a bound of {beaten!r} excludes nothing")
        elif beaten is not None and self.result.heat is None:
            least = max(record.bound or 0.0, beat)
            if abs((record.level_bound or 0.0) - least) > 2 * PROOF * least:
                self._wrong(number, "level_bound", record.level_bound, least)

    def _check_nothing_fits(self, number: int, record: PlanRecord, shown: PlanProof) -> None:
        """Hold "infeasible" against a plan of which not all was shown to be."""
        if (shown.every if record.status == "infeasible" else shown.level) is None:
            return
        open_ = [each for each in shown.of(record.tile_count) if each.level_bound is not None]
        if any(each.value is not None for each in open_):
            self._wrong(number, "status", record.status, "some mapping fits")
        elif open_:  # where that may matter the gap is not that of the file
            self.undecided.append(record.plan.label)
        elif record.status == "infeasible" and not shown.for_all:
            self._wrong(number, "status", record.status, "another sharding may fit")

    def _check_reason(self, number: int, record: PlanRecord, shown: PlanProof) -> None:
        """Hold the reason of a record against its status: of what is settled there is none, but why nothing fits."""
        name = "$.plans[*].note" if (listed := number < len(self.result.plans)) else "$.unlisted[*].groups[*].note"
        if record.status in OPEN:
            self._unsure(f"{name}: why a plan is open")
        elif record.status.startswith("infeasible"):
            if record.note != (shown.why if listed else ""):
                self._unsure(f"{name}: why a plan is infeasible, which was shown for another reason")
        elif record.note:
            self._wrong(number, "note", record.note, "")

    def _check_bounds(self, number: int, record: PlanRecord, shown: PlanProof) -> None:
        """Hold bounds against what could be shown; beyond the claimed value nothing needs to be."""
        if (record.bound is None) != (record.status == "infeasible"):
            self._wrong(number, "bound", record.bound, f"none only where nothing fits, this one is {record.status}")
        for name, low in (("bound", shown.every), ("level_bound", shown.level)):
            claimed = self.kept.bound(record, name)
            if claimed is None or low is None:
                continue
            if shown.for_all or name == "level_bound":
                low = shown.level_of(record.tile_count)
            if min(claimed, self.kept.last) <= low * (1 + 2 * PROOF):
                continue
            if self.late:
                self.short.append(record.plan.label)
            else:
                self._wrong(number, name, claimed, f"only {low!r} could be shown")
        if shown.for_all and record.level_bound != record.bound:
            self._wrong(number, "level_bound", record.level_bound, record.bound)
        elif record.bound is not None and shown.every is not None and record.bound != record.level_bound:
            least = shown.every if record.value is None else min(shown.every, record.value)
            self.problems += differences(f"$.plans[{number}].bound", least, record.bound)

    def _check_value(self, number: int, record: PlanRecord) -> None:
        """Hold the value of a mapping of a plan against that of the result, and the gap against the value."""
        if record.value is None:
            if record.status == "solved":
                self._wrong(number, "value", None, "a value of every plan that was solved")
            return
        if record.value < self.value * (1 - PROOF) and self.result.heat is None:  # heat only slows
            self._wrong(number, "value", record.value, f"nothing is better than {self.value!r}")
        gap = None if record.level_bound is None else (record.value - record.level_bound) / record.value
        if gap is None or record.gap is None or abs(record.gap - gap) > SAME:
            self._wrong(number, "gap", record.gap, gap)

    # -- the whole --------------------------------------------------------------------------------------------------

    def _check_winner(self) -> None:
        """The record of the plan that won, with its value and what it used."""
        result, graph = self.result, self.result.graph
        won = result.plan, graph.variant
        values = [r.value for r in self.records if (r.plan, r.variant) == won and r.value is not None]
        # its plans may not even be listed
        listed = not any((r.microbatch, r.variant) == (graph.microbatch, graph.variant) for r in result.apart or ())
        same = any(abs(value - result.value) <= PROOF * result.value for value in values)
        if listed and not same and result.heat is None:
            self.problems.append(f"$.plans: no record of {result.plan.label} has the value of the result")
        most = max(len(each.kernels) for each in (graph, *result.variants))
        asked, used = result.request.p_max, max(kernel.partition for kernel in result.mapping.kernels) + 1
        if not used <= result.p_max <= (asked if asked is not None else most):
            self.problems.append(
                f"$.p_max: the file says {result.p_max}, the mapping uses {used}, at most {asked or most} were allowed"
            )

    def _wrong(self, number: int, name: str, claimed: object, recomputed: object) -> None:
        self.problems.append(f"$.plans[{number}].{name}: the file says {claimed!r}, recomputed {recomputed!r}")

    def _unsure(self, text: str) -> None:
        if text not in self.unchecked:
            self.unchecked.append(text)

    def _lower(self, why: str, **lows: float) -> None:
        """Take what holds of some mappings into account, and why it is no more."""
        self.least |= {name: (low, why) for name, low in lows.items() if low < self.least[name][0]}
