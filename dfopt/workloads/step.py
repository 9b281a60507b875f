"""What one evaluation of a model works on, as parameters that workloads share: whole samples, or a phase of serving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.dtypes import Dtype, Dtypes, Trained, Words, check_word_bytes, words_of
from dfopt.documents.phase import Phase, Segment, Segments, check_depths, decode, prefill, verify
from dfopt.documents.routing import Routing
from dfopt.documents.tokens import Tokens
from dfopt.units import Bytes
from dfopt.workloads.checks import check_batch
from dfopt.workloads.recompute import Recompute


class StepParameters(Part):
    """Samples of one evaluation and of a step, and the mode.

    Attributes
    ----------
    seq : tokens, e.g. 2048
        Tokens of one sample; in prefill, tokens of the prompt.
    microbatch : samples, e.g. 4
        Samples that one evaluation of the graph processes.
    batch : samples, e.g. 2304
        Samples of one step, over all data-parallel replicas. None: one microbatch.
    mode : e.g. training
        Passes that the graph contains. ``forward``: only the forward pass. ``training``: a whole training step.
    word_bytes : B, e.g. 2
        Size of one element of all data, in a graph without ``dtypes``.
    dtypes : e.g. {weights: fp8, kv: fp8}
        Data types of weights, activations, caches and logits. Classes that you leave out have bf16. None: all elements
        have ``word_bytes``.
    causal : e.g. true
        Whether a token attends only to itself and to earlier tokens. Other attention scores are then not computed.
    recompute : e.g. attention
        Activation recomputation in training. ``none`` recomputes nothing, ``attention`` the attention scores, ``full``
        all of a layer except its input. ``layernorm``, ``mlp``, ``moe``, ``moe_act`` and ``mla_up_proj`` are the
        modules of Megatron-LM, and ``op`` is torchtitan's selective mode. Join several with +. After a slash, name the
        mode of the other layers of a stage.
    main_gradients : e.g. fp32
        Data type in which training stores the gradients of weights, to which each microbatch adds. None: fp32.
    trained : e.g. {reduced: fp32, moments: fp32}
        Data types of reduced gradients, main weights and optimizer moments in training. None: as the activations and
        the assumptions say.

    Examples
    --------
    >>> StepParameters(seq=16, microbatch=3).tokens
    48
    """

    seq: int = Field(ge=1, le=10**8)
    microbatch: int = Field(default=1, ge=1, le=10**6)
    batch: int | None = Field(default=None, ge=1, le=10**12)
    mode: Literal["forward", "training"] = "forward"
    word_bytes: int = Field(default=2, ge=1, le=16)
    dtypes: Dtypes | None = None
    causal: bool = False
    recompute: Recompute = "none"

    main_gradients: Dtype | None = None
    trained: Trained | None = None

    @property
    def evaluation(self) -> Phase:
        """The phase of one evaluation: whole samples."""
        segment = Segment(sequences=self.microbatch, new=self.seq, sees="causal" if self.causal else "full")
        return Phase(segments=(segment,))

    @property
    def tokens(self) -> int:
        """Number of tokens of one evaluation."""
        return self.evaluation.tokens

    @property
    def wanted(self) -> int:
        """Number of tokens whose logits are computed: all tokens of a whole sample."""
        return self.tokens

    @property
    def produced(self) -> int | None:
        """Least number of new tokens; None for whole samples."""
        return None

    @property
    def variant(self) -> str | None:
        """Name of the graph among those that compute the same, by what a training step recomputes."""
        return None if self.mode == "forward" or self.recompute == "none" else f"recompute: {self.recompute}"

    @property
    def words(self) -> Words:
        """Bytes of an element of every data class."""
        return words_of(self.dtypes, self.word_bytes)

    @property
    def typed(self) -> dict[str, Any]:
        """Graph fields for the data types or word size."""
        return {"word_bytes": self.word_bytes, "dtypes": self.dtypes}

    @property
    def sized(self) -> dict[str, Any]:
        """Graph fields for batch, tokens and data types."""
        trained = {"main_gradients": self.main_gradients or "fp32", "trained": self.trained}
        held = trained if self.mode == "training" else {}
        return {
            **self.typed,
            **held,
            "microbatch": self.microbatch,
            "batch": self.batch or self.microbatch,
            "tokens": Tokens(processed=self.tokens, produced=self.produced),
        }

    @model_validator(mode="before")
    @classmethod
    def _scores_kept(cls, data: Any) -> Any:
        """Earlier files said of the scores whether they are kept."""
        if not isinstance(data, Mapping) or not isinstance(data.get("scores_kept"), bool) or "recompute" in data:
            return data
        again = "none" if data["scores_kept"] else "attention"
        return {**{name: value for name, value in data.items() if name != "scores_kept"}, "recompute": again}

    @model_validator(mode="after")
    def _trains_what_it_says(self) -> Self:
        for name in ("main_gradients", "trained"):
            if self.mode == "forward" and getattr(self, name) is not None:
                message = "found it of a forward pass, which has no gradients and no optimizer"
                raise problem(message, "write mode: training, or leave it out", f"$.{name}")
        return self

    @model_validator(mode="after")
    def _whole_microbatches(self) -> Self:
        check_batch(self.batch, self.microbatch)
        check_word_bytes(self.dtypes, self.word_bytes)
        return self


def _listed(data: Any) -> Any:
    """Numbers from text with commas; what is none is left to be refused."""
    if isinstance(data, int) and not isinstance(data, bool):
        return (data,)
    if not isinstance(data, str):
        return data
    words = [word.strip() for word in data.split(",")]
    return [int(word) if word.isdecimal() else word for word in words]


class ServingParameters(StepParameters):
    """Samples of one evaluation, or a serving phase.

    Attributes
    ----------
    ends : e.g. true
        Whether the graph contains the embedding, the final norm, the logits and, in training, the loss. They add work
        to the first and the last pipeline stage. None: in serving and in training it does.
    phase : e.g. decode
        Phase of serving. ``prefill``: prompts of ``seq`` tokens. ``decode``: one token per sequence after ``context``
        cached tokens. ``verify``: a draft of speculative decoding. ``mixed``: several of these in one evaluation, given
        by ``segments``. None: whole samples without a KV cache.
    context : tokens, e.g. 4096
        Cached tokens of every sequence in decode and verify. None: ``seq``.
    draft : tokens, e.g. 4
        Draft tokens per sequence that one verify step of speculative decoding checks, in addition to the last token.
    tree : depths, e.g. [0, 1, 1, 2]
        Depth of each token of a draft tree in verify, starting with 0 for the token that exists already. It replaces
        ``draft``. None: the draft is a chain.
    hit : tokens, e.g. 1024
        Tokens of the prompt whose keys and values are cached already (cached prefix), in prefill.
    segments : e.g. [1x512@0, 16x1@4096]
        Groups of sequences of one sample in a mixed phase, as SEQUENCESxNEW@CACHED. None: the phase is another one.
    positions : tokens, e.g. 131072
        Longest sequence that the model supports. None: unknown.
    page : tokens, e.g. 16
        Cached tokens that share one allocation of DRAM. A sequence occupies whole pages.
    routing : e.g. power_law(1.2)
        Distribution of tokens over experts: uniform, balanced, power_law(1.2), or counts(30, 10, 10) for measured
        tokens of each expert. A suffix such as + 32 adds replicas of the most loaded experts. None: uniform.
    scores_dropout : e.g. true
        Whether training drops some attention scores after the softmax, and stores a mask of one byte per score.
    hidden_dropout : e.g. true
        Whether training drops some hidden features before they are added to the residual stream, and stores a mask of
        one byte each, as Megatron-LM does. None: as ``scores_dropout``.
    loss_bytes : e.g. 12 B
        DRAM traffic of a loss with several kernels, per logit, in addition to reading it and writing its gradient.
        None: the loss is one kernel.
    loss_held : e.g. 8 B
        DRAM that the loss occupies per logit while it runs, in addition to the logit and its gradient. PyTorch's
        cross_entropy takes 12 B and Megatron-LM's 8 B. None: 0, as for a fused loss.

    Examples
    --------
    >>> ServingParameters(seq=16, phase="decode", context=99).evaluation.segments[0].keys
    100
    >>> ServingParameters(seq=16, phase="mixed", segments="1x512@0,16x1@4096", microbatch=2).tokens
    1056
    """

    ends: bool | None = None
    phase: Literal["prefill", "decode", "verify", "mixed"] | Phase | None = None
    context: int | None = Field(default=None, ge=0, le=10**8)
    draft: int = Field(default=0, ge=0, le=10**6)
    tree: Annotated[tuple[int, ...], BeforeValidator(_listed)] | None = Field(
        default=None, min_length=1, max_length=10**5
    )
    hit: int = Field(default=0, ge=0, le=10**8)
    segments: Segments | None = Field(default=None, min_length=1, max_length=16)
    positions: int | None = Field(default=None, ge=1, le=10**9)
    page: int = Field(default=1, ge=1, le=10**6)
    routing: Routing | None = None

    scores_dropout: bool = False
    hidden_dropout: bool | None = None
    loss_bytes: Bytes | None = Field(default=None, ge=0)
    loss_held: Bytes | None = Field(default=None, ge=0)

    @property
    def keeps(self) -> bool:
        """Whether any state is kept for the next evaluation."""
        return self.phase is not None

    @property
    def drawn_ends(self) -> bool:
        """Whether embedding, final norm and logits are drawn."""
        return self.keeps or self.mode == "training" if self.ends is None else self.ends

    @property
    def evaluation(self) -> Phase:
        """The phase of one evaluation."""
        if self.phase is None:
            return super().evaluation
        return self.phase if isinstance(self.phase, Phase) else _PHASES[self.phase](self)

    @property
    def wanted(self) -> int:
        """Number of tokens whose logits are computed: all tokens of a whole sample."""
        return self.tokens if self.phase is None else self.evaluation.wanted

    @property
    def produced(self) -> int | None:
        """Least number of new tokens; None for whole samples."""
        return None if self.phase is None else self.evaluation.produced

    @model_validator(mode="after")
    def _is_one_phase(self) -> Self:
        if self.phase is not None and self.mode == "training":
            raise problem("found a phase of serving in a training step", "leave one of them out", "$.phase")
        if self.mode == "training" and self.routing is not None and self.routing.redundant is not None:
            message = f"found {self.routing.redundant} copies of experts in a training step"
            raise problem(message, "leave them to serving: gradients of copies are not added up", "$.routing.redundant")
        for name, needs in _NEEDS.items():
            if name in self.model_fields_set and getattr(self, name) is not None and self.phase not in needs:
                value = getattr(self, name)
                value = ", ".join(map(str, value)) if isinstance(value, tuple) else value
                message = f"found {value}, which is of {' and '.join(needs)} only"
                raise problem(message, f"write phase: {needs[0]}, or leave it out", f"$.{name}")
        if self.phase == "prefill" and self.hit >= self.seq:
            message = f"found {self.hit} cached tokens of a prompt of {self.seq}: at least one is left to process"
            raise problem(message, f"at most {self.seq - 1}", "$.hit")
        if self.tree is not None:
            if "draft" in self.model_fields_set:
                message = f"found a tree beside a draft of {self.draft}"
                raise problem(message, "leave one of them out", "$.tree")
            check_depths(self.tree, "$.tree")
        if self.phase == "mixed" and self.segments is None:
            message = "missing: phase mixed is a union of some"
            raise problem(message, "write such as 1x512@0,16x1@4096", "$.segments")
        if isinstance(self.phase, Phase) and self.phase.sequences != self.microbatch:
            message = f"found {self.phase.sequences} sequences, but a microbatch of {self.microbatch}"
            raise problem(message, "make them equal", "$.phase.segments")
        for name in ("loss_bytes", "loss_held"):
            if getattr(self, name) is not None and not (self.mode == "training" and self.drawn_ends):
                remedy = "leave it out, or draw a training step with its ends"
                raise problem("found it without a loss", remedy, f"$.{name}")
        if self.phase is not None and self.drawn_ends and not self.evaluation.wanted:
            where = "$.segments" if self.phase == "mixed" else "$.phase.segments"
            raise problem("found no token whose logits are wanted", "write ends: false", f"{where}[0].logits")
        return self

    @model_validator(mode="after")
    def _sees_what_it_says(self) -> Self:
        if self.phase is not None and "causal" in self.model_fields_set and not self.causal:
            message = "found false, but a phase of serving says who sees whom: a prompt is causal"
            raise problem(message, "leave it out, or leave the phase out", "$.causal")
        learned = getattr(self, "learned_positions", 0) if self.phase is not None else 0
        limit = self.positions or learned
        behind = max(segment.keys for segment in self.evaluation.segments) - 1  # a decode step may fill all of them
        if limit and behind > limit:
            where = "$.context" if self.context is not None else "$.segments" if self.segments else "$.seq"
            message = f"found a token behind {behind} others, but the model has {limit} positions"
            raise problem(message, "shorten it, or write more positions, where they are scaled", where)
        return self


def _context(p: ServingParameters) -> int:
    return p.seq if p.context is None else p.context


_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "context": ("decode", "verify"),
    "draft": ("verify",),
    "tree": ("verify",),
    "hit": ("prefill",),
    "segments": ("mixed",),
}
_PHASES: Final[dict[str, Callable[[ServingParameters], Phase]]] = {
    "prefill": lambda p: prefill(p.microbatch, p.seq, p.hit),
    "decode": lambda p: decode(p.microbatch, _context(p)),
    "verify": lambda p: verify(p.microbatch, _context(p), p.draft, p.tree),
    "mixed": lambda p: Phase(segments=p.segments or ()).times(p.microbatch),
}
