"""What was asked, in the first lines of an answer: phase, sequences, tokens, types, chips, efficiency."""

from __future__ import annotations

from typing import Final

from dfopt.documents.assumptions import CHANGED
from dfopt.documents.evaluation import phase_of, segments_of
from dfopt.documents.graph import Graph
from dfopt.show.accuracy import accuracy_words, efficiency_of
from dfopt.show.omissions import JudgedResult, has_experts
from dfopt.show.parts import percent

PHASES: Final = {"forward": "forward pass", "verify": "verification of drafts"}


def batch_words(graph: Graph) -> str:
    """Batch of a graph as text: sequences of a step, and tokens of each.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> batch_words(Graph(name="g", batch=2304, kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=8),)))
    '2,304 samples'
    """
    segments, turns = segments_of(graph), graph.batch // graph.microbatch
    if not segments:
        each = graph.evaluation_tokens.processed / graph.microbatch
        plural = "s" * (graph.batch > 1)
        return f"{graph.batch:,} " + (f"sequence{plural} x {each:,.10g} tokens" if graph.tokens else f"sample{plural}")
    of_all = 1 if len(segments) > 1 else turns
    parts = [
        f"{of_all * count:,} sequence{'s' * (of_all * count > 1)} x {new:,} token{'s' * (new > 1)}"
        + (f" behind {cached:,} cached" if cached else "")
        for (count, new), cached in segments.items()
    ]
    return f"{turns:,} x ({', '.join(parts)})" if len(segments) > 1 else parts[0]


def _types(graph: Graph) -> str:
    """The types of weights and activations, or the bits of an element where none are stated."""
    if graph.dtypes is None:
        return f"{8 * graph.word_bytes} bits"
    experts = f"{graph.dtypes.of('experts')} experts, " if has_experts(graph) and graph.dtypes.experts else ""
    return f"{experts}{graph.dtypes.of('weights')} weights, {graph.dtypes.of('activations')} activations"


def short_types(graph: Graph) -> str:
    """Data types of a graph as text, once if weights and activations agree."""
    if graph.dtypes is None:
        return f"{8 * graph.word_bytes} bits"
    types = {graph.dtypes.of("weights"), graph.dtypes.of("activations")}
    types |= {graph.dtypes.of("experts")} if has_experts(graph) else set()
    return next(iter(types)) if len(types) == 1 else _types(graph)


def asked_facts(answer: JudgedResult) -> list[tuple[str, str]]:
    """Label and text of the question of an answer, and of the error of such answers against measurements."""
    graph, system, assumptions = answer.graph, answer.system, answer.assumptions
    kind, rate = efficiency_of(answer), assumptions.compute_utilization
    efficiency = f"{kind} ({assumptions.profile.replace(CHANGED, ', changed')})"
    if kind == "ideal" and rate is not None:
        efficiency += f": compute at {percent(rate)} of peak, no other losses"
    phase = PHASES.get(phase_of(graph), phase_of(graph))
    return [
        ("question", f"{graph.name}: {phase}, {batch_words(graph)}, {_types(graph)}"),
        ("system", f"{system.chips:,} x {system.chip.name} ({system.name})"),
        ("efficiency", efficiency),
        ("accuracy", accuracy_words(answer)),
    ]
