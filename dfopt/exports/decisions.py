"""What a result decides about a training step, in the field's words: one record that every tool's table reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dfopt.documents.architecture import Architecture
from dfopt.documents.dtypes import Trained
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping as Mapped
from dfopt.documents.mapping import Sharding
from dfopt.documents.placement import Item
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.saved import type_of_weights
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import refuse
from dfopt.exports.sizes import ModelSizes, Unlike, sizes_of
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.physics.overlap import hides_weights
from dfopt.workloads.recompute import ATTENTION

_RECOMPUTE: Final = "recompute: "
_WHEN: Final = {"hidden": "hidden", "exposed": "exposed", "interleaved": "behind other chunks of layers"}


@dataclass(frozen=True)
class RunDecisions:
    """Decisions of a mapping in the vocabulary of training tools; ``words`` has all of them as text.

    Samples of a microbatch and of a batch; ``data`` is the number of replicas with different samples, including chips
    of the second axis if these have different samples. ``recompute`` is a value of
    :data:`dfopt.workloads.recompute.Recompute`, ``every`` the number of layers per checkpoint, ``recomputed`` the
    number of layers of a stage that use the first of its two values, ``stages`` the layers of the first stage, of each
    one in the middle and of the last, if the plan states them; ``replicas`` is the number of groups of replicas that
    partition states separately, ``away`` the items in slower memories of the chips. Types are those of `Dtypes`:
    ``held`` of accumulated gradients, ``reduced`` of gradients that replicas reduce, ``saved`` of converted inputs that
    products save; those of main weights and moments are None if the graph does not state them.
    """

    sizes: ModelSizes | None
    architecture: Architecture
    chips: int
    tensor: int
    sequence_parallel: bool
    tensor_overlap: str
    gradient_overlap: bool
    parameter_overlap: bool
    sends_behind: bool
    sends_in_parts: bool
    pipeline: int
    virtual: int
    layers_per_stage: int
    stages: tuple[int, int, int] | None
    even: bool
    data: int
    context: int
    expert: int
    microbatch: int
    microbatches: int
    batch: int
    gpipe: bool
    recompute: str
    every: int
    recomputed: int
    one_attention: bool
    zero: int
    away: tuple[Item, ...]
    replicas: int
    weights: str
    operands: str
    saved: str
    products: str
    held: str
    reduced: str
    main_weights: str
    moments: str
    words: Mapping[str, str]


NAMES: Final[Mapping[str, str]] = load_strict(Path(__file__).with_suffix(".yaml"))
"""Decisions, in the order in which they are told, and what each is."""
TRAINED: Final = ("model", "vocabulary", "norms and biases", "batch", "optimizer", "precision", "gradients", "products")
"""Decisions that say which model is trained, and how exactly."""
OWN: Final = ("partitions", "tiles", "network dims", "overlap")
"""Decisions that every tool makes by itself."""


def decisions_of(result: Result, path: str) -> RunDecisions:
    """Decisions of a result's mapping.

    Raises
    ------
    DocumentError
        If its graph has no training step; ``path`` is the result's.
    """
    graph, plan = result.graph, result.plan
    if not graph.trains or not any(kernel.op == "weight_update" for kernel in graph.kernels):
        message = f"found a result of {graph.name}, which trains nothing, expected one of a training step"
        refuse(path, message, "solve the graph with --param mode=training")
    try:
        sizes, unlike = sizes_of(graph), ""
    except Unlike as error:
        sizes, unlike = None, str(error)
    by_tokens, odd = _shardings(graph, result.mapping, plan.shards)
    context, expert, elsewhere = _second_axis(plan)
    copies = plan.members if _by_samples(plan) else 1
    stages, (recompute, every) = plan.stage_layers if plan.uneven else None, _recompute(graph)
    layers = plan.layers_per_stage * plan.stages
    if stages:
        layers = stages[0] + stages[1] * (plan.stages - 2) + stages[2]
    weights, operands, _ = _types(graph)
    way = result.assumptions.hiding(plan.tensor_overlap).tensor_overlap
    decisions = RunDecisions(
        sizes=sizes,
        architecture=graph.architecture or Architecture(),
        chips=plan.shards * plan.members * plan.stages * plan.copies,
        tensor=plan.shards,
        sequence_parallel=by_tokens,
        tensor_overlap=(way or "") if plan.shards > 1 else "",
        gradient_overlap=result.hides_gradients,
        parameter_overlap=hides_weights(result.assumptions, graph, plan),
        sends_behind=plan.stages > 1 and result.assumptions.hides_hops_in(plan.interleave),
        sends_in_parts=plan.stages > 1 and result.assumptions.point_to_point_parts is not None,
        pipeline=plan.stages,
        virtual=plan.interleave,
        layers_per_stage=plan.layers_per_stage * every,
        stages=None if stages is None else (stages[0] * every, stages[1] * every, stages[2] * every),
        even=layers == graph.repeat,
        data=plan.copies * copies,
        context=context,
        expert=expert,
        microbatch=graph.microbatch // copies,
        microbatches=plan.microbatches,
        batch=graph.batch,
        gpipe=_gpipe(result),
        recompute=recompute,
        every=every,
        recomputed=plan.recomputed or 0,
        one_attention=_one_attention(graph, result.mapping),
        zero=plan.zero or 0,
        away=tuple(item for item, name in _away(plan) if name != result.system.chip.fastest_tier),
        replicas=plan.hybrid.replicas if plan.hybrid else 1,
        weights=weights,
        operands=operands,
        saved=_saved(graph),
        **_trained(graph),
        words={},
    )
    words = {"model": unlike or _model(sizes), "shardings": odd, "second axis": elsewhere, **_words(result, decisions)}
    return replace(decisions, words={name: words[name] for name in NAMES if words[name]})


def _words(result: Result, decided: RunDecisions) -> dict[str, str]:
    """Decisions in words, nothing for those that are idle; all but the three that need more than what is decided."""
    graph, mapping, plan, sizes = result.graph, result.mapping, result.plan, decided.sizes
    rotary = sizes is not None and sizes.rotary
    unknown = [name for name in decided.architecture.unknown if name != "rotary base" or rotary]
    types = f"main weights in {decided.main_weights}, moments in {decided.moments}"
    return {
        "vocabulary": str(sizes.vocab) if sizes and sizes.vocab else "logits are not drawn",
        "norms and biases": f"not in the graph: {', '.join(unknown)}" if unknown else "",
        "mask": _mask(graph),
        "batch": f"{graph.batch} samples, {graph.microbatch} in a microbatch",
        "precision": _types(graph)[2],
        "gradients": f"held in {decided.held}, added up in {decided.reduced}",
        "optimizer": types if decided.moments else "",
        "products": decided.products,
        "tensor": _degree(decided.tensor),
        "sequence parallelism": "used" if decided.sequence_parallel else "",
        "tensor overlap": decided.tensor_overlap,
        "pipeline": _degree(decided.pipeline),
        "stages": _stages(plan, decided.even),
        "schedule": "all forward passes first (GPipe)" if decided.gpipe else "",
        "virtual stages": _degree(decided.virtual),
        "sending on": _sending(result),
        "data": _degree(decided.data),
        "zero": _zero(plan),
        "gradient overlap": "behind the backward pass" if decided.gradient_overlap else "",
        "weight overlap": "behind the forward pass" if decided.parameter_overlap else "",
        "context": _degree(decided.context),
        "expert": _degree(decided.expert),
        "recomputation": _recomputation(graph, plan),
        "attention": "fused" if decided.one_attention else "",
        "partitions": _partitions(mapping),
        "tiles": f"{mapping.tile_count} tiles of the streamed axis, compute tiles by kernel",
        "network dims": plan.label,
        "placement": plan.placement.label if plan.placement is not None and plan.placement.elsewhere else "",
        "two microbatches at once": "yes" if plan.two_batch_overlap else "",
        "clocks": "below the nominal frequency, or pauses" if mapping.clocks or mapping.pauses else "",
        "overlap": f"left as it is; priced with overlap: {result.assumptions.overlap}",
    }


def _away(plan: Plan) -> list[tuple[Item, str]]:
    return [] if plan.placement is None else list(plan.placement.elsewhere.items())


def _model(sizes: ModelSizes | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in vars(sizes).items() if value) if sizes else ""


def _degree(degree: int) -> str:
    return str(degree) if degree > 1 else ""


def _shardings(graph: Graph, mapping: Mapped, tensor: int) -> tuple[bool, str]:
    """Whether Megatron-LM's sequence parallelism comes nearest, and where the mapping differs from that nonetheless."""
    if tensor == 1:
        return False, ""
    schemes: dict[str, Sharding] = {kernel.name: kernel.sharding for kernel in mapping.kernels}
    ways = {}
    for by_tokens in (False, True):
        theirs = megatron_shardings(graph, tensor, by_tokens)
        ways[by_tokens] = {name: scheme for name, scheme in theirs.items() if schemes[name] != scheme}
    nearest = len(ways[True]) < len(ways[False])
    kinds: dict[str, list[str]] = {}
    for name, scheme in ways[nearest].items():
        kinds.setdefault(f"{schemes[name]}, not {scheme}", []).append(name)
    return nearest, "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())


