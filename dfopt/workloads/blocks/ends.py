"""What a model has once: the embedding in front of its layers, the final norm and the head behind them.

The embedding reads one row per token; its table is resident in DRAM. Logits are a product with a ``vocab x hidden``
matrix for every token, or in serving for those whose logits are wanted. A table that is tied to that matrix is held
once, as the matrix, also where a pipeline would need a second copy in its first stage. A model without a vocabulary
computes what its layers begin with: patches of an image are one product, a convolution is one for every position.
A classifier and a pooler look at one token of every sequence.

Where all layers are drawn, the ends are kernels like all others. Where one drawn part stands for several, they run
before the first and after the last one, layers of their own; what passes between them and the layers then goes
through DRAM and counts as their ``dram_bytes``.

When training, the loss and its gradient are one elementwise kernel over the logits (the maximum and the sum that it
needs of every token's logits are small, and collecting them is not counted), and the gradients of looked-up rows
are added into a gradient of the table. That gradient is resident beside the table, and so is the optimizer's state;
adding the gradients of data-parallel copies up takes no time here.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.sections import Section
from dfopt.workloads.backward import Gradient, backward_of
from dfopt.workloads.blocks.conditioning import FINAL, Conditioning
from dfopt.workloads.blocks.streams import Streams
from dfopt.workloads.drawing import Drawing, Form
from dfopt.workloads.sketch import Read, Sketch
from dfopt.workloads.step import ServingParameters

NORMS: Final = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
"""What kernels of norms are called."""
FOR_FILES: Final = "for files of other tools: see architecture of a graph; none = not known"
FRONT: Final = "embedding"
BACK: Final = "head"
"""Names of the layers that the ends are, where not all layers are drawn."""


class Convolution(Part):
    """Input product in front of the layers: image patches, or a convolution at every position.

    Attributes
    ----------
    inputs : elements, e.g. 768
        Number of elements from which one position is computed, such as the pixels of a patch.
    outputs : features, e.g. 768
        Number of features of one position.
    per_token : positions, e.g. 1
        Number of positions that the product computes for every token.
    bias : e.g. true
        Whether the product adds a bias. It changes the parameter count only.

    Examples
    --------
    Patches of 16 x 16 pixels in three colours:

    >>> Convolution(inputs=768, outputs=768).parameters
    590592
    """

    inputs: int = Field(ge=1, le=10**8)
    outputs: int = Field(ge=1, le=10**7)
    per_token: int = Field(default=1, ge=1, le=10**6)
    bias: bool = True

    @property
    def parameters(self) -> int:
        """Number of parameters: matrix and bias."""
        return self.outputs * (self.inputs + self.bias)


class Head(Part):
    """Output head after the last norm.

    Attributes
    ----------
    kind : e.g. logits
        Output of the model after the last norm. ``logits``: logits over the vocabulary. ``classifier``: classes of a
        whole sequence. ``linear``: features of every token. ``none``: nothing further.
    classes : classes, e.g. 1000
        Number of classes of a classifier, or of features of a linear head. None: the head is another one.
    bias : e.g. false
        Whether the product of the head adds a bias. It changes the parameter count only.
    pooler : e.g. false
        Whether a product of one token's features precedes the head, as in BERT.

    Examples
    --------
    >>> Head(kind="classifier", classes=1000).rows(vocab=None)
    1000
    """

    kind: Literal["logits", "classifier", "linear", "none"] = "logits"
    classes: int | None = Field(default=None, ge=1, le=10**9)
    bias: bool = False
    pooler: bool = False

    @model_validator(mode="after")
    def _has_classes(self) -> Self:
        if (self.classes is None) == (self.kind in ("classifier", "linear")):
            message = "missing" if self.classes is None else f"found {self.classes}, but no classifier"
            raise problem(message, "a classifier and a linear head have some, and nothing else does", "$.classes")
        return self

    def rows(self, vocab: int | None) -> int:
        """Rows of the head's matrix; 0 without one."""
        return {"logits": vocab, "none": 0}.get(self.kind, self.classes) or 0


