"""Drawing layers: kernels as large as one evaluation makes them.

Matrices are held with features along ``m`` and tokens along ``n``, see :mod:`dfopt.documents.graph`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from dfopt.documents.dtypes import Words
from dfopt.documents.graph import Kernel, SequenceState
from dfopt.documents.kernel import Role
from dfopt.documents.phase import Segment
from dfopt.documents.routing import Routing
from dfopt.workloads.backward import Gradient
from dfopt.workloads.sketch import Read, Sketch

Form = Literal["expanded", "absorbed"]
"""Ways to compute latent attention, see :mod:`dfopt.workloads.blocks.mla`."""


@dataclass(frozen=True)
class Attending:
    """Factory of the kernels over attention scores of a segment.

    Scores have keys along ``m`` and queries along ``n``; ``pairs`` of them are computed in a sequence.

    Examples
    --------
    >>> scores = Attending(heads=2, sequences=3, new=16, keys=16, pairs=136).product("QK", 16, 4, "scores")
    >>> scores.outer, scores.samples, scores.density
    (2, 3, 0.53125)
    """

    heads: int
    sequences: int
    new: int
    keys: int
    pairs: int
    still: bool = False  # no stream, so that few tokens of each sequence cut no other kernel's short

    @property
    def _shape(self) -> dict[str, Any]:
        all_pairs, stream = self.new * self.keys, {"stream": "none"} if self.still else {}
        samples = {"samples": self.sequences} if self.sequences > 1 else {}
        density = self.pairs / all_pairs if self.pairs < all_pairs else None
        return {"outer": self.heads, "n": self.new, "density": density, **samples, **stream}

    def pointwise(self, name: str, role: Role | None, *, normalizes: bool = False) -> Kernel:
        """An elementwise kernel over the scores, such as the softmax."""
        return Kernel(name=name, op="elementwise", m=self.keys, role=role, normalizes=normalizes, **self._shape)

    def product(self, name: str, m: int, k: int, role: Role | None, states: tuple[SequenceState, ...] = ()) -> Kernel:
        """A matmul of two activations: scores, or the weighted sum of values.

        Parameters
        ----------
        name, role
            Name and role of the kernel.
        m, k
            Features of its output for each query, and features that it contracts.
        states
            Keys or values that are kept of earlier tokens.
        """
        shape = self._shape
        masked = 1 if shape["density"] is not None and role == "context" else None
        return Kernel(name=name, op="matmul", m=m, k=k, role=role, masked=masked, states=states or None, **shape)


class Drawing(Sketch):
    """A layer under construction, with gradient rules that differ from the defaults of the ops.

    Work on every token is one kernel for the tokens of all segments. Work that differs between segments, such as
    attention, is drawn in a separate view (:meth:`each`), whose kernels have the number of the segment in their names.

    Attributes
    ----------
    segments : tuple of Segment
        Segments of one evaluation, or those that a view draws.
    words : Words
        Bytes of an element of every class of data.
    keeps : bool
        Whether states of sequences are kept.
    trains : bool
        Whether a backward pass follows.
    drops : frozenset of str
        Dropout in training: of scores by a separate kernel, of hidden features in the kernel that adds them.
    forms : tuple of str, optional
        Form of latent attention in every segment, if a layer leaves it open.
    places : tuple of int
        Indices of the view's segments among all.
    routing : Routing
        Distribution of tokens over experts.
    rules, sum_kernels
        See :func:`dfopt.workloads.backward.backward_of`.
    from_states : set
        Operands of kernels that are all in their states: no tensor brings them, and nothing else is read.

    Examples
    --------
    >>> from dfopt.documents.dtypes import words_of
    >>> drawing = Drawing([Segment(sequences=3, new=16), Segment(sequences=2, new=1)], words_of(None, 2))
    >>> drawing.linear("Up", 32, 8, drawing.pointwise("Norm", 8, normalizes=True))
    'Up'
    >>> drawing.kernels[-1].n, drawing.bytes(10)
    (50, 20.0)
    >>> [part.pointwise("Act", 32, part.own("Up")) for part in drawing.each()]
    ['Act_1', 'Act_2']
    >>> [tensor.bytes for tensor in drawing.tensors]
    [None, 3072.0, 128.0]
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        words: Words,
        *,
        keeps: bool = False,
        page: int = 1,
        trains: bool = False,
        drops: Collection[str] = (),
        forms: tuple[Form, ...] | None = None,
        routing: Routing | None = None,
    ) -> None:
        super().__init__()
        self.drops = frozenset(drops if trains else ())
        self.trains, self.forms, self.routing = trains, forms, routing or Routing()
        self.words, self.keeps, self.page = words, keeps, page
        self.segments, self.places, self.suffix = tuple(segments), tuple(range(len(segments))), ""
        self.prefix = ""
        self._rows = _rows(self.segments)
        self.rules: dict[str, Gradient | tuple[Gradient, ...]] = {}
        self.sum_kernels: dict[str, tuple[str, str]] = {}
        self.from_states: set[tuple[str, int]] = set()

    @property
    def tokens(self) -> int:
        """Number of tokens of one evaluation, or of a view."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def sequences(self) -> int:
        """Number of sequences of one evaluation, or of a view."""
        return sum(segment.sequences for segment in self.segments)

    @property
    def segment(self) -> Segment:
        """The segment of a view of a single one."""
        (only,) = self.segments
        return only

    @property
    def still(self) -> bool:
        """Whether the tokens of a segment do not stream: single tokens of sequences, or few next to many others."""
        return self.keeps and self.segment.new < self._rows

    def of(self, places: Sequence[int]) -> Self:
        """A view that draws the segments at some positions; for all segments the drawing itself."""
        if tuple(places) == self.places:
            return self
        view = copy.copy(self)  # it adds to the same kernels and tensors
        view.places, by_place = tuple(places), dict(zip(self.places, self.segments, strict=True))
        view.segments = tuple(by_place[place] for place in view.places)
        view.suffix = "".join(f"_{place + 1}" for place in view.places)
        return view

    def each(self) -> tuple[Self, ...]:
        """One view for every segment."""
        return tuple(self.of((place,)) for place in self.places)

    def prefixed(self, prefix: str) -> Self:
        """A view that puts a prefix before names of kernels and states, for parallel mixers."""
        view = copy.copy(self)  # it adds to the same kernels and tensors
        view.prefix = self.prefix + prefix
        return view

    def called(self, name: str) -> str:
        """Name of a kernel or state in this view."""
        return self.prefix + name + self.suffix

    def draw(self, kernel: Kernel, *inputs: str | Read) -> str:
        """Add a kernel with its inputs, named after the segments of the view; return its name."""
        if not self.suffix:
            named = kernel.model_copy(update={"name": self.called(kernel.name)}) if self.prefix else kernel
            return super().draw(named, *inputs)
        reads = (Read(source) if isinstance(source, str) else source for source in inputs)
        # tokens of two segments may be as many: without a name of their own those would be one part, stored once
        own = (read._replace(part=self.called(read.part or "tokens")) for read in reads)
        return super().draw(kernel.model_copy(update={"name": self.called(kernel.name)}), *own)

    def own(self, source: str | Read) -> Read:
        """Read of a view's tokens from a kernel over more tokens."""
        read = Read(source) if isinstance(source, str) else source
        kernel = self._kernel(read.src)
        if kernel.n == self.tokens:
            return read
        size = self.bytes(kernel.outer * kernel.m * kernel.n) if read.bytes is None else read.bytes
        return read._replace(bytes=size / kernel.n * self.tokens)

    def joined(self, names: Sequence[str]) -> tuple[Read, ...]:
        """Reads of the outputs of views, which together are one operand of a kernel over all tokens."""
        if len(names) == 1:
            return (Read(names[0]),)
        kernels = [self._kernel(name) for name in names]
        return tuple(Read(kernel.name, None, self.bytes(kernel.matrices * kernel.m * kernel.n)) for kernel in kernels)

    def _kernel(self, name: str) -> Kernel:
        return next(kernel for kernel in reversed(self.kernels) if kernel.name == name)

    def bytes(self, elements: int) -> float:
        """Bytes of ``elements`` elements of a tensor."""
        return elements * self.words.activations

    def cached_bytes(self, elements: int) -> int:
        """Bytes of ``elements`` cached elements of keys, values or latents."""
        return math.ceil(elements * self.words.kv)

    def state_bytes(self, elements: int, own: float) -> int:
        """Bytes of ``elements`` elements of a recurrent state, ``own`` bytes each unless a data type is stated."""
        return math.ceil(elements * (own if self.words.state is None else self.words.state))

    def pointwise(self, name: str, m: int, *inputs: str | Read, **fields: Any) -> str:
        """Draw an elementwise kernel over ``m`` features of every token; return its name."""
        return self.draw(Kernel(name=name, op="elementwise", m=m, n=self.tokens, **fields), *inputs)

    def masked(self, name: str) -> None:
        """Let a kernel keep a mask of one byte per element for its backward pass."""
        place = next(place for place in reversed(range(len(self.kernels))) if self.kernels[place].name == name)
        self.kernels[place] = self.kernels[place].model_copy(update={"mask_bytes": 1.0})

    def by_head(self, name: str, heads: int, dim: int, *inputs: str | Read, **fields: Any) -> str:
        """Draw an elementwise kernel over the heads of every token; return its name."""
        return self.pointwise(name, dim, *inputs, outer=heads, **fields)

    def linear(self, name: str, m: int, k: int, *sources: str | Read, outer: int = 1, **fields: Any) -> str:
        """Draw a GEMM with a weight for every token; return its name.

        Parameters
        ----------
        name : str
            Name of the kernel.
        m, k : int
            Output and input features of a token, for each of ``outer`` heads.
        outer : int
            Number of independent products, such as heads.
        """
        return self.draw(Kernel(name=name, op="gemm", outer=outer, m=m, k=k, n=self.tokens, **fields), *sources)


def _rows(segments: Sequence[Segment]) -> int:
    """New tokens from which on a segment is a stream: so that the fewest scores are on the chip at a time.

    All streams are cut into as many tiles as the shortest has tokens; what is none is there as a whole.

    Examples
    --------
    >>> chunk, draft, step = (Segment(sequences=n, new=new, cached=99) for n, new in ((1, 512), (8, 4), (16, 1)))
    >>> _rows([chunk, draft, step]), _rows([draft, step]), _rows([step])
    (512, 4, 2)
    """

    def held(tiles: int) -> int:
        rows = ((segment, -(-segment.new // tiles) if segment.new >= tiles else segment.new) for segment in segments)
        return sum(segment.sequences * segment.keys * most for segment, most in rows)

    return min((s.new for s in segments if s.new > 1), key=lambda tiles: (held(tiles), -tiles), default=2)