def _by_samples(plan: Plan) -> bool:
    """Whether chips of the second axis have sequences of their own."""
    return plan.modules is not None and plan.modules.stream == "n" and plan.modules.mixer in ("n", None)


def _second_axis(plan: Plan) -> tuple[int, int, str]:
    """Context-parallel and expert-parallel chips, and what of the second axis is neither."""
    if plan.modules is None or plan.members == 1:
        return 1, 1, ""
    schemes = plan.modules.schemes
    by_tokens = schemes["stream"] == "context" and schemes.get("mixer") == "context"
    usual = {"stream": schemes["stream"], "mixer": schemes["stream"], "dense": "n", "ends": "n"}
    if not by_tokens and not _by_samples(plan):
        return 1, 1, plan.modules.label
    experts = schemes.get("experts", "n")
    odd = {name: scheme for name, scheme in schemes.items() if scheme != usual.get(name, "n")}
    odd.pop("experts", None)
    if experts not in ("n", "outer"):
        odd["experts"] = experts
    others = "; ".join(f"{name}: {scheme}" for name, scheme in odd.items())
    return plan.members if by_tokens else 1, plan.members if experts == "outer" else 1, others


def _recompute(graph: Graph) -> tuple[str, int]:
    """What is computed again, and how many layers there are behind a checkpoint."""
    variant = graph.variant or ""
    if not variant.startswith(_RECOMPUTE):
        return "none", 1
    which, _, every = variant.removeprefix(_RECOMPUTE).partition(", every ")
    return which, int(every.split(" ")[0]) if every else 1


