"""How large a transformer is, read off the kernels of its graph by their roles and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dfopt.documents.graph import Graph, Kernel


class Unlike(Exception):
    """Raised for a graph that is not made of equal transformer layers; the message says why."""


@dataclass(frozen=True)
class ModelSizes:
    """Model sizes in the vocabulary of training tools.

    ``ffn`` is inside one expert, where there are some.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    seq: int
    gated: bool
    rotary: bool
    attention_dropout: bool
    hidden_dropout: bool
    vocab: int | None = None
    experts: int | None = None
    chosen: int = 1


def sizes_of(graph: Graph) -> ModelSizes:
    """Sizes of a model with equal transformer layers.

    Raises
    ------
    Unlike
        If layers differ, have no attention over all tokens, or have a part that these sizes do not say.

    Examples
    --------
    >>> from dfopt.workloads import load_graph
    >>> sizes_of(load_graph("llama-3.1-405b", mode="training", ends=True))
    ModelSizes(layers=126, hidden=16384, heads=128, kv_heads=8, head_dim=128, ffn=53248, seq=8192, gated=True,
          rotary=True, attention_dropout=False, hidden_dropout=False, vocab=128256, experts=None, chosen=1)
    """
    forward = [kernel for kernel in graph.kernels if kernel.pass_ == "forward"]
    scores = [kernel for kernel in forward if kernel.role == "scores"]
    ups = [kernel for kernel in forward if kernel.role == "up"]
    if not scores or not ups:
        raise Unlike("no attention, or no feed-forward, whose role is told")
    if any(kernel.role == "latent" for kernel in forward):
        raise Unlike("latent attention")
    layers = sum(map(graph.times_of, scores))
    if layers != sum(map(graph.times_of, ups)):
        raise Unlike(f"{layers} times attention, and {sum(map(graph.times_of, ups))} times a feed-forward")
    samples = graph.microbatch
    heads = _the_only((kernel.matrices for kernel in scores), "heads")
    if heads % samples:
        raise Unlike(f"{heads} matrices of scores in {samples} samples")
    head_dim = _the_only((kernel.k for kernel in scores), "sizes of a head")
    keys = [_behind(graph, kernel, 2) for kernel in scores]
    paths = [path for kernel in scores for operand in (1, 2) for path in (_behind(graph, kernel, operand)[1],)]
    experts = ups[0].experts
    if any(kernel.experts != experts for kernel in ups) or (experts is not None and experts.always):
        raise Unlike("experts that are not all routed alike")
    chosen = 1 if experts is None else experts.chosen
    roles = {kernel.role for kernel in forward}
    masked = any(kernel.mask_bytes for kernel in graph.kernels if kernel.role == "residual")
    ends = [kernel for kernel in forward if kernel.module == "ends" and kernel.op == "gemm"]
    return ModelSizes(
        layers=layers,
        hidden=_the_only((kernel.m for kernel in forward if kernel.role == "residual"), "residual streams"),
        heads=heads // samples,
        kv_heads=_the_only((source.outer * source.m for source, _ in keys), "sizes of keys") // head_dim,
        head_dim=head_dim,
        ffn=_the_only((kernel.m for kernel in ups), "sizes of a feed-forward") // chosen,
        seq=_the_only((kernel.n for kernel in scores), "lengths of a sequence"),
        gated="gate" in roles,
        rotary=bool(_the_only(paths, "ways to queries and keys")),
        attention_dropout="scores_dropout" in roles,
        hidden_dropout="dropout" in roles or masked,
        vocab=_the_only((kernel.m for kernel in ends), "vocabularies") if ends else None,
        experts=None if experts is None else experts.count,
        chosen=chosen,
    )


def _the_only(values: Iterable[int], what: str) -> int:
    distinct = set(values)
    if len(distinct) != 1:
        raise Unlike(f"{what}: {', '.join(map(str, sorted(distinct))) or 'none'}")
    return distinct.pop()


def _behind(graph: Graph, scores: Kernel, operand: int) -> tuple[Kernel, int]:
    """The product that an operand of the scores is made by, and the elementwise kernels without a role in between."""
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    names = [t.src for t in graph.tensors if t.dst == scores.name and t.operand == operand]
    between = 0
    while len(names) == 1 and kernels[names[0]].op == "elementwise":
        kernel = kernels[names[0]]
        if kernel.role is not None:
            raise Unlike(f"a kernel of role {kernel.role} in front of the scores")
        between += 1
        names = [t.src for t in graph.tensors if t.dst == kernel.name]
    if len(names) != 1 or kernels[names[0]].op != "gemm" or between > 1:
        raise Unlike(f"operand {operand} of {scores.name!r} is no projection of every token")
    return kernels[names[0]], between
