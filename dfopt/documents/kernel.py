"""Kernels of a workload, and the tensors between them.

Axes follow DFModel, section IV: a kernel makes an ``outer`` batch of ``m x n`` matrices, of ``m`` features and ``n``
tokens, by a contraction over ``k``. What is apart for every sample has one such batch for each of its ``samples``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.axes import groups
from dfopt.documents.base import Part, problem
from dfopt.documents.communication import Communication
from dfopt.documents.experts import Experts
from dfopt.documents.modules import Module
from dfopt.documents.passes import Pass
from dfopt.units import Bytes

Op = Literal["gemm", "matmul", "elementwise", "weight_update"]
Role = Literal[
    "scores", "softmax", "scores_dropout", "context", "gate", "up", "activation", "bias", "dropout", "residual",
    "norm", "optimizer", "router", "latent", "fused_activation",
]  # fmt: skip
OPERANDS: Final[dict[Op, int]] = {"gemm": 1, "matmul": 2, "weight_update": 2, "elementwise": 1}
"""Operands of a kernel that tensors bring; an elementwise kernel may have more of its only one."""
CountField = Field(ge=1, le=10**15)


class SequenceState(Part):
    """State that a kernel keeps in DRAM for every sequence across steps: keys, values, latents, recurrent states.

    The states of the sequences of all microbatches are stored at the same time. Chips divide a state by its ``heads``:
    a chip stores the heads that its share of the kernel's ``outer`` belongs to, and the whole of a state with one head.

    Attributes
    ----------
    name : e.g. keys
        Name of the stored data, such as keys or values.
    sequences : sequences, e.g. 16
        Number of sequences that one evaluation works on.
    heads : heads, e.g. 8
        Number of heads that share the stored data, a divisor of ``outer`` of the kernel. Each chip stores the heads of
        its own share.
    bytes_per_token : B, e.g. 2048
        Size of the data for each stored token, over all heads.
    bytes_per_sequence : B, e.g. 1048576
        Size of the data for each sequence that does not grow with its tokens, over all heads, such as a recurrent
        state. Each evaluation writes it, and reads it unless the sequence starts there.
    tokens : tokens, e.g. 4097
        Tokens of each sequence that are stored after the evaluation.
    reads : tokens, e.g. 4096
        Tokens of each sequence that one evaluation reads.
    writes : tokens, e.g. 1
        Tokens of each sequence that one evaluation adds.
    page : tokens, e.g. 16
        Tokens that share one allocation of DRAM. A sequence occupies whole pages.

    Examples
    --------
    Keys of 8 heads for 16 sequences, behind whose 4096 tokens one more is put:

    >>> keys = SequenceState(
    ...     name="keys", sequences=16, heads=8, bytes_per_token=2048, tokens=4097, reads=4096, writes=1
    ... )
    >>> keys.held_bytes, keys.read_bytes, keys.written_bytes
    (134250496, 134217728, 32768)
    """

    name: str = Field(min_length=1, max_length=200)
    sequences: int = Field(ge=1, le=10**9)
    heads: int = Field(default=1, ge=1, le=10**5)
    bytes_per_token: int = Field(default=0, ge=0, le=10**12)
    bytes_per_sequence: int = Field(default=0, ge=0, le=10**15)
    tokens: int = Field(default=0, ge=0, le=10**9)
    reads: int = Field(default=0, ge=0, le=10**9)
    writes: int = Field(default=0, ge=0, le=10**9)
    page: int = Field(default=1, ge=1, le=10**6)

    @property
    def held_bytes(self) -> int:
        """Bytes in whole pages, over all heads."""
        tokens = -(-self.tokens // self.page) * self.page
        return self.sequences * (tokens * self.bytes_per_token + self.bytes_per_sequence)

    @property
    def read_bytes(self) -> int:
        """Bytes that an evaluation reads, over all heads; 0 for sequences without earlier tokens."""
        fresh = self.tokens > 0 and self.reads == 0
        return self.sequences * (self.reads * self.bytes_per_token + (0 if fresh else self.bytes_per_sequence))

    @property
    def written_bytes(self) -> int:
        """Bytes that an evaluation writes, over all heads."""
        return self.sequences * (self.writes * self.bytes_per_token + self.bytes_per_sequence)


class Kernel(Part):
    """A kernel: one operation of the graph.

    ``op`` is ``gemm`` (activation times weight), ``matmul`` (two activations), ``elementwise``
    (one or more inputs, ``flop_per_element`` operations per output element) or
    ``weight_update`` (the matrix product whose output is a weight gradient).

    Attributes
    ----------
    name : e.g. FFN0
        Name of the kernel, unique in its graph. Tensors, plans and pins refer to it.
    op : e.g. gemm
        Operation that the kernel computes. ``gemm`` multiplies an activation by a weight. ``matmul`` multiplies two
        activations. ``elementwise`` applies ``flop_per_element`` operations to each output element. ``weight_update``
        is the matrix product whose output is a weight gradient.
    outer : matrices, e.g. 96
        Number of independent matrices that the kernel computes, such as attention heads.
    samples : samples, e.g. 8
        Number of samples for each of which a matmul or elementwise kernel computes ``outer`` matrices of its own. Chips
        may share ``outer``, such as the heads, but not the samples. None: 1.
    m : elements, e.g. 12288
        Rows of each output matrix: the output features of one token.
    k : elements, e.g. 12288
        Length of the contraction of a matrix product. It is 1 for an elementwise kernel.
    n : elements, e.g. 2048
        Columns of each output matrix: the tokens.
    stream : e.g. n
        Axis that dfopt cuts into tiles, which stream from kernel to kernel inside an on-chip partition. ``n``: the
        tokens. ``k``: the contraction. ``none``: the kernel needs its whole input at once. None: ``n``, and ``k`` for a
        weight_update.
    pass_ : e.g. forward
        Pass of a training step that the kernel belongs to. ``forward``: the forward pass. ``recompute``: activations
        that the backward pass computes again. ``backward``: gradients of activations. ``update``: gradients of weights.
    role : e.g. softmax
        Part that the kernel plays in its layer, so that libraries which fuse several kernels recognize it, for example
        ``scores``, ``softmax`` and ``context`` of attention. Backward kernels have the role of their forward kernel.
        None: no special role.
    density : share, e.g. 0.5
        Share of the elements that a mask leaves of one matrix of a matmul or elementwise kernel, such as 0.5 under a
        causal mask. FLOP and bytes count these elements only. None: no mask.
    masked : e.g. 1
        Operand of a matmul that ``density`` applies to. ``1``: the k x n operand. ``2``: the m x k operand. None: the
        output.
    flop_per_element : FLOP, e.g. 5
        Operations that an elementwise kernel performs for each element of its output.
    normalizes : e.g. true
        Whether the kernel needs all of the m axis at once, as a layer norm or a softmax does. Chips then cannot share
        it along m.
    accumulates_into : e.g. Add_1
        Name of the kernel to whose output this kernel adds its output. Partial sums then travel with the collective of
        that kernel. None: the output is a tensor of its own.
    stage_with : e.g. FFN0
        Name of the kernel that must lie in the same pipeline stage. None: any stage.
    distributed : e.g. true
        Whether the workload itself spreads the kernel evenly over the tensor-parallel chips, as a block-cyclic matrix
        does. dfopt then chooses no sharding, and ``communications`` lists all that the kernel sends.
    communications : e.g. [{kind: all_to_all, bytes: 64 MB}]
        Collectives that every evaluation of the kernel needs, whatever its sharding.
    dram_bytes_per_chip : e.g. 16 MB
        DRAM traffic of each chip in one evaluation, in addition to that of tensors and weights. Sharding does not
        reduce it.
    dram_bytes : e.g. 1 GB
        DRAM traffic of one evaluation in addition to that of tensors and weights, such as table lookups. The
        tensor-parallel chips share it.
    resident_bytes : e.g. 96 GB
        DRAM that data of the kernel occupies for the whole step, summed over all chips that share it. Examples are
        embedding tables and the matrix of an LU factorization. For a backward kernel it is the gradient of such data.
    resident_over : e.g. [shards, copies]
        Chips over which the resident data is spread; all other chips store a full copy. ``shards``: the chips that
        share a kernel. ``copies``: the data-parallel replicas, which then fetch rows from each other. None: ``shards``,
        and also ``copies`` if one of the ``communications`` spans the replicas.
    resident_optimizer_bytes : e.g. 400 MB
        DRAM that the optimizer occupies for the resident data in training, spread in the same way. Row-wise Adagrad
        needs 4 B per row. None: as much per parameter as for a weight.
    output_class : e.g. logits
        Class of the output, which decides its type in a graph with ``dtypes``. ``activations``: the type of
        activations. ``logits``: the type of logits. None: ``activations``.
    experts : e.g. {count: 8, chosen: 2, touched: 7.2}
        Experts whose weights, or weight gradients, the kernel has. Only a gemm or a weight_update may have them. None:
        a single weight.
    states : e.g. [{name: keys, sequences: 16, heads: 8, bytes_per_token: 2048, tokens: 4097, reads: 4096, writes: 1}]
        Data that the kernel stores for every sequence from step to step, such as keys and values. None: nothing.
    copied : share, e.g. 0.25
        Share of the kernel's weight, table or gradient that every chip of a module-wise parallel group (mp) stores.
        These chips add up its gradients. None: 0.
    output_saved : e.g. true
        Whether the output is stored for the backward pass. True: always, even if no kernel of the graph reads it there.
        False: only while the backward pass of its layer runs. None: if a tensor leads to a backward kernel.
    mask_bytes : B per element, e.g. 1.0
        Size of the mask that the kernel stores for each element of its output, such as the mask of a dropout. For a
        backward kernel the mask exists only while its layer runs. None: no mask.
    layer : e.g. moe
        Kind of layer that the kernel belongs to, in a graph with ``sections``. Backward kernels have the kind of their
        forward kernels. None: the kind ``layer``.
    module : e.g. mixer
        Module that the kernel belongs to; its scheme decides how a module-wise parallel group (mp) shares the kernel.
        ``mixer``: attention or its replacement. ``dense``: a feed-forward network that every token passes. ``experts``:
        routed experts. ``ends``: logits, classifiers and input products. None: the residual stream.
    """

    RENAMED: ClassVar = {"phase": "pass"}

    name: str = Field(min_length=1, max_length=200)
    op: Op
    outer: int = Field(default=1, ge=1, le=10**15)
    samples: int | None = Field(default=None, ge=1, le=10**9)
    m: int = CountField
    k: int = Field(default=1, ge=1, le=10**15)
    n: int = CountField
    stream: Literal["n", "k", "none"] | None = None
    pass_: Pass = Field(default="forward", alias="pass")
    role: Role | None = None
    density: float | None = Field(default=None, gt=0, le=1)
    masked: Literal[1, 2] | None = None
    flop_per_element: int = Field(default=1, ge=1, le=10**6)
    normalizes: bool = False
    accumulates_into: str | None = None
    stage_with: str | None = None
    distributed: bool = False
    communications: tuple[Communication, ...] = Field(default=(), max_length=16)
    dram_bytes_per_chip: Bytes = 0.0
    dram_bytes: Bytes = Field(default=0.0, ge=0)
    resident_bytes: Bytes = Field(default=0.0, ge=0)
    resident_over: tuple[Literal["shards", "copies"], ...] | None = None
    resident_optimizer_bytes: Bytes | None = Field(default=None, ge=0)
    output_class: Literal["activations", "logits"] | None = None
    experts: Experts | None = None
    states: tuple[SequenceState, ...] | None = Field(default=None, max_length=16)
    copied: float | None = Field(default=None, gt=0, le=1)
    output_saved: bool | None = None
    mask_bytes: float | None = Field(default=None, gt=0)
    layer: str | None = Field(default=None, min_length=1, max_length=200)
    module: Module | None = None

    @property
    def matrices(self) -> int:
        """Number of independent matrices: ``outer * samples``."""
        return self.outer * (self.samples or 1)

    @property
    def streamed(self) -> str:
        """The streamed axis, which is cut into tiles: ``n``, ``k`` or ``none``."""
        return self.stream or ("k" if self.op == "weight_update" else "n")

    @property
    def spread_over(self) -> tuple[str, ...]:
        """Plan degrees over which its resident data is spread."""
        return self.resident_over if self.resident_over is not None else ("shards", "copies")[: 1 + self._fetches]

    @property
    def _fetches(self) -> bool:
        over = [groups()[communication.over][0] for communication in self.communications]
        return any(axis.splits == "batch" for axes in over for axis in axes)

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
    """A tensor from one kernel to another.

    ``bytes`` defaults to the whole output of ``src``. ``operand`` tells which input of a
    ``matmul`` or ``weight_update`` it is: 1 is the ``k x n`` side, 2 the ``m x k`` side; the default is decided by
    size, then by order. Several that state their bytes may be parts of the operand of a ``gemm``.

    Tensors of one output are stored once for several readers if they have the same ``part`` and size; without names,
    parts of equal size are the same.

    Attributes
    ----------
    src : e.g. Q
        Name of the kernel that produces the tensor.
    dst : e.g. QK
        Name of the kernel that consumes the tensor.
    bytes : e.g. 50 MB
        Size of the tensor before any sharding. None: the whole output of ``src``.
    operand : e.g. 1
        Input of a matmul or weight_update that the tensor feeds. ``1``: the k x n side. ``2``: the m x k side. None:
        dfopt decides by size, then by order.
    direction : e.g. forward
        Direction of a tensor between layers. ``forward``: to the next layer. ``backward``: to the previous layer, as
        gradients go.
    part : e.g. values
        Name of the part of the output of ``src`` that the tensor is. Consumers of the same part share one stored copy.
        Use it where several parts have the same size. None: the size alone identifies the part.
    """

    src: str
    dst: str
    bytes: Bytes | None = None
    operand: Literal[1, 2] | None = None
    direction: Literal["forward", "backward"] = "forward"
    part: str | None = Field(default=None, min_length=1, max_length=200)


def operand_shape(kernel: Kernel, operand: int) -> tuple[int, int]:
    """Shape (features, tokens) of one operand of one of the ``outer`` matrices.

    The operands of a weight update are features by tokens too, of the gradient and of the forward input.

    Examples
    --------
    >>> product = Kernel(name="scores", op="matmul", m=8, k=4, n=16)
    >>> operand_shape(product, 1), operand_shape(product, 2)
    ((4, 16), (8, 4))
    """
    if kernel.op == "elementwise":
        return kernel.m, kernel.n
    if operand == 2:
        return kernel.m, kernel.k
    return (kernel.n, kernel.k) if kernel.op == "weight_update" else (kernel.k, kernel.n)


def needed(kernel: Kernel, operand: int = 0) -> int:
    """Elements of the output (0) or of an operand that a mask leaves, in one of the ``outer`` matrices.

    Examples
    --------
    >>> scores = Kernel(name="scores", op="matmul", m=8, k=4, n=8, density=9 / 16)
    >>> needed(scores), needed(scores, 1)
    (36, 32)
    """
    rows, columns = operand_shape(kernel, operand) if operand else (kernel.m, kernel.n)
    here = kernel.op == "elementwise" or operand == (kernel.masked or 0)
    return max(round(kernel.density * rows * columns), 1) if here and kernel.density is not None else rows * columns


def is_training(kernels: Iterable[Kernel]) -> bool:
    """Whether some kernel belongs to a backward pass or weight update.

    Examples
    --------
    >>> is_training([Kernel(name="a", op="gemm", m=8, k=4, n=8)])
    False
    """
    return any(kernel.pass_ != "forward" for kernel in kernels)
