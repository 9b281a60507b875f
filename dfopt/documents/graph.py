"""The workload: kernels and the tensors between them, as a document.

A graph file is written in one of two ways: explicit ``kernels`` and ``tensors``, or ``workload: NAME`` with
``parameters``, which a builder in :mod:`dfopt.workloads` expands. Both end as the same :class:`Graph`.

Axes follow DFModel, section IV: a kernel makes an ``outer`` batch of ``m x n`` matrices, of ``m`` features and ``n``
tokens, by a contraction over ``k``. What is apart for every sample has one such batch for each of its ``samples``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import networkx as nx
from pydantic import ConfigDict, Field, model_validator

from dfopt.documents.architecture import Architecture
from dfopt.documents.axes import groups
from dfopt.documents.base import Named, Part, problem
from dfopt.documents.communication import CollectiveKind as CollectiveKind
from dfopt.documents.communication import Communication as Communication
from dfopt.documents.dtypes import Dtype, Dtypes, Trained, Words, check_word_bytes, words_of
from dfopt.documents.ends import Input as Input
from dfopt.documents.ends import Output as Output
from dfopt.documents.experts import Experts
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.modules import Module
from dfopt.documents.passes import Pass, with_passes
from dfopt.documents.sections import LAYER, Layers, Section, add_repeat, layers_of, of_version_1, spelled_out
from dfopt.documents.sequence_state import SequenceState as SequenceState
from dfopt.documents.tokens import Tokens, of_evaluation, tokens_of
from dfopt.documents.wiring import needed, reads, structure_issues, writes
from dfopt.errors import GraphError
from dfopt.units import Bytes

Op = Literal["gemm", "matmul", "elementwise", "weight_update"]
Role = Literal[
    "scores", "softmax", "scores_dropout", "context", "gate", "up", "activation", "bias", "dropout", "residual",
    "norm", "optimizer", "router", "latent", "fused_activation",
]  # fmt: skip
Count = Field(ge=1, le=10**15)
_COPIED = "share of its weight, table or gradient that all chips of the second axis have, which add up its gradients"


class Kernel(Part):
    """One operation of the graph.

    ``op`` is ``gemm`` (activation times weight), ``matmul`` (two activations), ``elementwise``
    (one or more inputs, ``flop_per_element`` operations per output element) or
    ``weight_update`` (the matrix product whose output is a weight gradient).
    """

    RENAMED: ClassVar = {"phase": "pass"}

    name: str = Field(min_length=1, max_length=200)
    op: Op
    outer: int = Field(default=1, ge=1, le=10**15, description="independent matrices, such as attention heads")
    samples: int | None = Field(
        default=None,
        ge=1,
        le=10**9,
        description="of a matmul or an elementwise kernel: so many times as many, one for every sample; heads are split"
        " over chips (outer), samples are not; none = 1",
    )
    m: int = Count
    k: int = Field(default=1, ge=1, le=10**15, description="contraction of a matrix product")
    n: int = Count
    stream: Literal["n", "k", "none"] | None = Field(
        default=None, description="axis that is cut into tiles and streamed; default n, for weight_update k"
    )
    pass_: Pass = Field(default="forward", alias="pass")
    role: Role | None = Field(
        default=None, description="its part in a layer, for libraries that do several at once; backward kernels too"
    )
    density: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="share of a matrix of a matmul or an elementwise kernel that a mask leaves: as whole elements",
    )
    masked: Literal[1, 2] | None = Field(
        default=None, description="the operand of a matmul that density is of; none = its output"
    )
    flop_per_element: int = Field(default=1, ge=1, le=10**6, description="of an elementwise kernel")
    normalizes: bool = Field(default=False, description="needs the whole m axis (layer norm, softmax): not split by m")
    accumulates_into: str | None = Field(
        default=None, description="kernel to whose output this one's is added; partial sums travel with its collective"
    )
    stage_with: str | None = Field(default=None, description="kernel that must sit in the same pipeline stage")
    distributed: bool = Field(
        default=False,
        description="spread evenly over the tensor-parallel chips by the workload itself (a block-cyclic matrix):"
        " no sharding is chosen, and what it communicates is listed under communications",
    )
    communications: tuple[Communication, ...] = Field(
        default=(), max_length=16, description="collectives of every evaluation, whatever the sharding"
    )
    dram_bytes_per_chip: Bytes = Field(default=0.0, description="extra DRAM traffic per evaluation, such as a KV cache")
    dram_bytes: Bytes = Field(
        default=0.0, ge=0, description="extra DRAM traffic per evaluation, over tensor-parallel chips, such as lookups"
    )
    resident_bytes: Bytes = Field(
        default=0.0,
        ge=0,
        description="DRAM that its data holds for the whole step, on all chips that it is spread over: embedding"
        " tables, the matrix of an LU; of a backward kernel, the gradient of such data",
    )
    resident_over: tuple[Literal["shards", "copies"], ...] | None = Field(
        default=None,
        description="what that is spread over; others hold it whole. shards: the chips that share a kernel; copies: the"
        " data-parallel ones, which fetch rows from each other; none = shards, and copies if communications go there",
    )
    resident_optimizer_bytes: Bytes | None = Field(
        default=None,
        ge=0,
        description="DRAM that the optimizer holds for it when training, spread as it is: 4 B per row under row-wise"
        " Adagrad; none = as much for a parameter as for one of the weights",
    )
    output_class: Literal["activations", "logits"] | None = Field(
        default=None, description="what its output is, for a graph with dtypes; none = activations"
    )
    experts: Experts | None = Field(default=None, description="whose weights or gradients a gemm or weight_update has")
    states: tuple[SequenceState, ...] | None = Field(
        default=None, max_length=16, description="what it keeps for every sequence from step to step, such as keys"
    )
    copied: float | None = Field(default=None, gt=0, le=1, description=_COPIED)
    output_saved: bool | None = Field(
        default=None,
        description="true: its output is kept for the backward pass, also where no kernel that is drawn reads it there;"
        " of a kernel that is evaluated again while its layer's backward pass runs. false: for that time only; none ="
        " where a tensor brings it there",
    )
    mask_bytes: float | None = Field(
        default=None, gt=0, description="B per element of its output: a mask, kept as that; backward: as its layer runs"
    )
    layer: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="kind of layer that it belongs to, of a graph with sections; none = layer. Backward kernels stay"
        " with their forward ones",
    )
    module: Module | None = Field(
        default=None, description="module whose scheme on the second axis of chips it has; none = the residual stream"
    )

    @property
    def matrices(self) -> int:
        """Independent matrices: ``outer`` of every sample."""
        return self.outer * (self.samples or 1)

    @property
    def streamed(self) -> str:
        """The axis that is cut into tiles: ``n``, ``k`` or ``none``."""
        return self.stream or ("k" if self.op == "weight_update" else "n")

    @property
    def spread_over(self) -> tuple[str, ...]:
        """What its resident data is spread over, as degrees of a plan."""
        return self.resident_over if self.resident_over is not None else ("shards", "copies")[: 1 + self._fetches]

    @property
    def _fetches(self) -> bool:
        return any(axis.splits == "batch" for one in self.communications for axis in groups()[one.over][0])

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.op == "elementwise" and self.k != 1:
            raise ValueError(f"an elementwise kernel has no contraction: found k = {self.k}, expected 1 or no k at all")
        if (self.samples or 1) > 1 and self.op not in ("matmul", "elementwise"):
            message = f"found {self.samples} of a {self.op} kernel, whose matrix is that of all samples"
            raise problem(message, "leave it out: n holds the tokens of all samples", "$.samples")
        if self.density is not None and self.op not in ("matmul", "elementwise"):
            message = f"found {self.density:g} of a {self.op} kernel: weights and their gradients are whole"
            raise problem(message, "leave it out, or write op: matmul", "$.density")
        if self.masked is not None and (self.density is None or self.op != "matmul"):
            raise problem(f"found {self.masked}, but no matmul with a density", "leave it out", "$.masked")
        if self.experts is not None and self.op not in ("gemm", "weight_update"):
            raise problem(f"found experts of a {self.op}", "only a gemm or a weight_update has them", "$.experts")
        for place, state in enumerate(self.states or ()):
            if self.outer % state.heads:
                message = f"found {state.heads}, expected a divisor of outer, {self.outer} of {self.name!r}"
                raise problem(message, "heads of a state are shared by groups of them", f"$.states[{place}].heads")
            if self.pass_ != "forward":
                message = f"found one of {self.name!r}, which is no kernel of a forward pass"
                raise problem(message, "nothing is kept for the next step by what trains", f"$.states[{place}]")
        if self.copied is not None and self.op not in ("gemm", "weight_update") and not self.resident_bytes:
            raise problem(f"found {self.copied:g} of a {self.op}", "only weights and gradients have one", "$.copied")
        if "copies" in (self.resident_over or ()) and not self._fetches:
            message = "spread over copies, but no communication of the kernel fetches what another copy holds"
            remedy = "list one, such as an all_to_all over all, or leave copies out: then each holds it whole"
            raise problem(message, remedy, "$.resident_over")
        return self


class Tensor(Part):
    """What one kernel produces and another consumes.

    ``bytes`` defaults to the whole output of ``src``. ``operand`` tells which input of a
    ``matmul`` or ``weight_update`` it is: 1 is the ``k x n`` side, 2 the ``m x k`` side; the default is decided by
    size, then by order. Several that state their bytes may be parts of the operand of a ``gemm``.

    What several kernels read of an output is stored once if it is the same ``part`` and as large: without names, parts
    of one size are the same.
    """

    src: str
    dst: str
    bytes: Bytes | None = None
    operand: Literal[1, 2] | None = None
    direction: Literal["forward", "backward"] = Field(
        default="forward", description="of a carried tensor: to the next repeat, or (gradients) to the previous one"
    )
    part: str | None = Field(
        default=None, min_length=1, max_length=200, description="of the output of src, where others are as large"
    )


class Graph(Named):
    """A workload: a DAG of kernels, evaluated once per microbatch.

    With ``sections`` the kernels are drawn once for each kind of layer (``Kernel.layer``), and evaluated as often as
    the model has it. Kinds are DAGs of their own, which no tensor connects: those of ``carried`` go from a layer to
    the next one, of whatever kind; all else that passes between kinds goes through DRAM. ``repeat: N`` is short for one
    section of one layer.
    """

    SCHEMA: ClassVar[str] = "dfopt/graph/3"
    EARLIER: ClassVar[tuple[str, ...]] = ("dfopt/graph/1", "dfopt/graph/2")
    model_config = ConfigDict(json_schema_extra=add_repeat)

    sections: tuple[Section, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=10000,
        description="layers of the model in their order; none = one, drawn",
    )
    word_bytes: int = Field(default=2, ge=1, le=16, description="bytes per element, of a graph that states no dtypes")
    dtypes: Dtypes | None = Field(
        default=None, description="types of its data by class; those left out are bf16. none = word_bytes for all"
    )
    main_gradients: Dtype | None = Field(
        default=None, description="type in which gradients of parameters are held; none = that of activations"
    )
    trained: Trained | None = Field(default=None, description="types of what its training has beside that")
    architecture: Architecture | None = Field(default=None, description="of what no cost depends on; none = not known")
    microbatch: int = Field(default=1, ge=1, le=10**9, description="samples in one evaluation of the graph")
    batch: int = Field(default=1, ge=1, le=10**12, description="samples in one step, over all data-parallel copies")
    tokens: Tokens | None = Field(default=None, description="of one evaluation; none = one of every sample")
    variant: str | None = Field(default=None, max_length=200, description="which of several ways to compute the same")
    recomputed: dict[str, str] | None = Field(default=None, description="kind of layer -> the same, computed again")
    kernels: tuple[Kernel, ...] = Field(min_length=1, max_length=20000)
    tensors: tuple[Tensor, ...] = Field(default=(), max_length=200000)
    carried: tuple[Tensor, ...] = Field(
        default=(), max_length=1000, description="tensors from one repeat to the next; they also cross pipeline stages"
    )
    inputs: tuple[Input, ...] | None = Field(
        default=None,
        max_length=100000,
        description="what comes from DRAM; [] is nothing, left out every operand that no tensor and nothing carried"
        " brings to a kernel which states no DRAM traffic of its own",
    )
    outputs: tuple[Output, ...] | None = Field(
        default=None,
        max_length=20000,
        description="what goes to DRAM; [] is nothing, left out every output that no tensor and nothing carried takes"
        " from a kernel which states no DRAM traffic of its own, is no weight update and accumulates into no other",
    )

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
        if problems := list(structure_issues(self)):
            raise GraphError(self.name, problems)
        return self

    @cached_property
    def _ends(self) -> tuple[list[tuple[int, int, float]], list[tuple[int, float]]]:
        return reads(self), writes(self)

    def reads(self) -> list[tuple[int, int, float]]:
        """What comes from DRAM: position of a kernel, operand and bytes; not to be changed."""
        return self._ends[0]

    def writes(self) -> list[tuple[int, float]]:
        """What goes to DRAM: position of a kernel and bytes; not to be changed."""
        return self._ends[1]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {kernel.name: position for position, kernel in enumerate(self.kernels)}

    def index(self) -> dict[str, int]:
        """Kernel name -> position in ``kernels``; not to be changed."""
        return self._index

    @cached_property
    def _made(self) -> list[float]:
        return [float(one.matrices * needed(one) * self.words.of_output(one)) for one in self.kernels]

    def output_bytes(self, name_or_position: str | int) -> float:
        """Bytes of a kernel's whole output, or of what a mask leaves of it, before any sharding."""
        return self._made[name_or_position if isinstance(name_or_position, int) else self._index[name_or_position]]

    @cached_property
    def words(self) -> Words:
        """Bytes of an element of every class of data."""
        return words_of(self.dtypes, self.word_bytes)

    def bytes_of(self, tensor: Tensor) -> float:
        """Bytes of a tensor: as stated, else the whole output of its source."""
        return tensor.bytes if tensor.bytes is not None else self.output_bytes(tensor.src)

    def taken(self, tensor: Tensor) -> tuple[str, float, str | None]:
        """Of which output it is, how much and which part: the same for what is stored once if fan-out is shared."""
        size = self.bytes_of(tensor)
        return tensor.src, size, None if size == self.output_bytes(tensor.src) else tensor.part

    def elements_of(self, tensor: Tensor) -> float:
        """Elements of a tensor, of which its source says the bytes."""
        return self.bytes_of(tensor) / self.words.of_output(self.kernels[self.index()[tensor.src]])

    def networkx(self) -> Any:
        """Which kernel feeds which, as a :class:`networkx.DiGraph` of their names."""
        drawn: nx.DiGraph[str] = nx.DiGraph()  # given edges at once, it swallows an interrupt and has but some of them
        drawn.add_edges_from((tensor.src, tensor.dst) for tensor in self.tensors)
        drawn.add_nodes_from(kernel.name for kernel in self.kernels)
        return drawn

    @cached_property
    def _levels(self) -> dict[str, int]:
        generations = enumerate(nx.topological_generations(self.networkx()))
        return {name: level for level, names in generations for name in names}

    def levels(self) -> dict[str, int]:
        """Longest-path level of every kernel, sources at 0; not to be changed."""
        return self._levels

    @cached_property
    def layers(self) -> Layers:
        """The layers of the model in their order; of a graph that is drawn as a whole one."""
        of = {kernel.name: kernel.layer or LAYER for kernel in self.kernels}
        return layers_of(self.sections, {of.get(tensor.src, LAYER) for tensor in self.carried}, self.recomputed)

    @cached_property
    def folded(self) -> bool:
        """Whether drawn layers stand for those of a model, whatever their pipeline stage."""
        return self.sections is not None

    @property
    def repeat(self) -> int:
        """Layers, without those that a model has once and that hand nothing on; 1 of a graph drawn as a whole."""
        return self.layers.count

    def kind_of(self, kernel: Kernel) -> int:
        """Number of the kind of layer that a kernel belongs to, which is the stage of its mapping; 0 if not folded."""
        return self.layers.kinds.index(kernel.layer or LAYER) if self.folded else 0

    @cached_property
    def handed_on(self) -> tuple[tuple[Tensor, ...], ...]:
        """The carried tensors of every kind of counted layers: the same ones, in the same order."""
        of = {kernel.name: self.kind_of(kernel) for kernel in self.kernels}
        return tuple(tuple(t for t in self.carried if of[t.src] == kind) for kind in range(self.layers.counted))

    def times_of(self, kernel: Kernel) -> int:
        """How often a model evaluates a kernel for one microbatch, where no layer is recomputed instead."""
        return self.layers.times(self.kind_of(kernel)) if self.folded else 1

    @cached_property
    def trains(self) -> bool:
        """Whether the graph has a backward pass or weight updates."""
        return any(kernel.pass_ != "forward" for kernel in self.kernels)

    def __repr__(self) -> str:
        times = f", {self.repeat} times" if self.repeat > 1 else ""
        return f"Graph({self.name}: {len(self.kernels)} kernels{times}, batch {self.batch})"

    __str__ = __repr__  # of a pydantic model it would be every field of every part

    def _repr_html_(self) -> str:
        facts = [
            ("graph", f"{self.name}: {self.description}" if self.description else self.name),
            ("size", f"{len(self.kernels)} kernels, {len(self.tensors)} tensors, repeated {self.repeat} times"),
            ("batch", f"{self.batch} samples, {self.microbatch} per evaluation, {tokens_of(self).processed} tokens"),
        ]
        rows = [[k.name, k.op, k.pass_, *(str(size) for size in (k.outer, k.m, k.k, k.n))] for k in self.kernels]
        return facts_html(facts) + table_html("Kernels", ("kernel", "op", "pass", "outer", "m", "k", "n"), rows)