class EndsParameters(ServingParameters):
    """Parameters that all layers of a model share, and its embedding and head.

    Attributes
    ----------
    hidden : features, e.g. 4096
        Features of the residual stream of one token (hidden size).
    vocab : tokens, e.g. 128256
        Size of the vocabulary, which is the number of rows of the embedding. None: the model has no embedding.
    norm : e.g. rmsnorm
        Normalization that the layers use. ``rmsnorm``: root mean square, without a bias. ``layernorm``: mean and
        variance, with a bias.
    final_norm : e.g. true
        Whether a norm follows the last layer.
    embedding_norm : e.g. false
        Whether a norm follows the embedding, as in BERT.
    tie_embeddings : e.g. false
        Whether the logits use the matrix of the embedding.
    learned_positions : positions, e.g. 1024
        Rows of a learned position embedding. 0 means the model has none.
    rotary_base : no unit, e.g. 500000.0
        Base of the rotary position embedding (theta). Exports to other tools need it, and no cost depends on it. None:
        unknown.
    rotary_scaling : no unit, e.g. 8.0
        Factor by which rotary positions are scaled for long contexts. Exports to other tools need it, and no cost
        depends on it. None: unknown.
    token_types : types, e.g. 2
        Rows of a learned embedding of token types, as in BERT. 0 means the model has none.
    input : e.g. [{inputs: 768, outputs: 768}]
        Products before the first layer, of a model without a vocabulary, such as the patches of an image.
    condition : e.g. {inputs: 256, classes: 1001}
        Condition that modulated layers and the final norm get for each sample, as in DiT. None: the model has no
        condition.
    form : e.g. absorbed
        Computation of latent attention where layers leave it open, for all segments or as a list. ``expanded``: keys
        and values of all heads are computed. ``absorbed``: queries are projected to the latents. None: the one with
        less work, and a search tries both.
    head : e.g. {kind: logits}
        Output of the model after the last norm.
    streams : e.g. {count: 4}
        Several residual streams (hyper-connections), as in DeepSeek-V4. None: one residual stream.

    Examples
    --------
    >>> EndsParameters(hidden=8, vocab=100, seq=16).end_parameters(active=False)
    1608
    """

    hidden: int = Field(ge=1, le=10**7)
    vocab: int | None = Field(default=None, ge=1, le=10**9)
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    final_norm: bool = True
    embedding_norm: bool = False
    tie_embeddings: bool = False
    learned_positions: int = Field(default=0, ge=0, le=10**9)
    rotary_base: float | None = Field(default=None, gt=0)
    rotary_scaling: float | None = Field(default=None, gt=0)
    token_types: int = Field(default=0, ge=0, le=10**6)
    input: tuple[Convolution, ...] = Field(default=(), max_length=100)
    condition: Conditioning | None = None
    form: Form | tuple[Form, ...] | None = None
    head: Head = Head()
    streams: Streams | None = None

    @property
    def residual(self) -> int:
        """Features of all residual streams together."""
        return self.hidden * (1 if self.streams is None else self.streams.count)

    @property
    def gains(self) -> int:
        """Number of parameters of one norm."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    @model_validator(mode="after")
    def _has_ends(self) -> Self:
        if self.vocab is None and self.head.kind == "logits":
            raise problem("found logits of a model without a vocabulary", "write another kind", "$.head.kind")
        if (self.vocab is None) != bool(self.input):
            message = "missing, and there is no input either" if self.vocab is None else "found beside an input"
            raise problem(message, "layers begin with an embedding or with products", "$.vocab")
        if self.tie_embeddings and self.head.kind != "logits":
            raise problem("found tied embeddings of a model without logits", "leave it out", "$.tie_embeddings")
        if self.condition is not None and (self.mode == "training" or not self.final_norm):
            message = "found one in a training step, whose gradients are not drawn, or without a final norm"
            raise problem(message, "write mode: forward and final_norm: true, or leave it out", "$.condition")
        segments = len(self.evaluation.segments)
        if isinstance(self.form, tuple) and len(self.form) != segments:
            message = f"found {len(self.form)} forms for {segments} segments"
            raise problem(message, "write one for all, or one for each", "$.form")
        if self.mode == "training" and self.form and self.form not in ("expanded", ("expanded",)):
            raise problem("found absorbed in a training step", "write expanded, or leave it out", "$.form")
        if self.mode == "training" and self.drawn_ends and self.head.kind == "none":
            raise problem("found none in a training step, which ends in a loss", "write ends: false", "$.head.kind")
        if self.mode == "training" and self.streams is not None:
            message = "found several streams in a training step, whose gradients are not drawn"
            raise problem(message, "write mode: forward", "$.streams")
        return self

    def end_parameters(self, *, active: bool) -> int:
        """Number of parameters of embedding and head; ``active``: only those that multiply, not looked-up tables."""
        head, rows = self.head, self.head.rows(self.vocab)
        products = self.hidden * rows + rows * head.bias + self.hidden * (self.hidden + 1) * head.pooler
        normed = self.embedding_norm + (self.final_norm and self.condition is None)
        products += self.gains * normed + sum(conv.parameters for conv in self.input)
        products += self.condition.parameters(self.hidden) if self.condition else 0
        products += 0 if self.streams is None else self.streams.end_parameters(self.hidden)
        return products + (0 if active else self.hidden * self.table_rows)

    @property
    def table_rows(self) -> int:
        """Rows of lookup tables, without a table tied to the logits."""
        own = 0 if self.tie_embeddings else self.vocab or 0
        return own + self.learned_positions + self.token_types + (self.condition.classes if self.condition else 0)

    def drawing(self) -> Drawing:
        """A new, empty drawing of a layer."""
        hidden = self.scores_dropout if self.hidden_dropout is None else self.hidden_dropout
        shape: dict[str, Any] = {
            "keeps": self.keeps,
            "page": self.page,
            "trains": self.mode == "training",
            "drops": [name for name, drops in (("scores", self.scores_dropout), ("hidden", hidden)) if drops],
            "routing": self.routing,
        }
        return Drawing(self.evaluation.segments, self.words, **shape)


def with_ends(graph: Graph, p: EndsParameters, joints: tuple[str, str]) -> Graph:
    """The graph of layers with embedding, final norm and logits around them.

    Parameters
    ----------
    graph
        The layers.
    p
        Sizes of the ends.
    joints
        The first and the last kernel of the layers.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 32}
    >>> graph = WORKLOADS["decoder"](**sizes, layers=2, drawn=2, ends=True)
    >>> [graph.kernels[position].name for position in (0, 1, -2, -1)]
    ['Embedding', 'Residual_In.0', 'RMSNorm_Final', 'Logits']
    >>> graph = WORKLOADS["decoder"](**sizes, layers=2, ends=True)
    >>> [(graph.kernels[position].name, graph.kernels[position].layer) for position in (0, 1, -1)]
    [('Embedding', 'embedding'), ('Residual_In', None), ('Logits', 'head')]
    """
    row_bytes = p.tokens * p.residual * p.words.activations  # one row per token
    front, back = _front(p), _back(p)
    tensors = [*front.tensors, Tensor(src=front.kernels[-1].name, dst=joints[0])]
    if back.kernels:
        tensors += [Tensor(src=joints[1], dst=back.kernels[0].name, bytes=_head_bytes(p, back)), *back.tensors]
    gradients = list[Kernel]()
    if graph.trains:
        gradients, more = _backward(p, front, back, joints, tensors)
        tensors += more
    first, last, sections = front.kernels, back.kernels, graph.sections
    if sections is not None:
        index, before = graph.index(), {kernel.name for kernel in front.kernels}
        crossing = [tensor for tensor in tensors if (tensor.src in index) != (tensor.dst in index)]
        tensors = [tensor for tensor in tensors if tensor not in crossing]

        def once(kernel: Kernel) -> Kernel:
            """A kernel of the ends whose tensors from and to the layers count as DRAM traffic."""
            exchanged = sum(kernel.name in (tensor.src, tensor.dst) for tensor in crossing) * row_bytes
            layer = FRONT if (kernel.stage_with or kernel.name) in before else BACK
            return kernel.model_copy(update={"layer": layer, "dram_bytes": kernel.dram_bytes + exchanged})

        sections = (Section(layers=(FRONT,)), *sections, *([Section(layers=(BACK,))] if last else []))
        first, last, gradients = ([once(kernel) for kernel in some] for some in (first, last, gradients))
    forward = [kernel for kernel in graph.kernels if kernel.pass_ == "forward"]
    layers_back = [kernel for kernel in graph.kernels if kernel.pass_ != "forward"]
    return Graph(
        **{
            **{name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"},
            "kernels": (*first, *forward, *last, *gradients, *layers_back),
            "tensors": (*graph.tensors, *tensors),
            "sections": sections,
            "carried": graph.carried if graph.folded else (),  # or nothing repeats
        }
    )


def _front(p: EndsParameters) -> Drawing:
    """The embedding, or the products that stand for it."""
    drawing, reads = p.drawing(), tuple[Read, ...]()
    if p.condition is not None:
        p.condition.draw(drawing, p.hidden)
    for number, conv in enumerate(p.input, start=1):
        positions, name = p.tokens * conv.per_token, f"Convolution_{number}"
        drawing.draw(Kernel(name=name, op="gemm", m=conv.outputs, k=conv.inputs, n=positions, module="ends"), *reads)
        following = p.input[number].inputs * p.tokens * p.input[number].per_token if number < len(p.input) else None
        # all of it where windows of positions overlap
        reads = (Read(name, None, following and drawing.bytes(min(following, conv.outputs * positions))),)
    tables = sum((p.vocab is not None, p.learned_positions > 0, p.token_types > 0))
    classes = p.evaluation.sequences if p.condition and p.condition.classes else 0
    rows = {"dram_bytes": tables * p.tokens + classes, "resident_bytes": p.table_rows}
    looked_up = {name: count * p.hidden * p.words.ends for name, count in rows.items()}
    last = drawing.pointwise("Embedding", p.hidden, *reads, **looked_up)
    if p.embedding_norm:
        drawing.pointwise(f"{NORMS[p.norm]}_Embedding", p.hidden, last, normalizes=True, role="norm")
    return drawing


def _back(p: EndsParameters) -> Drawing:
    """The final norm and the head."""
    drawing, few = p.drawing(), p.evaluation.sequences
    few = {"logits": p.wanted, "linear": p.tokens}.get(p.head.kind, few)
    last: tuple[Read | str, ...] = () if p.streams is None else (p.streams.end(drawing, p.hidden),)
    if p.final_norm:
        moved = {"dram_bytes": drawing.bytes(FINAL * p.hidden * p.evaluation.sequences)} if p.condition else {}
        last = (drawing.pointwise(f"{NORMS[p.norm]}_Final", p.hidden, *last, normalizes=True, role="norm", **moved),)
    # their tokens are no stream: they come from the ends of the sequences
    tokens: dict[str, Any] = {"n": few, "module": "ends"} | ({"stream": "none"} if few < p.tokens else {})
    part = drawing.bytes(few * p.hidden) if few < p.tokens else None
    output = {"output_class": "logits"} if p.dtypes is not None and p.head.kind == "logits" else {}
    head = p.head.kind.capitalize(), p.head.rows(p.vocab), output
    for name, rows, more in (("Pooler", p.hidden * p.head.pooler, {}), head):
        if rows:
            read = (Read(str(source), None, part) for source in last)
            last = (drawing.draw(Kernel(name=name, op="gemm", m=rows, k=p.hidden, **tokens, **more), *read),)
            part = None
    return drawing


def _head_bytes(p: EndsParameters, back: Sketch) -> float | None:
    """Bytes of the last layer's output that the ends read; none = all."""
    few = back.kernels[0].n
    return few * p.hidden * p.words.activations if few < p.tokens else None


