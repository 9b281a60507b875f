"""A store checked without trusting its figures: mappings are judged, and cells solved, again."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dfopt import __version__
from dfopt.documents.mapping import Mapping
from dfopt.documents.request import Request
from dfopt.documents.store import Record, damage, parse, read_records
from dfopt.errors import DfoptError, DocumentError, Issue, refuse
from dfopt.interrupts import now
from dfopt.machines.calibrations import assumed_again
from dfopt.processes.worker import Bounded, asked_of, bounded, judged_figures
from dfopt.questions import Resolved, Resolver
from dfopt.search.assembling import status_of
from dfopt.search.claims import differences
from dfopt.search.kept import PROOF, proven_gap
from dfopt.search.verify import judged_again, rounded, seconds_for, words_of
from dfopt.setting.instance import Setting
from dfopt.studies.cells import key_of
from dfopt.studies.frame import SOLVED

NOT_CHECKED = (
    "$.seconds, $.dfopt: how long it took, and what solved it, from which nothing follows",
    "$.study, $.axes: what the study calls it, which is not in the file",
)
"""Fields of a record that no check can hold against anything, and why."""

_UNREADABLE = DfoptError, LookupError, TypeError, ValueError, AttributeError
_BOUNDS = "gap", "bound_s", "level_gap", "level_bound_s"
_SHARE = 0.9  # of the time, after which no cell is solved again: the last one takes a little longer than its limit


def check_store(path: str | os.PathLike[str], time_limit: float | None = None) -> str:
    """Check the records of a store and return the verdict in words.

    Raises
    ------
    DocumentError
        If the file is no store, or a claim of a record is wrong.
    """
    records, text = read_records(path), Path(path).read_bytes()
    cut = not text.endswith(b"\n")  # by a sweep that writes to it
    _, kept, lost = parse(text, path)
    if (damaged := damage([path])) and len(lost) > cut:
        refuse(os.fspath(path), damaged, "sweep again")
    spent = sum(float(record.get("seconds") or 0.0) for record in records.values())
    end = now() + _SHARE * (seconds_for(spent) if time_limit is None else time_limit)
    checks = [_Check(record) for record in records.values()]
    problems = _of_replaced(kept, records, path)
    if not problems and not any(check.problems for check in checks):
        for check in checks:
            check.solve(end - now())
    problems += [(check.record["cell"], problem) for check in checks for problem in check.problems]
    split = [(cell, *problem.partition(": ")[::2]) for cell, problem in problems]
    if split:
        raise DocumentError(os.fspath(path), [Issue(f"cell {cell}: {where}", what) for cell, where, what in split])
    verdicts = Counter(check.verdict for check in checks)
    listed = ", ".join(f"{count} {words}" for words, count in verdicts.most_common())
    lines = [f"{len(checks)} record{'s' * (len(checks) != 1)}: {listed}".removesuffix(": ")]
    unchecked = Counter(what for check in checks for what in check.unchecked)
    lines += [f"  not checked: {what}{f' ({count} records)' * (count > 1)}" for what, count in unchecked.items()]
    return "\n".join([*lines, *[f"  note: {damaged}"] * bool(damaged)])


def _of_replaced(
    lines: Sequence[bytes], records: dict[str, Record], path: str | os.PathLike[str]
) -> list[tuple[str, str]]:
    """Keys of records that a later record of the same cell replaces, where these are not records of that cell."""
    problems: list[tuple[str, str]] = []
    for line in lines if len(lines) > len(records) else ():
        ((cell, record),) = parse(line, path)[0].items()
        if record == records.get(cell) or "asked" not in record:
            continue
        with suppress(*_UNREADABLE):  # as an earlier version wrote it
            problems += [(cell, problem) for problem in _of_key(record, _given(record["asked"])[1])]
    return problems


def _given(asked: dict[str, Any]) -> tuple[Resolver, Resolved]:
    """What a record says was asked, resolved anew."""
    resolver, (question, others) = Resolver(), asked_of(asked)
    given = resolver.resolve(question)
    return resolver, replace(given, graphs=(*given.graphs, *others), request=Request.of(**asked["options"]))


def _of_key(record: Record, given: Resolved) -> list[str]:
    """Whether a record has the key of what was asked."""
    return differences("$.cell", key_of(given, record["asked"]["seed"]), record["cell"])


class _Check:
    """What of a record does not hold, and what could not be held against anything."""

    def __init__(self, record: Record) -> None:
        self.record, self.verdict, self.value = record, "not solved again", math.inf
        self.problems, self.unchecked = list[str](), list(NOT_CHECKED)
        try:
            self._judge()
        except _UNREADABLE as error:
            self.problems.append(f"$: found {type(error).__name__} ({error}), expected what a sweep writes")

    def _judge(self) -> None:
        """Hold what does not take a search against what was asked."""
        record = self.record
        if (asked := record.get("asked")) is None:
            self.unchecked.append("$.cell, $.asked, $.mapping: what was asked is not in the file")
            self.problems += ["$.asked: missing beside a mapping"] * ("mapping" in record)
            return
        resolver, given = _given(asked)
        self.problems += _of_key(record, given)
        fitted = assumed_again(given.assumptions, given.system, given.system).calibration
        calibration = differences("$.calibrated_by", fitted and fitted.stamp, record.get("calibrated_by"))
        (self.unchecked if fitted is None else self.problems).extend(calibration)
        figures = record.get("figures")
        if figures is None:
            refused = "infeasible" if record["message"].startswith("infeasible: ") else "failed"
            if record["status"] not in (refused, "no_solution"):
                self.problems.append(f"$.status: the file says {record['status']!r} without a mapping")
            return
        graphs = given.graphs if given.largest is None else resolver.at_batch(given, figures["batch"])
        graph = {(drawn.microbatch, drawn.variant): drawn for drawn in graphs}[
            figures["microbatch"], record.get("variant")
        ]
        setting = Setting.resolved(graph, given.system, given.request.assuming(given.assumptions))
        mapping = Mapping.from_data(record["mapping"], "$.mapping")
        score, problems = judged_again("$.mapping", mapping, setting, given.request)
        self.problems += problems
        if score is None:
            return
        self.value = score.step_time_s
        bound, level_bound = (min(self.value, figures[name]) for name in ("bound_s", "level_bound_s"))
        gap, level_gap = proven_gap(self.value, bound), proven_gap(self.value, level_bound)
        again = {"gap": gap, "bound_s": bound, "level_gap": level_gap, "level_bound_s": level_bound}
        again |= judged_figures(score, mapping.plan, setting.graph, given.system)
        self.problems += differences("$.figures", again, figures)
        status = status_of(gap, level_gap, given.request.gap, ())
        later = given.request.top > 1 and SOLVED.index(record["status"]) > SOLVED.index(status)
        problems = differences("$.status", status, record["status"])
        # of the next best mappings, which the record does not keep, more may be open
        (self.unchecked if later else self.problems).extend(problems)

    def solve(self, seconds: float) -> None:
        """Solve the cell again, within its own limits, and hold what is claimed of all mappings against that."""
        record, figures, value = self.record, self.record.get("figures"), self.value
        if "asked" not in record or record["status"] == "no_solution" or seconds <= 0.0:
            claims = ("$.status", "$.message") if figures is None else (f"$.figures.{name}" for name in _BOUNDS)
            self.unchecked.append(f"{', '.join(claims)}: it was not solved again")
            return
        own = Request.of(**record["asked"]["options"])
        gap = own.gap if figures is None else min(own.gap, figures["level_gap"])
        limits = {"time_limit": min(own.time_limit, seconds), "gap": gap, "sensitivity": False, "heat": "ignore"}
        try:
            again = bounded(*asked_of(record["asked"], **limits))
        except DfoptError as error:
            again = Bounded("failed", math.inf, refused=str(error))
        same = again.result is None and again.refused == str(record.get("message")).removeprefix("infeasible: ")
        if figures is None and same:
            self.verdict = f"{record['status']} again"
        elif figures is None:
            wrong = record["status"] == "infeasible" and again.status != "no_solution"
            what = f"$.message: solved again it is {again.status}{': ' * bool(again.refused)}{again.refused}"
            (self.problems if wrong and record["dfopt"] == __version__ else self.unchecked).append(what)
        elif again.result is not None and again.result.graph.batch != figures["batch"]:
            self.unchecked.append(f"$.figures.batch: {again.result.graph.batch} is the largest that was found again")
        else:
            self._bounded(figures, again, value)

    def _bounded(self, figures: dict[str, Any], again: Bounded, value: float) -> None:
        """Note a bound of a record that is above a mapping, or above the bound of the repeated solve."""
        low, level, least = again.bound, again.bound, value
        if again.result is not None:
            level, least = again.result.level_bound, min(value, again.result.value)
        if value < low * (1 - 2 * PROOF):
            self.problems.append(f"$.figures.step_time_s: nothing that was asked for is below {low!r} {again.refused}")
        if figures["bound_s"] > least * (1 + 2 * PROOF):
            self.problems.append(f"$.figures.bound_s: the file says {figures['bound_s']!r}, a mapping takes {least!r}")
        for name, shown in (("bound_s", low), ("level_bound_s", level)):
            if figures[name] > shown * (1 + 2 * PROOF):
                self.unchecked.append(f"$.figures.{name}: only {shown!r} was shown again")
        gap, level_gap = (rounded(1 - min(shown, value) / value) for shown in (low, level))
        self.verdict = words_of(gap, level_gap)
