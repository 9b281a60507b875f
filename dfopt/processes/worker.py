"""A process that solves cells: one JSON line in, one record out. ``python -m dfopt.processes.worker`` starts it.

It is a program of its own and no fork of the sweep, so that a script needs no ``__main__`` guard, a crash of a
solver ends nothing but this process, and the sweep can end a solve that hears no limit.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.evaluation import asked, sequences_of
from dfopt.documents.graph import Graph
from dfopt.documents.metrics import METRICS
from dfopt.documents.plan import Plan
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import DfoptError, Infeasible, NoSolution, PlanError
from dfopt.processes.packing import unpack

if TYPE_CHECKING:
    from dfopt.solving.options import Only

_STATUS = {Infeasible: "infeasible", NoSolution: "no_solution"}
# Of the score beside its metrics: what the frame needs. The whole result is written only where it was asked for.
_BOUND_BY = "bound_by", "compute_share", "memory_share", "network_share"
_METRICS = tuple(name for name, metric in METRICS.items() if metric.meaning)
# Of a chip that is a stack of dies: column and field; systems without one have no such keys.
_PHYSICAL = {
    "physical_step_time_s": "step_time_s", "frequency_share": "frequency", "logic_max_c": "logic_max_c",
    "dram_max_c": "dram_max_c", "stack_power_w": "power_w", "stack_bandwidth_bytes_per_s": "dram_bandwidth_b_per_s",
    "refresh_rate": "refresh_rate", "stack_energy_per_step_j": "energy_per_step_j",
    "stack_energy_per_token_j": "energy_per_token_j",
}  # fmt: skip


def solve(task: Mapping[str, Any]) -> dict[str, Any]:
    """Solve one cell and return its record; errors become records too.

    A task has ``cell`` (its key), ``asked`` (the question, see `asked_of`), and ``keep``: whether the record has the
    whole ``result``. A record has ``cell``, ``status``, ``seconds``, ``dfopt``, and either ``figures`` and ``mapping``
    or ``message``.

    Examples
    --------
    >>> solve({"cell": "c0ffee", "asked": {}})["status"]
    'failed'
    """
    from dfopt import __version__
    from dfopt.search import answer

    began = time.perf_counter()
    record: dict[str, Any] = {"cell": task["cell"]}
    try:
        question, others = asked_of(task["asked"])
        result = answer(question, variants=others).result
        record |= {"status": result.status, "figures": _figures(result), "mapping": result.mapping.to_data()}
        record |= {} if result.graph.variant is None else {"variant": result.graph.variant}
        if task.get("keep"):
            record["result"] = result.to_data()
    except Exception as error:  # a bug or a lack of memory in one cell must not end the others
        status = next((word for kind, word in _STATUS.items() if isinstance(error, kind)), "failed")
        message = str(error) if isinstance(error, DfoptError) else f"{type(error).__name__}: {error}"
        record |= {"status": status, "message": message}
    return {**record, "seconds": time.perf_counter() - began, "dfopt": __version__}


def asked_of(data: Mapping[str, Any], **changes: Any) -> tuple[Question, Sequence[Graph]]:
    """Question of a cell with its documents, and the other graphs of its workload.

    Its data are ``system`` and ``assumptions``, ``options`` with ``seed``, and ``graphs``, all packed or the data of
    documents; or, where the largest batch is asked for, the name of the ``graph`` with its ``parameters``.
    """
    (system,), (assumptions,) = (unpack(kind, data.get(kind.__name__.lower(), {})) for kind in (System, Assumptions))
    graph, *others = unpack(Graph, data["graphs"], "graph") if "graphs" in data else (data["graph"],)
    options = Request.of(**{**data["options"], "seed": data["seed"], **changes})
    documents = {"graph": graph, "system": system, "assumptions": assumptions}
    return Question(**documents, parameters=data.get("parameters", {}), options=options), others


class Bounded(NamedTuple):
    """Outcome of a solve: what it rules out counts as much as what it finds.

    Attributes
    ----------
    status : str
        Outcome of the solve.
    bound : float
        Lower bound on every mapping; infinite where no mapping is allowed.
    result : Result, optional
        Best mapping.
    refused : str
        Why no mapping is allowed.
    """

    status: str
    bound: float
    result: Result | None = None
    refused: str = ""

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Build from JSON data of a record or of a process's answer."""
        bound = math.inf if data["bound"] is None else data["bound"]
        return cls(data["status"], bound, data["result"] and Result.from_data(data["result"]), data["refused"])

    def to_data(self) -> dict[str, Any]:
        """Status, bound, result and refusal as JSON data."""
        bound = self.bound if math.isfinite(self.bound) else None
        result = None if self.result is None else self.result.to_data()
        return {"status": self.status, "bound": bound, "result": result, "refused": self.refused}


