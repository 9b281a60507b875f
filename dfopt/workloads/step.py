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

__all__ = ["ServingParameters", "StepParameters"]


class StepParameters(Part):
    """Samples of one evaluation and of a step.

    Examples
    --------
    >>> StepParameters(seq=16, microbatch=3).tokens
    48
    """

    seq: int = Field(ge=1, le=10**8, description="tokens in a sample")
    microbatch: int = Field(default=1, ge=1, le=10**6, description="samples in one evaluation of the graph")
    batch: int | None = Field(
        default=None, ge=1, le=10**12, description="samples in one step; one microbatch if left out"
    )
    mode: Literal["forward", "training"] = Field(default="forward", description="forward pass only, or a training step")
    word_bytes: int = Field(default=2, ge=1, le=16, description="bytes per element, of a graph that states no dtypes")
    dtypes: Dtypes | None = Field(
        default=None, description="types of its data by class; those left out are bf16. none = word_bytes for all"
    )
    causal: bool = Field(
        default=False, description="a token attends to itself and to those before it: other scores are not computed"
    )
    recompute: Recompute = Field(
        default="none",
        description="training: what the backward pass computes again instead of keeping it. attention: the"
        " scores, as FlashAttention does; full: all of a layer but its input; full+attention: and the scores once more;"
        " layernorm, mlp, moe, moe_act, mla_up_proj: as Megatron-LM's modules; op: as torchtitan's, all but every"
        " second product. Several are joined by +; behind a stroke what the other layers of a stage do",
    )

    main_gradients: Dtype | None = Field(
        default=None,
        description="training: type in which gradients of parameters are held, to which microbatches add; none = fp32",
    )
    trained: Trained | None = Field(
        default=None,
        description="training: types of gradients that copies add up, of main weights and of moments; none = by the"
        " types of activations and by assumptions",
    )

    @property
    def evaluation(self) -> Phase:
        """What one evaluation works on: whole samples."""
        one = Segment(sequences=self.microbatch, new=self.seq, sees="causal" if self.causal else "full")
        return Phase(segments=(one,))

    @property
    def tokens(self) -> int:
        """Tokens of one evaluation."""
        return self.evaluation.tokens

    @property
    def wanted(self) -> int:
        """Tokens whose logits are computed; of a whole sample all."""
        return self.tokens

    @property
    def produced(self) -> int | None:
        """Tokens that sequences gain at least; none of whole samples."""
        return None

    @property
    def variant(self) -> str | None:
        """What the graph is called among those that compute the same: after what a training step computes again."""
        return None if self.mode == "forward" or self.recompute == "none" else f"recompute: {self.recompute}"

    @property
    def words(self) -> Words:
        """Bytes of an element of every class of data."""
        return words_of(self.dtypes, self.word_bytes)

    @property
    def typed(self) -> dict[str, Any]:
        """Fields of a graph that say how many bytes its elements have."""
        return {"word_bytes": self.word_bytes, "dtypes": self.dtypes}

    @property
    def sized(self) -> dict[str, Any]:
        """Fields of the graph."""
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
    """Samples of one evaluation, or a phase of serving.

    Examples
    --------
    >>> ServingParameters(seq=16, phase="decode", context=99).evaluation.segments[0].keys
    100
    >>> ServingParameters(seq=16, phase="mixed", segments="1x512@0,16x1@4096", microbatch=2).tokens
    1056
    """

    ends: bool | None = Field(
        default=None,
        description="draw embedding, final norm, logits and in training the loss; they load the first and last stage."
        " none = in serving, that is with a phase, and in training",
    )
    phase: Literal["prefill", "decode", "verify", "mixed"] | Phase | None = Field(
        default=None,
        description="serving: prefill (seq is the prompt), decode (one token behind context), verify (a draft more),"
        " mixed (some of these in one evaluation: segments), or what that name stands for; keys and values are then"
        " kept in DRAM. none = a whole sample that nothing is kept of",
    )
    context: int | None = Field(
        default=None, ge=0, le=10**8, description="decode, verify: cached tokens of every sequence; seq if left out"
    )
    draft: int = Field(default=0, ge=0, le=10**6, description="verify: tokens of a draft behind the last one")
    tree: Annotated[tuple[int, ...], BeforeValidator(_listed)] | None = Field(
        default=None,
        min_length=1,
        max_length=10**5,
        description="verify: instead of a draft a tree of them, as the depth of each, such as 0,1,1,2; the first is the"
        " token that is there already",
    )
    hit: int = Field(default=0, ge=0, le=10**8, description="prefill: tokens of the prompt that are cached already")
    segments: Segments | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="mixed: what a sample is then, such as 1x512@0,16x1@4096: a sequence of 512 new tokens, and 16 of"
        " one behind 4096 cached ones",
    )
    positions: int | None = Field(
        default=None, ge=1, le=10**9, description="tokens of a sequence that the model is made for; none = not said"
    )
    page: int = Field(default=1, ge=1, le=10**6, description="cached tokens that are given DRAM together")
    routing: Routing | None = Field(
        default=None,
        description="of experts, who is sent where: uniform, balanced, power_law(1.2), or, as counted tokens of each,"
        " counts(30, 10, ...); with 32 copies more of the busiest, + 32; none = uniform",
    )

    scores_dropout: bool = Field(
        default=False,
        description="training: a kernel behind the softmax of scores drops some, and keeps a mask of a byte",
    )
    hidden_dropout: bool | None = Field(
        default=None,
        description="training: some hidden features are dropped by the kernel that adds them to the residual, as in"
        " Megatron-LM, which keeps a mask of a byte; none = as scores_dropout says",
    )
    loss_bytes: Bytes | None = Field(
        default=None,
        ge=0,
        description="training: what a loss of several kernels moves to and from DRAM for every logit, beside reading it"
        " and writing its gradient; none = it is one kernel",
    )
    loss_held: Bytes | None = Field(
        default=None,
        ge=0,
        description="training: what a loss holds for every logit while it runs, beside this and its gradient: 12 ="
        " log-softmax and the gradients of two kernels in fp32 (PyTorch's cross_entropy), 8 = logits and softmax in"
        " fp32 (Megatron-LM's, which works in place); none = nothing, as a fused one",
    )

    @property
    def keeps(self) -> bool:
        """Whether anything is kept of the tokens for the next evaluation."""
        return self.phase is not None

    @property
    def drawn_ends(self) -> bool:
        """Whether embedding, final norm and logits are drawn."""
        return self.keeps or self.mode == "training" if self.ends is None else self.ends

    @property
    def evaluation(self) -> Phase:
        """What one evaluation works on."""
        if self.phase is None:
            return super().evaluation
        return self.phase if isinstance(self.phase, Phase) else _PHASES[self.phase](self)

    @property
    def wanted(self) -> int:
        """Tokens whose logits are computed; of a whole sample all."""
        return self.tokens if self.phase is None else self.evaluation.wanted

    @property
    def produced(self) -> int | None:
        """Tokens that sequences gain at least; none of whole samples."""
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
                found = getattr(self, name)
                found = ", ".join(map(str, found)) if isinstance(found, tuple) else found
                message = f"found {found}, which is of {' and '.join(needs)} only"
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
        if isinstance(self.phase, Phase):
            if self.phase.backward:
                raise problem("found a backward pass", "write mode: training, and no phase", "$.phase.backward")
            if self.phase.sequences != self.microbatch:
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