def _backward(
    p: EndsParameters, front: Sketch, back: Sketch, joints: tuple[str, str], tensors: list[Tensor]
) -> tuple[list[Kernel], list[Tensor]]:
    """What training adds to the ends, seen from a graph in which two kernels stand for the layers."""
    drawing, head = p.drawing(), back.kernels[-1]
    for name in joints:
        drawing.pointwise(name, p.hidden)
    drawing.draw(Kernel(name="Cross_Entropy", op="elementwise", m=head.m, n=head.n, stream=head.stream))
    *layers, loss = drawing.kernels  # of a forward pass the loss is not drawn
    forward = Graph(
        name="ends",
        **p.typed,
        kernels=(*front.kernels, *layers, *back.kernels, loss),
        tensors=(*tensors, Tensor(src=head.name, dst=loss.name)),
    )
    gradients = [_gradient_of(joint) for joint in joints]
    embedding = next(kernel for kernel in front.kernels if kernel.name == "Embedding")
    # A row of the gradient is read, added to and written back; the gradient itself has as many as the table.
    size = p.words.activations / p.words.ends
    adds = {"dram_bytes": 2 * size * embedding.dram_bytes, "resident_bytes": size * embedding.resident_bytes}
    passes = {} if p.loss_bytes is None else {"dram_bytes": p.loss_bytes * head.m * head.n}
    passes |= {"mask_bytes": p.loss_held} if p.loss_held else {}
    rules = {
        embedding.name: Gradient(fields=adds),
        joints[0]: Gradient(gradients[0], reads=()),
        joints[1]: Gradient(gradients[1]),
        loss.name: Gradient("Loss", fields={"stage_with": head.name} | passes),
    }
    trained = backward_of(forward, rules)
    drawn = [kernel for kernel in trained.kernels[len(forward.kernels) :] if kernel.name not in gradients]
    return drawn, list(trained.tensors[len(forward.tensors) :])


def _gradient_of(joint: str) -> str:
    """The gradient of a kernel of the layers, which may be one of several copies or belong to one of several kinds."""
    name, dot, copy = joint.rpartition(".")
    return f"{name}_bwd.{copy}" if dot and copy.isdecimal() else f"{joint}_bwd"