def bounded(question: Question, others: Sequence[Graph] = (), only: Only | None = None) -> Bounded:
    """Answer a question; infeasibility and time limits are outcomes, not errors.

    Parameters
    ----------
    question, others
        The question, and variants of its graph that are searched together.
    only : Only, optional
        Plans that are searched, see :func:`dfopt.search.optimization.search`. Of others nothing is said.
    """
    from dfopt.search import answer

    try:
        result = answer(question, variants=others, only=only).result
    except (Infeasible, PlanError) as error:
        return Bounded("infeasible", math.inf, refused=str(error).removeprefix("infeasible: "))
    except NoSolution as error:
        return Bounded("no_solution", error.bound)
    return Bounded(result.status, result.bound, result)


def _bounded(task: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a task that is to be ``bounded``, as `Bounded` has it; whatever goes wrong is its ``message``."""
    began, answer = time.perf_counter(), {"cell": task["cell"]}
    try:
        sent = task.get("only")
        only = {(size, way): {Plan.model_validate(plan): low for plan, low in plans} for size, way, plans in sent or ()}
        bounds = bounded(*asked_of(task["asked"]), None if sent is None else only)
    except Exception as error:  # told where it was asked for
        message = str(error) if isinstance(error, DfoptError) else f"{type(error).__name__}: {error}"
        return {**answer, "status": "failed", "message": message, "seconds": time.perf_counter() - began}
    lows = [[low if math.isfinite(low) else None for low in plans.values()] for plans in only.values()]
    return {**answer, **bounds.to_data(), "lows": lows, "seconds": time.perf_counter() - began}


def _figures(result: Result) -> dict[str, Any]:
    bounds = {"gap": result.gap, "bound_s": result.bound}
    bounds |= {"level_gap": result.level_gap, "level_bound_s": result.level_bound}
    return bounds | judged_figures(result.score, result.plan, result.graph, result.system)


def judged_figures(score: Score, plan: Plan, graph: Graph, system: System) -> dict[str, Any]:
    """Figures of a scored mapping, by column of a study's data frame.

    Parameters
    ----------
    score, plan
        The score of the mapping, and its plan.
    graph, system
        The workload and machine that it is for.
    """
    physical = score.physical
    slowest = max(score.stages, key=lambda stage: (stage.time_s, stage.layers * stage.layer_time_s + stage.once_time_s))
    partitions = [part for part in score.partitions if part.stage in slowest.holds]
    figures = {
        "plan": plan.to_data(),
        "partitions": len(partitions),
        "layer_compute_s": sum(part.compute_s for part in partitions),
        "layer_memory_s": sum(part.memory_s for part in partitions),
        "layer_network_s": sum(part.network_s for part in partitions),
        "dram_used_bytes": max(stage.dram_bytes for stage in score.stages),
        **{name: getattr(score, name) for name in _BOUND_BY},
        **{name: value for name in _METRICS if (value := getattr(score, name)) is not None},
        **asked(graph),
        "tokens_per_s_per_chip": score.tokens_per_s / system.chips,
        "tokens_per_s_per_sequence": (score.produced_tokens_per_s or score.tokens_per_s) / sequences_of(graph),
    }
    if physical is not None:
        figures |= {column: getattr(physical, name) for column, name in _PHYSICAL.items()}
        figures["limits_broken"] = ", ".join(physical.limits_broken) or None
    return figures


def main() -> None:
    """Answer tasks from the lines of stdin until it ends, then exit at once."""
    # Answers have a descriptor of their own: what a solver library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    tasks: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            tasks.put(line)
        os._exit(0)  # the sweep has ended or was killed: nobody wants the answer

    threading.Thread(target=listen, daemon=True).start()
    import dfopt.search  # noqa: F401 - a second of work that need not wait for the first task

    while True:
        task = json.loads(tasks.get())
        answer = _bounded(task) if task.get("bounded") else solve(task)
        answers.write(json.dumps(answer, allow_nan=False) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
