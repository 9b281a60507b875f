"""The plans of a result, listed and bounded again, and what the result says of each held against that."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dfopt.bnb import Clock
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import OPEN, PlanRecord
from dfopt.documents.result import ENDED, NEAR, TOO_MANY, Result
from dfopt.documents.space import Space
from dfopt.errors import PlanError
from dfopt.regions.variants import Variants
from dfopt.search.kept import Kept
from dfopt.search.proving import PROOF, Low, least_of
from dfopt.search.region_proof import ClaimedPlans, Claims, RegionProof
from dfopt.search.space import search_space, together, ways_to_count
from dfopt.search.state import SearchState
from dfopt.search.unit_state import Unit
from dfopt.search.unlisted import expanded
from dfopt.setting.instance import Setting
from dfopt.setting.plans import Rejected, asked_plans
from dfopt.solving.options import Options
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.step.roofline import least_step

SAME = 1e-9  # relative: the judge repeats itself to the last digits
_COUNTS = 256  # ways to count the space that are compared at most
_Key = tuple[Plan, str | None]
"""A plan, and the way to compute that it is for."""


def differences(path: str, mine: Any, theirs: Any) -> list[str]:
    """Where two dumped documents differ beyond rounding."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = [*mine, *(key for key in theirs if key not in mine)]
        return [d for key in keys for d in differences(f"{path}.{key}", mine.get(key), theirs.get(key))]
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        return [d for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) for d in differences(f"{path}[{i}]", a, b)]
    numbers = isinstance(mine, int | float) and isinstance(theirs, int | float)
    same = abs(mine - theirs) <= SAME * max(abs(mine), abs(theirs)) if numbers else mine == theirs
    return [] if same else [f"{path}: the file says {theirs!r}, recomputed {mine!r}"]


def _some(labels: list[str]) -> str:
    """How many plans, and the first few."""
    different = list(dict.fromkeys(labels))
    few = ", ".join(different[:3]) + ", ..." * (len(different) > 3)
    return f"{len(different)} plan{'s' * (len(different) > 1)} ({few})"


