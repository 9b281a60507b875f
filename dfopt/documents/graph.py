"""The workload: kernels and the tensors between them, as a document.

A graph file is written in one of two ways: explicit ``kernels`` and ``tensors``, or ``workload: NAME`` with
``parameters``, which a builder in :mod:`dfopt.workloads` expands. Both end as the same :class:`Graph`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from dfopt.documents.architecture import Architecture
from dfopt.documents.base import Named
from dfopt.documents.communication import CollectiveKind as CollectiveKind
from dfopt.documents.communication import Communication as Communication
from dfopt.documents.dtypes import Dtype, Dtypes, Trained, Words, check_word_bytes, words_of
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.kernel import Kernel as Kernel
from dfopt.documents.kernel import SequenceState as SequenceState
from dfopt.documents.kernel import Tensor as Tensor
from dfopt.documents.kernel import is_training
from dfopt.documents.passes import with_passes
from dfopt.documents.sections import LAYER, Layers, Section, add_repeat, layers_of, of_version_1, spelled_out
from dfopt.documents.structure import structure_issues
from dfopt.documents.tokens import Tokens, of_evaluation
from dfopt.documents.wiring import Input as Input
from dfopt.documents.wiring import Output as Output
from dfopt.documents.wiring import Wiring
from dfopt.errors import GraphError


class Graph(Named):
    """A workload: a DAG of kernels, evaluated once per microbatch.

    With ``sections`` the kernels are drawn once for each kind of layer (``Kernel.layer``), and evaluated as often as
    the model has layers of it. Kinds are separate DAGs without tensors between them: ``carried`` tensors go from a
    layer to the next one, of any kind, and all other data between kinds goes through DRAM. ``repeat: N`` is short for
    one section of one layer.

    Attributes
    ----------
    sections : e.g. [{layers: [dense], repeat: 3}, {layers: [moe], repeat: 58}]
        Layers of the model in order, as patterns that repeat. ``repeat: N`` is short for one section of N equal layers.
        None: the kernels are the whole model.
    word_bytes : B, e.g. 2
        Size of one element of all data, in a graph without ``dtypes``.
    dtypes : e.g. {weights: fp8, kv: fp8}
        Data types of weights, activations, caches and logits. Classes that you leave out have bf16. None: all elements
        have ``word_bytes``.
    main_gradients : e.g. fp32
        Data type in which training stores the gradients of weights. None: the type of activations.
    trained : e.g. {reduced: fp32, moments: fp32}
        Data types of reduced gradients, main weights and optimizer moments in training. None: as the activations and
        the assumptions say.
    architecture : e.g. {norm: rmsnorm, bias: none}
        Facts about the model that other tools' files need and that no cost depends on. None: unknown.
    microbatch : samples, e.g. 4
        Samples that one evaluation of the graph processes.
    batch : samples, e.g. 2304
        Samples of one step, over all data-parallel replicas.
    tokens : e.g. {processed: 2048}
        Tokens that one evaluation processes and, in serving, produces. None: one token per sample.
    variant : e.g. "recompute: attention"
        Name of this way to compute the model, where dfopt searches several, such as ways of activation recomputation.
        None: there is only one.
    recomputed : e.g. {layer: layer_recomputed}
        For each kind of layer, the kind that computes the same with activation recomputation. A plan then chooses how
        many layers of a stage use it. None: a plan has no such choice.
    kernels : e.g. [{name: FFN0, op: gemm, m: 4096, k: 1024, n: 2048}]
        Kernels of the workload, each kind of layer once.
    tensors : e.g. [{src: Q, dst: QK}]
        Tensors between kernels of the same kind of layer.
    carried : e.g. [{src: Add_1, dst: Norm_0}]
        Tensors that one layer hands to the next one. At stage boundaries they pass between pipeline stages.
    inputs : e.g. [{dst: Q}]
        Tensors that kernels read from DRAM. An empty list means none. None: all operands that no other kernel provides,
        except for kernels that state their own DRAM traffic.
    outputs : e.g. [{src: Add_1}]
        Tensors that kernels write to DRAM. An empty list means none. None: all outputs that no other kernel takes,
        except for weight updates, accumulating kernels and kernels that state their own DRAM traffic.
    """

    SCHEMA: ClassVar[str] = "dfopt/graph/3"
    EARLIER: ClassVar[tuple[str, ...]] = ("dfopt/graph/1", "dfopt/graph/2")
    model_config = ConfigDict(json_schema_extra=add_repeat)

    sections: tuple[Section, ...] | None = Field(default=None, min_length=1, max_length=10000)
    word_bytes: int = Field(default=2, ge=1, le=16)
    dtypes: Dtypes | None = None
    main_gradients: Dtype | None = None
    trained: Trained | None = None
    architecture: Architecture | None = None
    microbatch: int = Field(default=1, ge=1, le=10**9)
    batch: int = Field(default=1, ge=1, le=10**12)
    tokens: Tokens | None = None
    variant: str | None = Field(default=None, max_length=200)
    recomputed: dict[str, str] | None = None
    kernels: tuple[Kernel, ...] = Field(min_length=1, max_length=20000)
    tensors: tuple[Tensor, ...] = Field(default=(), max_length=200000)
    carried: tuple[Tensor, ...] = Field(default=(), max_length=1000)
    inputs: tuple[Input, ...] | None = Field(default=None, max_length=100000)
    outputs: tuple[Output, ...] | None = Field(default=None, max_length=20000)

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, data: Any) -> Any:
        earlier = isinstance(data, dict) and data.get("schema") in cls.EARLIER  # of which `_converted` has this too
        return data if earlier else spelled_out(of_evaluation(data))

    @classmethod
    def _converted(cls, data: dict[str, Any]) -> dict[str, Any]:
        plain = of_version_1(data) if data["schema"] == "dfopt/graph/1" else data
        return dict(spelled_out(of_evaluation(with_passes(plain))))

    @model_validator(mode="after")
    def _is_a_dag(self) -> Self:
        check_word_bytes(self.dtypes, self.word_bytes)
        if problems := list(structure_issues(self.wiring, self.layers, self.sections, self.recomputed)):
            raise GraphError(self.name, problems)
        return self

    @cached_property
    def wiring(self) -> Wiring:
        """Kernels, tensors between them, and inputs and outputs in DRAM."""
        return Wiring(self.kernels, self.tensors, self.carried, self.inputs, self.outputs, self.words)

    def operands(self) -> tuple[int, ...]:
        """For each of ``tensors``, which operand of its consumer it is: 1 (``k x n``) or 2 (``m x k``)."""
        return self.wiring.operands

    def reads(self) -> list[tuple[int, int, float]]:
        """Inputs from DRAM: (kernel position, operand, bytes) of each; do not modify."""
        return self.wiring.reads

    def writes(self) -> list[tuple[int, float]]:
        """Outputs to DRAM: (kernel position, bytes) of each; do not modify."""
        return self.wiring.writes

    def index(self) -> dict[str, int]:
        """Position of each kernel in ``kernels``, by name; do not modify."""
        return self.wiring.index

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """Cache for values that callers compute from this graph alone, by any key."""
        return {}

    def output_bytes(self, name_or_position: str | int) -> float:
        """Bytes of a kernel's whole output before sharding, or of the part that a mask leaves."""
        return self.wiring.output_bytes(name_or_position)

    @property
    def evaluation_tokens(self) -> Tokens:
        """Tokens of one evaluation; a graph that states none has one token for each sample.

        Examples
        --------
        >>> Graph(name="g", microbatch=8, kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=8),)).evaluation_tokens
        Tokens(processed=8, produced=None)
        """
        return self.tokens or Tokens(processed=self.microbatch)

    @cached_property
    def words(self) -> Words:
        """Bytes of an element of every data class."""
        return words_of(self.dtypes, self.word_bytes)

    def bytes_of(self, tensor: Tensor) -> float:
        """Bytes of a tensor: as stated, or the whole output of its source."""
        return self.wiring.bytes_of(tensor)

    def taken(self, tensor: Tensor) -> tuple[str, float, str | None]:
        """Key of a tensor's data (source, bytes, part): equal for tensors stored once under ``fanout: shared``."""
        size = self.bytes_of(tensor)
        return tensor.src, size, None if size == self.output_bytes(tensor.src) else tensor.part

    def elements_of(self, tensor: Tensor) -> float:
        """Number of elements of a tensor."""
        return self.wiring.elements_of(tensor)

    def networkx(self) -> Any:
        """The graph as a :class:`networkx.DiGraph` of kernel names."""
        import networkx as nx  # it takes long to import, and few ask

        drawn: nx.DiGraph[str] = nx.DiGraph()  # given edges at once, it swallows an interrupt and has but some of them
        drawn.add_edges_from((tensor.src, tensor.dst) for tensor in self.tensors)
        drawn.add_nodes_from(kernel.name for kernel in self.kernels)
        return drawn

    def sorter(self) -> TopologicalSorter[str]:
        """A topological sorter of kernel names (networkx takes 0.15 s to import)."""
        waiting = TopologicalSorter[str]()
        for src, dst in dict.fromkeys((tensor.src, tensor.dst) for tensor in self.tensors):
            waiting.add(src)
            waiting.add(dst, src)
        for kernel in self.kernels:
            waiting.add(kernel.name)
        return waiting

    def in_order(self) -> list[str]:
        """Kernel names in topological order; ties in the order of the graph."""
        waiting, place_of = self.sorter(), self.index()
        ready, order = list[int](), list[str]()
        waiting.prepare()
        while waiting:
            for name in waiting.get_ready():
                insort(ready, place_of[name])
            order.append(self.kernels[ready.pop(0)].name)
            waiting.done(order[-1])
        return order

    @cached_property
    def _levels(self) -> dict[str, int]:
        waiting = self.sorter()
        waiting.prepare()
        levels, level = dict[str, int](), 0
        while waiting:
            names = waiting.get_ready()
            levels |= dict.fromkeys(names, level)
            waiting.done(*names)
            level += 1
        return levels

    def levels(self) -> dict[str, int]:
        """Longest-path level of every kernel, sources at 0; do not modify."""
        return self._levels

    @cached_property
    def layers(self) -> Layers:
        """Layers of the model in order; an unrolled graph is one layer."""
        of = {kernel.name: kernel.layer or LAYER for kernel in self.kernels}
        return layers_of(self.sections, {of.get(tensor.src, LAYER) for tensor in self.carried}, self.recomputed)

    @cached_property
    def folded(self) -> bool:
        """Whether the drawn layers stand for all layers of the model, in any pipeline stage."""
        return self.sections is not None

    @property
    def repeat(self) -> int:
        """Number of counted layers, which repeat or pass a tensor on; 1 for an unrolled graph."""
        return self.layers.count

    @classmethod
    def from_networkx(cls, graph: Any, name: str = "", **fields: Any) -> Self:
        """A graph from a :class:`networkx.DiGraph` of kernels.

        Parameters
        ----------
        graph : networkx.DiGraph
            Nodes have the fields of `Kernel` as attributes, such as ``op="gemm", m=64, k=64, n=64``; edges those of
            `Tensor`.
        name : str
            Name of the graph; its own if left out.
        **fields
            Other fields of a graph, such as ``batch``.

        Examples
        --------
        >>> import networkx as nx
        >>> drawn = nx.DiGraph(name="two")
        >>> drawn.add_node("up", op="gemm", m=256, k=64, n=32)
        >>> drawn.add_node("act", op="elementwise", m=256, n=32)
        >>> drawn.add_edge("up", "act")
        >>> Graph.from_networkx(drawn, batch=8)
        Graph(two: 2 kernels, batch 8)
        """
        kernels = [{"name": str(node), **about} for node, about in graph.nodes(data=True)]
        tensors = [{"src": str(src), "dst": str(dst), **about} for src, dst, about in graph.edges(data=True)]
        return cls(name=name or graph.name or "graph", kernels=kernels, tensors=tensors, **fields)

    def kind_of(self, kernel: Kernel) -> int:
        """Kind of layer of a kernel, which is its stage in the mapping; 0 if the graph is not folded."""
        return self.layers.kinds.index(kernel.layer or LAYER) if self.folded else 0

    @cached_property
    def kernels_by_kind(self) -> tuple[tuple[Kernel, ...], ...]:
        """Kernels of every kind of layer; all kernels as one kind for an unrolled graph."""
        kinds: list[list[Kernel]] = [[] for _ in self.layers.kinds]
        for kernel in self.kernels:
            kinds[self.kind_of(kernel)].append(kernel)
        return tuple(map(tuple, kinds))

    @cached_property
    def handed_on(self) -> tuple[tuple[Tensor, ...], ...]:
        """Carried tensors of every kind of counted layers, in the same order for each kind."""
        of = {kernel.name: self.kind_of(kernel) for kernel in self.kernels}
        return tuple(tuple(t for t in self.carried if of[t.src] == kind) for kind in range(self.layers.counted))

    def times_of(self, kernel: Kernel) -> int:
        """Number of evaluations of a kernel in the model for one microbatch, without recomputation by the plan."""
        return self.layers.times(self.kind_of(kernel)) if self.folded else 1

    @cached_property
    def trains(self) -> bool:
        """Whether the graph has a backward pass or weight updates."""
        return is_training(self.kernels)

    def __repr__(self) -> str:
        times = f", {self.repeat} times" if self.repeat > 1 else ""
        return f"Graph({self.name}: {len(self.kernels)} kernels{times}, batch {self.batch})"

    __str__ = __repr__  # of a pydantic model it would be every field of every part

    def _repr_html_(self) -> str:
        tokens = self.evaluation_tokens.processed
        facts = [
            ("graph", f"{self.name}: {self.description}" if self.description else self.name),
            ("size", f"{len(self.kernels)} kernels, {len(self.tensors)} tensors, repeated {self.repeat} times"),
            ("batch", f"{self.batch} samples, {self.microbatch} per evaluation, {tokens} tokens"),
        ]
        rows = [[k.name, k.op, k.pass_, *(str(size) for size in (k.outer, k.m, k.k, k.n))] for k in self.kernels]
        return facts_html(facts) + table_html("Kernels", ("kernel", "op", "pass", "outer", "m", "k", "n"), rows)
