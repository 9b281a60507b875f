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
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.question import Question
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.documents.tokens import asked, sequences_of
from dfopt.errors import DfoptError, Infeasible, NoSolution, PlanError
from dfopt.processes.packing import unpack

__all__ = ["Bounded", "bounded", "main", "solve"]

_STATUS = {Infeasible: "infeasible", NoSolution: "no_solution"}
# Of the score: what the frame needs. The whole result is written only where it was asked for.
_FIGURES = (
    "step_time_s", "layer_time_s", "pipeline_fill_s", "point_to_point_s", "gradient_reduction_s", "flop_per_step",
    "utilization", "samples_per_s", "tokens_per_s", "bound_by", "compute_share", "memory_share", "network_share",
)  # fmt: skip
# Of a chip that is a stack of dies: column and field; systems without one have no such keys.
_PHYSICAL = {
    "physical_step_time_s": "step_time_s", "frequency_share": "frequency", "logic_max_c": "logic_max_c",
    "dram_max_c": "dram_max_c", "stack_power_w": "power_w", "stack_bandwidth_bytes_per_s": "dram_bandwidth_b_per_s",
    "refresh_rate": "refresh_rate", "stack_energy_per_step_j": "energy_per_step_j",
    "stack_energy_per_token_j": "energy_per_token_j",
}  # fmt: skip


def solve(task: Mapping[str, Any]) -> dict[str, Any]:
    """Solve one cell; whatever goes wrong becomes a record too.

    A task has ``cell`` (its key), ``graph``, ``system`` and ``assumptions``, packed or as the data of documents,
    ``options`` and ``seed`` for :func:`dfopt.optimize`, and ``keep``: whether the record has the whole ``result``. A
    record has ``cell``, ``status``, ``seconds``, ``dfopt``, and either ``figures`` or ``message``.

    Examples
    --------
    >>> solve({"cell": "c0ffee", "graph": {}})["status"]
    'failed'
    """
    from dfopt import __version__

    began = time.perf_counter()
    record: dict[str, Any] = {"cell": task["cell"]}
    try:
        result = _answered(task)
        record |= {"status": result.status, "figures": _figures(result)}
        if task.get("keep"):
            record["result"] = result.to_data()
    except Exception as error:  # a bug or a lack of memory in one cell must not end the others
        status = next((word for kind, word in _STATUS.items() if isinstance(error, kind)), "failed")
        message = str(error) if isinstance(error, DfoptError) else f"{type(error).__name__}: {error}"
        record |= {"status": status, "message": message}
    return {**record, "seconds": time.perf_counter() - began, "dfopt": __version__}


def _answered(task: Mapping[str, Any]) -> Result:
    from dfopt.search import answer, optimize

    system = unpack(System, task["system"], "system")
    assumptions = unpack(Assumptions, task["assumptions"], "assumptions")
    if "largest" in task:
        question = Question.from_data(task["largest"]).changed(options={"seed": task["seed"]})
        documents = {"system": system, "assumptions": assumptions, "set": {}}  # the changes are in them
        return answer(question.model_copy(update=documents), folder=Path(task["folder"])).result
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in task["options"].items()
    }
    variants = [unpack(Graph, text, "graph") for text in task.get("variants", ())]
    graph = unpack(Graph, task["graph"], "graph")
    return optimize(graph, system, assumptions=assumptions, variants=variants, **{**options, "seed": task["seed"]})


class Bounded(NamedTuple):
    """What a solve shows: what it rules out counts as much as what it finds.

    ``bound``: no mapping is below it; infinite where no mapping is what the request allows, and ``refused`` says why.
    """

    status: str
    bound: float
    result: Result | None = None
    refused: str = ""


def bounded(graph: Graph, system: System, request: Request, assumptions: Assumptions) -> Bounded:
    """Solve, and take what is infeasible or out of time for an answer too."""
    from dfopt.search import optimize

    try:
        result = optimize(graph, system, request, assumptions=assumptions)
    except (Infeasible, PlanError) as error:
        return Bounded("infeasible", math.inf, refused=str(error).removeprefix("infeasible: "))
    except NoSolution as error:
        return Bounded("no_solution", error.bound)
    return Bounded(result.status, result.bound, result)


def _bounded(task: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a task with a ``request``, as `Bounded` has it; whatever goes wrong is its ``message``."""
    answer: dict[str, Any] = {"cell": task["cell"]}
    try:
        graph, system = unpack(Graph, task["graph"], "graph"), unpack(System, task["system"], "system")
        request = Request.model_validate(task["request"])
        told = bounded(graph, system, request, unpack(Assumptions, task["assumptions"], "assumptions"))
    except Exception as error:  # told where it was asked for
        message = str(error) if isinstance(error, DfoptError) else f"{type(error).__name__}: {error}"
        return {**answer, "status": "failed", "message": message}
    bound = told.bound if math.isfinite(told.bound) else None
    result = None if told.result is None else told.result.to_data()
    return {**answer, "status": told.status, "bound": bound, "result": result, "refused": told.refused}


def _figures(result: Result) -> dict[str, Any]:
    score, physical = result.score, result.score.physical
    slowest = max(score.stages, key=lambda one: (one.time_s, one.layers * one.layer_time_s + one.once_time_s))
    mine = [part for part in score.partitions if part.stage in slowest.holds]
    found = {
        "gap": result.gap,
        "bound_s": result.bound,
        "level_gap": result.level_gap,
        "level_bound_s": result.level_bound,
        "plan": result.plan.to_data(),
        "partitions": len(mine),
        "layer_compute_s": sum(part.compute_s for part in mine),
        "layer_memory_s": sum(part.memory_s for part in mine),
        "layer_network_s": sum(part.network_s for part in mine),
        "dram_used_bytes": max(stage.dram_bytes for stage in score.stages),
        **{name: getattr(score, name) for name in _FIGURES},
        **asked(result.graph),
        "tokens_per_s_per_chip": score.tokens_per_s / result.system.chips,
        "tokens_per_s_per_sequence": (score.produced_tokens_per_s or score.tokens_per_s) / sequences_of(result.graph),
        **({} if (made := score.produced_tokens_per_s) is None else {"produced_tokens_per_s": made}),
    }
    if physical is not None:
        found |= {column: getattr(physical, name) for column, name in _PHYSICAL.items()}
        found["limits_broken"] = ", ".join(physical.limits_broken) or None
    return found


def main() -> None:
    """Answer the lines of stdin until it ends; then leave at once, whatever is being solved."""
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
        answer = _bounded(task) if "request" in task else solve(task)
        answers.write(json.dumps(answer, allow_nan=False) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