class Plans:
    """The plans of a result, listed and bounded again, and its records held against that."""

    def __init__(self, result: Result, value: float, clock: Clock) -> None:
        self.result, self.value, self.clock = result, value, clock
        self.joint = result.assumptions.sharding_objective == "joint"
        self.traced = result.trace is not None  # else an earlier version wrote it
        self.problems: list[str] = []
        self.unchecked: list[str] = []
        self.undecided: list[str] = []  # plans of which it was not shown that nothing fits
        self.short: list[str] = []  # and those whose bounds there was no time for
        self.bound = self.level_bound = value
        self.least = value * (1 - 2 * PROOF)
        self.why = self.level_why = ""
        self.options = Options(result.request, clock).asking(formulation="auto", gap=0.0, solver="highs", seed=0)
        stated = self.joint and result.request.formulation == "assignment"
        if (
            stated and result.assumptions.execution != "kernel_by_kernel"
        ):  # the proof says how many partitions there may be
            self.options = self.options.asking(p_max=result.p_max)
        # what others had to beat to be kept, and down to what it has to be shown that they do not
        self.kept = Kept.in_result(result)
        self.cutoff = self.kept.last
        self.left: dict[_Key, list[tuple[int, PlanRecord]]] = {}
        self.records: list[PlanRecord] = []
        self._has_records(result.plans)
        self.since = set[_Key]()  # plans of today that an earlier result does not list
        spaces, asked = list[list[Space]](), []  # of each graph in every way to count it, the fullest first
        graphs, plans = enumerate(result.apart or ()), enumerate(result.unlisted or ())
        self.apart = {(record.microbatch, record.variant): (number, record) for number, record in graphs}
        self.unlisted = {(each.microbatch, each.variant): (number, each) for number, each in plans}
        for name in ("apart", "unlisted"):
            if len(getattr(self, name)) < len(getattr(result, name) or ()):
                self.problems.append(f"$.{name}: two records of one graph")
        for graph in (result.graph, *result.variants):
            if self._whole(graph):
                continue
            try:
                legal, rejected = asked_plans(graph, result.system, result.request, result.assumptions)
            except PlanError:  # a microbatch that no plan can use
                continue
            self._has_records(self._unlisted(graph, legal, rejected))
            asked.append((graph, self._with_other_layers(graph, legal), rejected))
        known = {(plan, graph.variant) for graph, legal, _ in asked for plan in legal}
        for graph, _, rejected in asked:
            for one in rejected:
                key = one.plan, graph.variant
                self._rejected(one, key, key in known)
        for graph, legal, _ in asked:
            setting = Setting(graph, result.system, result.assumptions)
            variants = Variants(setting, result.request)
            ways = {plan: variants.of(plan) for plan in legal}
            if self.late and spaces:  # of the first graph something is shown in any time
                self._unshown(setting, [*itertools.chain.from_iterable(ways.values())])
                continue
            claims, state = self._claims(setting, ways), SearchState(self.options)
            proof = RegionProof(ClaimedPlans(setting, state, ways, claims, self.kept.best))
            lows = proof.lows()
            for every in ways.values():
                self._with_variants(setting, every, lows)
            listed = [plan for plan in legal if (plan, graph.variant) not in self.since]
            placements = len(variants.placements) or 1
            counted = partial(search_space, setting, listed, placements=placements, asked=result.request)
            exact = result.space is None or result.space.exact
            spaces.append([counted(lattices=proof.lattices())] if exact else ways_to_count(counted, proof.lattices()))
        for name in ("apart", "unlisted"):
            self.problems += [f"$.{name}[{at}]: of none of the graphs here" for at, _ in getattr(self, name).values()]
        for (plan, _), records in self.left.items():
            self.problems += [f"$.plans[{number}]: {plan.label} is none of the plans" for number, _ in records]
        if self.undecided:
            self._unsure(f"$.plans: that nothing fits under {_some(self.undecided)}, only that nothing is faster")
        if self.short:
            self._unsure(f"$.plans: bounds of {_some(self.short)}, which there was no time to show")
        if len(spaces) < len(asked):
            self.unchecked.append("$.space: there was no time to count all mappings")
        else:
            self._space(spaces)
        self._winner()

    @property
    def late(self) -> bool:
        """Whether the time was too short: then what could not be shown may be true."""
        return self.clock.over

    def _has_records(self, records: Iterable[PlanRecord]) -> None:
        for record in records:
            self.left.setdefault((record.plan, record.variant), []).append((len(self.records), record))
            self.records.append(record)

    def _unlisted(self, graph: Graph, legal: list[Plan], rejected: list[Rejected]) -> list[PlanRecord]:
        """What the file says of plans of a graph that have no record of their own there."""
        number, plans = self.unlisted.pop((graph.microbatch, graph.variant), (0, None))
        if plans is None:
            return []
        try:
            return list(expanded(plans, legal, rejected, self.kept.last, self.result.bound))
        except ValueError:
            written, listed = len(plans.group_of_each), len(legal) + len(rejected)
            self.problems.append(f"$.unlisted[{number}].members: of {written} plans, there are {listed}")
            return []

    def _wrong(self, number: int, name: str, claimed: object, found: object) -> None:
        self.problems.append(f"$.plans[{number}].{name}: the file says {claimed!r}, recomputed {found!r}")

    def _whole(self, graph: Graph) -> bool:
        """Whether the plans of a graph were given up together: then hold against that what all chips have to do."""
        if (graph.microbatch, graph.variant) not in self.apart:
            return False
        number, record = self.apart.pop((graph.microbatch, graph.variant))
        found = least_step(Setting(graph, self.result.system, self.result.assumptions))
        if abs(record.bound - found) > SAME * found:
            self.problems.append(f"$.apart[{number}].bound: the file says {record.bound!r}, recomputed {found!r}")
        if record.status == "pruned_by_bound" and found < self.kept.last * (1 - PROOF):
            self.problems.append(f"$.apart[{number}].status: a bound of {found!r} excludes nothing")
        if record.note not in (("",) if record.status == "pruned_by_bound" else (TOO_MANY, NEAR, *ENDED)):
            self.problems.append(f"$.apart[{number}].note: found {record.note!r}, not why such a graph is given up")
        self._lower(found, f"microbatches of {graph.microbatch}: not all plans are listed")
        return True

    def _lower(self, bound: float, why: str, level: float | None = None) -> None:
        """Take what holds of some mappings into account, also per level if that differs, and why it is no more."""
        if bound < self.bound:
            self.bound, self.why = bound, why
        if (bound if level is None else level) < self.level_bound:
            self.level_bound, self.level_why = bound if level is None else level, why

    def _claims(self, setting: Setting, ways: Mapping[Plan, Sequence[Plan]]) -> Claims:
        """What is said that no mapping of the plans of a graph is below, as far as that matters."""
        lows, empty = dict[Unit, float](), set[Unit]()
        for every in ways.values():
            apart = self._apart(setting, every)
            for plan in every:
                for _, record in self.left.get((plan if apart else every[0], setting.graph.variant), ()):
                    unit = plan, record.tile_count
                    if record.status.startswith("infeasible"):
                        empty.add(unit)
                        continue
                    bound = self.kept.bound(record, "level_bound")
                    lows[unit] = min(self.value if bound is None else bound, self.cutoff) * (1 - PROOF)
        return Claims(lows, empty, self.value * (1 - PROOF), self.joint)

    def _rejected(self, one: Rejected, key: _Key, elsewhere: bool) -> None:
        """Take the record of a plan that is none; one of the same look may be a plan for another microbatch."""
        left = self.left.get(key, [])
        mine = [at for at, (_, r) in enumerate(left) if r.status == "infeasible" and r.note == one.reason]
        if mine:
            left.pop(mine[0])
            if not left:
                del self.left[key]
            return
        if elsewhere:
            self.problems.append(f"$.plans: no record of {one.plan.label}, which is infeasible: {one.reason}")
            return
        for number, record in self._take(key):
            if record.status != "infeasible":
                self._wrong(number, "status", record.status, f"infeasible: {one.reason}")
            elif self.traced:  # earlier versions had other words
                self._wrong(number, "note", record.note, one.reason)

    def _with_other_layers(self, graph: Graph, legal: list[Plan]) -> list[Plan]:
        """Today's plans, and plans of the result that differ from those in the layers of their stages only.

        Which of these are searched has changed. All are bounded; today's need no record beside others of their kind.
        """
        if self.result.provenance.variant_digests is not None:
            return legal
        today = set(legal)
        mine = [p for p, variant in self.left if variant == graph.variant]
        if not any(p.uneven and p.interleave > 1 for p in mine):  # which earlier versions did not search
            self.since.update((p, graph.variant) for p in legal if p.uneven and p.interleave > 1)
        others = [p for p in mine if p.uneven and p not in today]
        if not others:
            return legal
        families, kinds = {plan.apart_from_layers for plan in legal}, {plan.apart_from_layers for plan in others}
        keys = ((plan, graph.variant) for plan in legal if plan.uneven and plan.apart_from_layers in kinds)
        self.since.update(key for key in keys if key not in self.left)
        return [*legal, *(plan for plan in others if plan.apart_from_layers in families)]

    def _unshown(self, setting: Setting, plans: Sequence[Plan]) -> None:
        """Plans of a graph that there was no time to bound: only what all chips have to do is held against them."""
        graph, least = setting.graph, least_step(setting)
        for plan in plans:
            self.short += [plan.label] * bool(self.left.pop((plan, graph.variant), None))
        why = f"of a microbatch of {graph.microbatch} only what all chips have to do at least"
        self._lower(least, why)

    def _take(self, key: _Key) -> list[tuple[int, PlanRecord]]:
        records = self.left.pop(key, [])
        if not records and key not in self.since:
            self.problems.append(f"$.plans: no record of {key[0].label}")
        return records

    def _apart(self, setting: Setting, ways: Sequence[Plan]) -> bool:
        """Whether each variant of a plan has records of its own: else those of the first stand for all."""
        return any((plan, setting.graph.variant) in self.left for plan in ways[1:])

    def _with_variants(self, setting: Setting, ways: Sequence[Plan], lows: Mapping[Plan, Low]) -> None:
        """Hold the records of a plan, and of all its variants, against what could be shown."""
        each = [lows.get(plan, lows[ways[0]]) for plan in ways]
        apart = self._apart(setting, ways)
        for plan, low in zip(ways, each, strict=True) if apart else [(ways[0], least_of(each))]:
            self._plan(setting, plan, low)

    def _plan(self, setting: Setting, plan: Plan, low: Low) -> None:
        """Hold the records of a plan against what could be shown of it."""
        records = self._take((plan, setting.graph.variant))
        every, level = (self.value if bound is None else bound for bound in (low.every, low.level))
        self._lower(every, f"{plan.label}: {low.why or 'another sharding is not excluded'}", np.inf)
        self._lower(np.inf, f"{plan.label}: {low.why}", level)
        drawn = setting.under(plan).graph
        counts = (tile_counts(drawn, setting.assumptions, least) for least in (1, plan.shards))
        allowed = {None, *itertools.chain(*counts)}
        seen = Counter(record.tile_count for _, record in records)
        if any(count > 1 for count in seen.values()) or not set(seen) <= allowed:
            self.problems.append(f"$.plans: {plan.label} has records of tile counts {sorted(map(str, seen))}")
        for number, record in records:
            self._record(number, record, low)

    def _record(self, number: int, record: PlanRecord, low: Low) -> None:
        if record.status.endswith("_per_level") and low.whole and self.joint:
            self._wrong(number, "status", record.status, "what holds for all shardings")
        elif record.status.startswith("infeasible"):
            self._nothing_fits(number, record, low)
        self._reason(number, record, low)
        if (record.bound is None) != (record.status == "infeasible"):
            self._wrong(number, "bound", record.bound, f"none only where nothing fits, this one is {record.status}")
        # beyond the claimed value nothing needs to be shown
        for name, found in (("bound", low.every), ("level_bound", low.level)):
            claimed = self.kept.bound(record, name)
            if found is not None and (low.whole or name == "level_bound"):
                found = low.of_size.get(record.tile_count, found)
            if claimed is not None and found is not None and min(claimed, self.cutoff) > found * (1 + 2 * PROOF):
                if self.late:
                    self.short.append(record.plan.label)
                else:
                    self._wrong(number, name, claimed, f"only {found!r} could be shown")
        if low.whole and record.level_bound != record.bound:
            self._wrong(number, "level_bound", record.level_bound, record.bound)
        elif self.traced and record.bound is not None and low.every is not None and record.bound != record.level_bound:
            least = low.every if record.value is None else min(low.every, record.value)
            self.problems += differences(f"$.plans[{number}].bound", least, record.bound)
        self._excluded(number, record)
        if record.status == "solved" and record.value is None:
            self._wrong(number, "value", None, "a value of every plan that was solved")
        if record.value is not None:
            if record.value < self.value * (1 - PROOF) and self.result.heat is None:  # heat only slows
                self._wrong(number, "value", record.value, f"nothing is better than {self.value!r}")
            gap = None if record.level_bound is None else (record.value - record.level_bound) / record.value
            if gap is None or record.gap is None or abs(record.gap - gap) > SAME:
                self._wrong(number, "gap", record.gap, gap)

    def _excluded(self, number: int, record: PlanRecord) -> None:
        """Hold what excludes a plan against what others have to beat."""
        beaten = {"pruned_by_bound": record.bound, "pruned_per_level": record.level_bound or 0.0}.get(record.status)
        if beaten is not None and beaten < self.kept.to_beat(record.plan, record.variant) * (1 - PROOF):
            self._wrong(number, "status", record.status, f"a bound of {beaten!r} excludes nothing")
        elif beaten is not None and self.traced and self.result.heat is None:
            least = max(record.bound or 0.0, self.kept.to_beat(record.plan, record.variant))
            if abs((record.level_bound or 0.0) - least) > 2 * PROOF * least:
                self._wrong(number, "level_bound", record.level_bound, least)

    def _nothing_fits(self, number: int, record: PlanRecord, low: Low) -> None:
        """Hold "infeasible" against a plan of which not all was shown to be."""
        if (low.every if record.status == "infeasible" else low.level) is None:
            return
        mine = (low.fits | low.open_) & {None, record.tile_count} if record.tile_count else low.fits | low.open_
        if mine & low.fits:
            self._wrong(number, "status", record.status, "some mapping fits")
        elif mine:  # where that may matter the gap is not that of the file
            self.undecided.append(record.plan.label)
        elif record.status == "infeasible" and not low.whole:
            self._wrong(number, "status", record.status, "another sharding may fit")

    def _reason(self, number: int, record: PlanRecord, low: Low) -> None:
        """Hold the reason of a record against its status: of what is settled there is none, but why nothing fits."""
        name = "$.plans[*].note" if (listed := number < len(self.result.plans)) else "$.unlisted[*].groups[*].note"
        if record.status in OPEN:
            self._unsure(f"{name}: why a plan is open")
        elif record.status.startswith("infeasible"):
            if record.note != (low.why if listed else ""):
                self._unsure(f"{name}: why a plan is infeasible, which was shown for another reason")
        elif record.note and self.traced:
            self._wrong(number, "note", record.note, "")

    def _unsure(self, text: str) -> None:
        if text not in self.unchecked:
            self.unchecked.append(text)

    def _winner(self) -> None:
        """The record of the plan that won, with its value and what it used."""
        result = self.result
        won = result.plan, result.graph.variant
        mine = [r for r in self.records if (r.plan, r.variant) == won and r.value is not None]
        graph = result.graph  # its plans may not even be listed
        listed = not any((r.microbatch, r.variant) == (graph.microbatch, graph.variant) for r in result.apart or ())
        same = any(abs((r.value or 0.0) - result.value) <= PROOF * result.value for r in mine)
        if listed and not same and result.heat is None:
            self.problems.append(f"$.plans: no record of {result.plan.label} has the value of the result")
        most = max((len(graph.kernels) for graph in (result.graph, *result.variants)), default=1)
        asked = result.request.p_max
        used = max(kernel.partition for kernel in result.mapping.kernels) + 1
        if not used <= result.p_max <= (asked if asked is not None else most):
            self.problems.append(
                f"$.p_max: the file says {result.p_max}, the mapping uses {used}, at most {asked or most} were allowed"
            )

    def _space(self, spaces: list[list[Space]]) -> None:
        if self.result.space is None:
            self.unchecked.append("$.space: how many mappings there are is not in the file")
        if self.result.space is None or not spaces:
            return
        mine, claimed = together([ways[0] for ways in spaces]).model_dump(), self.result.space.model_dump()
        # some down-sets may have been listed for one of them only
        counts = (together(chosen).model_dump() for chosen in itertools.islice(itertools.product(*spaces), _COUNTS))
        if any(not differences("$", count, claimed) for count in counts):
            return
        sure = math.prod(map(len, spaces)) <= _COUNTS and not self.late
        names = mine if sure else ("plans", "log10_shardings", "log10_stages", "tile_counts")
        self.problems += [d for name in names for d in differences(f"$.space.{name}", mine[name], claimed[name])]
        if not sure:
            self.unchecked.append("$.space.log10_fusions, $.space.log10_total, $.space.exact: not counted exactly")