def _sending(result: Result) -> str:
    assumptions = result.assumptions
    ways = {"scattered": "in parts that are gathered, where that is faster", "calculon": "in parts that are gathered"}
    parts = ways.get(assumptions.point_to_point_parts or "", "")
    words = ", ".join(filter(None, (parts, _WHEN.get(assumptions.point_to_point_overlap or ""))))
    return words if result.plan.stages > 1 else ""


def _zero(plan: Plan) -> str:
    groups = f", each of {plan.hybrid.replicas} groups of copies by itself" if plan.hybrid else ""
    return f"{plan.zero}{groups}" if plan.zero else ""


def _recomputation(graph: Graph, plan: Plan) -> str:
    method, every = _recompute(graph)
    if not plan.recomputed:
        behind = f", {every} layers behind each checkpoint" if every > 1 else ""
        return f"{method}{behind}" if method != "none" else ""
    some, _, others = method.partition("/")
    return f"{some} in {plan.recomputed} layers of a stage, {others} in the others"


def _one_attention(graph: Graph, mapping: Mapped) -> bool:
    """Whether scores, softmax and what they weigh up share a partition in the forward pass."""
    roles = (*ATTENTION, "context")
    inside = {kernel.name for kernel in graph.kernels if kernel.role in roles and kernel.pass_ == "forward"}
    where = {(kernel.stage, kernel.partition) for kernel in mapping.kernels if kernel.name in inside}
    layers = _recompute(graph)[1]  # drawn one after another
    return bool(inside) and len(where) == layers * len({stage for stage, _ in where})


def _gpipe(result: Result) -> bool:
    return result.plan.stages > 1 and result.assumptions.schedule == "gpipe"


def _mask(graph: Graph) -> str:
    shares = {kernel.density or 1.0 for kernel in graph.kernels if kernel.role == "scores"}
    return ", ".join("all of the scores" if share == 1 else f"{share:.3g} of them" for share in sorted(shares))


def _types(graph: Graph) -> tuple[str, str, str]:
    """Types of weights and of operands, and all in words."""
    if graph.dtypes is None:
        weights = {2: "bf16", 4: "fp32"}.get(graph.word_bytes, "")
        note = ", which bf16 has" if weights == "bf16" else ""
        return weights, weights, f"{graph.word_bytes} bytes for every element{note}"
    types = graph.dtypes
    operands = types.operands or types.weights
    uniform = types.of("experts") == types.weights == types.activations
    words = ", ".join(f"{name} {value}" for name, value in types.model_dump(exclude_none=True).items())
    return types.weights if uniform else "", operands, words


def _saved(graph: Graph) -> str:
    """The type in which products keep what they take, if not as it is given."""
    types = graph.dtypes
    return "" if types is None or types.saved in (None, types.activations) else str(types.saved)


def _trained(graph: Graph) -> dict[str, str]:
    """Types of gradients, main weights and moments, and in which products compute, if not in that of their operands."""
    own = graph.dtypes.activations if graph.dtypes is not None else type_of_weights(graph)
    types = graph.trained or Trained()
    return {
        "products": (graph.dtypes.products if graph.dtypes is not None else None) or "",
        "held": graph.main_gradients or own,
        "reduced": types.reduced or own,
        "main_weights": types.main_weights or ("fp32" if types.moments else ""),
        "moments": types.moments or ("fp32" if types.main_weights else ""),
    }


def _stages(plan: Plan, even: bool) -> str:
    if plan.uneven:
        first, most, last = plan.stage_layers
        return f"{first} in the first, {'' if even else 'at most '}{most} in each one in the middle, {last} in the last"
    return "" if even else f"at most {plan.layers_per_stage} in each, fewer in some"


def _partitions(mapping: Mapped) -> str:
    held = Counter((kernel.stage, kernel.partition) for kernel in mapping.kernels)
    fused, blocks = sum(1 for count in held.values() if count > 1), len(mapping.token_blocks or ())
    words = [f"{fused} of {len(held)} partitions hold several kernels"] * bool(fused)
    words += [f"{blocks} of {len(held)} read their weights again for each block of tokens"] * bool(blocks)
    return ", ".join(words)
