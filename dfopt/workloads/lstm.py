"""A language model of LSTM cells: embedding, layers that walk along the tokens of a sample, logits.

A cell takes what is below it and its own output of the token before, ``h``, and has four gates (Hochreiter and
Schmidhuber, Long Short-Term Memory, Neural Computation 9(8), 1997, with the forget gate of Gers et al., 2000; dropout
where a layer is entered as in Zaremba et al., arXiv 1409.2329). Of ``H`` hidden features and every token:

=======  ===============================================================  ==============
kernel   what it does                                                     FLOP
=======  ===============================================================  ==============
Dropout  masks what enters the layer                                      H
X_Proj   its product with a 4H x H matrix                                 8 H^2
H_Proj   that of h with another                                           8 H^2
Gates    adds both and a bias, and bends the sum                          3 x 4H
Cell     ``c = f c_before + i g``                                         3 H
Hidden   ``h = o tanh(c)``                                                2 H
=======  ===============================================================  ==============

A kernel works on all tokens of a microbatch, so FLOP are exact. What the order of the tokens costs is DRAM traffic: the
state of the token before is read back (``Cell``), and the matrix of ``H_Proj`` is read once for every token of a
sample, in the forward and in the backward pass, as it is larger than a chip's SRAM. So is every matrix with ``products:
each_token``, which is how DeepFlow's language model runs; ``all_tokens`` does at once what no token waits for, the
products with the input of a layer and the logits. Matrices that stay in SRAM from token to token are not drawn.

``h`` of the token before comes from the layer itself; it is drawn as if it came from the layer below, which is as
large, lies as spread over chips and is collected for the same two products. In the backward pass the gradients of both
are added up in the same way. Two kernels read that sum, so between stages of a pipeline it counts twice.

The gradients of weights are products over all tokens of a microbatch. Those of the embedding are added to the rows that
were looked up, see :mod:`dfopt.workloads.blocks.ends`: the sum of whole tables over copies is not drawn.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.published import Counts
from dfopt.documents.sections import Section
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.blocks.ends import EndsParameters, with_ends
from dfopt.workloads.checks import check_batch
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


class LstmParameters(Part):
    """Parameters of an LSTM language model.

    Attributes
    ----------
    hidden : features, e.g. 2048
        Features of a cell, and of the embedding of a word.
    layers : layers, e.g. 2
        Number of layers of LSTM cells.
    vocab : words, e.g. 10000
        Number of words of the vocabulary.
    seq : tokens, e.g. 20
        Number of tokens of one sample.
    microbatch : samples, e.g. 4
        Samples that one evaluation of the graph processes.
    batch : samples, e.g. 64
        Samples of one step, over all data-parallel replicas. None: one microbatch.
    mode : e.g. forward
        Passes that the graph contains. ``forward``: only the forward pass. ``training``: a whole training step.
    products : e.g. all_tokens
        Way to compute products that do not depend on the previous token. ``all_tokens``: for all tokens of a sample at
        once. ``each_token``: token by token, which reads the matrices every time.
    word_bytes : B, e.g. 2
        Size of one element of all data.

    Examples
    --------
    >>> LstmParameters(hidden=8, layers=2, vocab=100, seq=5, microbatch=3).ends.tokens
    15
    """

    hidden: int = Field(ge=1, le=10**7)
    layers: int = Field(default=1, ge=1, le=10**6)
    vocab: int = Field(ge=1, le=10**9)
    seq: int = Field(ge=1, le=10**8)
    microbatch: int = Field(default=1, ge=1, le=10**6)
    batch: int | None = Field(default=None, ge=1, le=10**12)
    mode: Literal["forward", "training"] = "forward"
    products: Literal["all_tokens", "each_token"] = "all_tokens"
    word_bytes: int = Field(default=2, ge=1, le=16)

    @model_validator(mode="after")
    def _whole_microbatches(self) -> Self:
        check_batch(self.batch, self.microbatch)
        return self

    @property
    def ends(self) -> EndsParameters:
        """Parameters of embedding and logits."""
        same = {name: getattr(self, name) for name in ("hidden", "vocab", "seq", "microbatch", "batch", "mode")}
        return EndsParameters(**same, word_bytes=self.word_bytes, final_norm=False)


Parameters = LstmParameters


def counts(p: LstmParameters) -> Counts:
    """Number of parameters: embedding, cells with one bias for each gate, and logits; nothing is cached.

    Examples
    --------
    >>> counts(LstmParameters(hidden=8, layers=2, vocab=100, seq=5)).parameters
    2688
    """
    cells, words = p.layers * (8 * p.hidden**2 + 4 * p.hidden), p.hidden * p.vocab
    return Counts(cells + 2 * words, cells + words, 0, words, words)


def build(p: LstmParameters, **about: str) -> Graph:
    """Folded graph of an LSTM language model.

    Examples
    --------
    >>> graph = build(LstmParameters(hidden=8, layers=2, vocab=100, seq=5), name="small")
    >>> [kernel.name for kernel in graph.kernels]
    ['Embedding', 'Dropout', 'X_Proj', 'H_Proj', 'Gates', 'Cell', 'Hidden', 'Logits']
    >>> graph.repeat, graph.kernels[3].dram_bytes  # four times more than once
    (2, 2048.0)
    """
    ends = p.ends
    drawing = ends.drawing()
    _draw(drawing, p)
    graph = Graph(
        **about,
        **ends.sized,
        sections=(Section(repeat=p.layers),),
        kernels=tuple(drawing.kernels),
        tensors=tuple(drawing.tensors),
        carried=(Tensor(src="Hidden", dst="Dropout"),),
    )
    if p.mode == "training":
        graph = backward_of(graph, _rules(p))
    graph = with_ends(graph, ends, ("Dropout", "Hidden"))
    return graph.model_copy(update={"kernels": tuple(_token_by_token(kernel, p) for kernel in graph.kernels)})


def _draw(drawing: Drawing, p: LstmParameters) -> None:
    """One layer."""
    hidden, pointwise = p.hidden, drawing.pointwise
    features = drawing.bytes(hidden * drawing.tokens)
    entering = pointwise("Dropout", hidden, role="dropout")
    both = [drawing.linear(name, 4 * hidden, hidden, entering) for name in ("X_Proj", "H_Proj")]
    gates = pointwise("Gates", 4 * hidden, *both, flop_per_element=3, role="gate")
    kept = {"dram_bytes": features}  # the state of the token before
    cell = pointwise("Cell", hidden, Read(gates, None, 3 * features, "input"), flop_per_element=3, **kept)
    pointwise("Hidden", hidden, cell, Read(gates, None, features, "output"), flop_per_element=2)


def _rules(p: LstmParameters) -> dict[str, Gradient | tuple[Gradient, ...]]:
    """How the backward pass of a cell departs from the rules of its ops."""
    return {
        "Gates": Gradient(reads=("Gates",)),
        # of three gates and of the state of the token before, which is written, read, and added to that of h
        "Cell": Gradient(reads=("Cell", "Gates"), fields={"dram_bytes": 2.0 * _features(p)}),
        "Hidden": (
            Gradient("Hidden_bwd", of=("Cell",), reads=("Cell", "Gates"), fields={"flop_per_element": 4}),
            Gradient("Hidden_bwd_gate", of=("Gates",), reads=("Cell",), fields={"m": p.hidden}),
        ),
    }


def _features(p: LstmParameters) -> int:
    """Bytes of ``hidden`` features of every token."""
    return p.hidden * p.ends.tokens * p.word_bytes


_WAITS = ("H_Proj", "H_Proj_bwd")
_FREE = ("X_Proj", "X_Proj_bwd", "Logits", "Logits_bwd")


def _token_by_token(kernel: Kernel, p: LstmParameters) -> Kernel:
    """A product with what its matrix is read beyond once."""
    if kernel.name not in (_WAITS + _FREE if p.products == "each_token" else _WAITS):
        return kernel
    again = (p.seq - 1) * kernel.m * kernel.k * p.word_bytes
    return kernel.model_copy(update={"dram_bytes": kernel.dram_bytes + again})
