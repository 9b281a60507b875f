"""What a decoder is built from, and how many parameters such a model has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.experts import Experts, touched_experts
from dfopt.documents.graph import SequenceState
from dfopt.documents.phase import Phase, Segment, decode, prefill, verify
from dfopt.workloads.layer import LayerParameters

__all__ = ["DecoderParameters", "parameter_count"]


class DecoderParameters(LayerParameters):
    """What a decoder is built from.

    ``heads * head_dim`` may differ from ``hidden``, as it does in Qwen3, Gemma and Mistral Nemo. What is said to
    be for the parameter count changes nothing in the graph.

    Examples
    --------
    >>> DecoderParameters(hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=192, vocab=1000, seq=32).group
    4
    """

    heads: int = Field(ge=1, le=10**5, description="query heads")
    kv_heads: int | None = Field(
        default=None, ge=1, le=10**5, description="heads of K and of V, a divisor of heads; as many if left out"
    )
    rotary: bool = Field(default=True, description="rotary position embedding of Q and K")
    ffn: int = Field(ge=1, le=10**8, description="features inside the MLP")
    experts: int | None = Field(
        default=None,
        ge=1,
        le=10**6,
        description="experts of every layer's MLP, with ffn features inside each; none = 1",
    )
    chosen: int = Field(default=1, ge=1, le=10**6, description="experts that a token is sent to")
    gated_mlp: bool = Field(default=True, description="gate, up and down projection, or up and down only")
    norm: Literal["rmsnorm", "layernorm"] = Field(default="rmsnorm", description="LayerNorm has a bias, RMSNorm none")
    post_norm: bool = Field(default=False, description="a norm behind attention and behind the MLP too, as in Gemma 2")
    vocab: int = Field(ge=1, le=10**9, description="rows of the embedding; for ends and the parameter count")
    tie_embeddings: bool = Field(
        default=False, description="logits with the embedding's matrix; for ends and the parameter count"
    )
    learned_positions: int = Field(
        default=0, ge=0, le=10**9, description="rows of a learned position embedding; for the parameter count"
    )
    bias: Literal["none", "qkv", "all"] = Field(
        default="none", description="projections with a bias; for the parameter count"
    )
    published_parameters: int | None = Field(
        default=None, ge=1, le=10**15, description="as published, to compare the parameter count with"
    )
    ends: bool | None = Field(
        default=None,
        description="draw embedding, final norm and logits too; they load the first and last stage. none = in serving,"
        " that is with a phase",
    )
    window: int | None = Field(
        default=None, ge=1, le=10**8, description="tokens that local layers attend to; seq must fit, none if left out"
    )

    phase: Literal["prefill", "decode", "verify"] | Phase | None = Field(
        default=None,
        description="serving: prefill (seq is the prompt), decode (one token behind context), verify (a draft more), or"
        " the segments of one evaluation; keys and values are then kept in DRAM. none = a whole sample that nothing is"
        " kept of",
    )
    context: int | None = Field(
        default=None, ge=0, le=10**8, description="decode, verify: cached tokens of every sequence; seq if left out"
    )
    draft: int = Field(default=0, ge=0, le=10**6, description="verify: tokens of a draft behind the last one")
    hit: int = Field(default=0, ge=0, le=10**8, description="prefill: tokens of the prompt that are cached already")
    page: int = Field(default=1, ge=1, le=10**6, description="cached tokens that are given DRAM together")

    @property
    def drawn_ends(self) -> bool:
        """Whether embedding, final norm and logits are drawn."""
        return self.phase is not None if self.ends is None else self.ends

    @property
    def segment(self) -> Segment:
        """What one evaluation works on: one segment for all of its sequences."""
        if self.phase is None:
            return super().segment
        found = self.phase if isinstance(self.phase, Phase) else _PHASES[self.phase](self)
        return found.segments[0]

    @property
    def wanted(self) -> int:
        """Tokens whose logits are computed; of a whole sample all."""
        return self.tokens if self.phase is None else self.segment.wanted

    @property
    def queries(self) -> dict[str, Any]:
        """The token axis of attention; one token of each sequence is no stream, and cuts no other kernel's short."""
        new = self.segment.new
        return {"n": new, "stream": "none"} if self.phase is not None and new == 1 else {"n": new}

    def cache(self, name: str) -> tuple[SequenceState, ...] | None:
        """Keys or values of the K/V heads: cached ones are read, those of new tokens are written."""
        if self.phase is None:
            return None
        one, token = self.segment, self.groups * self.head_dim * self.word_bytes
        state = SequenceState(
            name=name,
            sequences=one.sequences,
            heads=self.groups,
            bytes_per_token=token,
            tokens=one.keys,
            reads=one.cached,
            writes=one.new,
            page=self.page,
        )
        return (state,)

    @property
    def inside(self) -> int:
        """Features inside the MLP of a token: those of the experts that it chooses, side by side."""
        return self.ffn * self.chosen

    @property
    def routed(self) -> Experts | None:
        """What the MLP holds and reads of experts, if it has any: under uniform routing."""
        if self.experts is None:
            return None
        read = touched_experts(self.experts, self.chosen, self.tokens)
        return Experts(count=self.experts, chosen=self.chosen, touched=read)

    @property
    def groups(self) -> int:
        """Heads of K and of V, each with a group of query heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def group(self) -> int:
        """Query heads that share a K/V head."""
        return self.heads // self.groups

    @property
    def norm_name(self) -> str:
        """What the norms are called."""
        return "RMSNorm" if self.norm == "rmsnorm" else "LayerNorm"

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.heads % self.groups:
            raise problem(
                f"found {self.groups} K/V heads, expected a divisor of the {self.heads} query heads",
                "choose a divisor, or leave it out",
                "$.kv_heads",
            )
        if self.chosen > (self.experts or 1):
            message = f"found {self.chosen} experts for a token, of {self.experts or 1}"
            raise problem(message, "at most all of them: see experts", "$.chosen")
        if self.experts is not None and self.mode == "training":
            raise problem("found experts in a training step", "only serving and a forward pass are drawn", "$.experts")
        self._check_phase()
        keys = self.segment.keys
        if self.window is not None and keys > self.window:
            raise problem(
                f"found {keys} tokens in a sample, but local layers attend to {self.window}: layers would differ",
                "shorten seq, or leave window out to let every layer attend to all tokens",
                "$.seq",
            )
        self.check_counts()
        return self

    def _check_phase(self) -> None:
        if self.phase is not None and self.mode == "training":
            raise problem("found a phase of serving in a training step", "leave one of them out", "$.phase")
        for name, needs in (("context", ("decode", "verify")), ("draft", ("verify",)), ("hit", ("prefill",))):
            if name in self.model_fields_set and self.phase not in needs:
                message = f"found {getattr(self, name)}, which is of {' and '.join(needs)} only"
                raise problem(message, f"write phase: {needs[0]}, or leave it out", f"$.{name}")
        if self.phase == "prefill" and self.hit >= self.seq:
            message = f"found {self.hit} cached tokens of a prompt of {self.seq}: at least one is left to process"
            raise problem(message, f"at most {self.seq - 1}", "$.hit")
        if isinstance(self.phase, Phase):
            if self.phase.backward:
                raise problem("found a backward pass", "write mode: training, and no phase", "$.phase.backward")
            if len(self.phase.segments) > 1:
                message = f"found {len(self.phase.segments)} segments in one evaluation, expected one"
                raise problem(message, "give each a graph of its own", "$.phase.segments")
            if self.drawn_ends and not self.phase.wanted:
                raise problem(
                    "found no token whose logits are wanted", "write ends: false", "$.phase.segments[0].logits"
                )
            if self.phase.sequences != self.microbatch:
                message = f"found {self.phase.sequences} sequences, but a microbatch of {self.microbatch}"
                raise problem(message, "make them equal", "$.phase.segments[0].sequences")


_PHASES: Final[dict[str, Callable[[DecoderParameters], Phase]]] = {
    "prefill": lambda p: prefill(p.microbatch, p.seq, p.hit),
    "decode": lambda p: decode(p.microbatch, p.seq if p.context is None else p.context),
    "verify": lambda p: verify(p.microbatch, p.seq if p.context is None else p.context, p.draft),
}


def parameter_count(parameters: DecoderParameters, *, active: bool = False) -> int:
    """Parameters of the whole model, with what the graph does not draw; or those that one token uses.

    Embedding, logits unless tied to it, learned positions if any, the matrices of attention and MLP, their biases
    where ``bias`` says so, the norms of every layer and the final one. Norms of Q and K are left out: they hold
    ``2 * head_dim`` elements a layer.

    Examples
    --------
    Llama 3.1 8B:

    >>> llama = DecoderParameters(
    ...     hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, layers=32, vocab=128256, seq=8192
    ... )
    >>> parameter_count(llama)
    8030261248
    """
    p = parameters
    width, kv_width, into_mlp = p.width, p.groups * p.head_dim, 2 if p.gated_mlp else 1
    attention = p.hidden * (width + 2 * kv_width) + width * p.hidden
    mlp = (into_mlp + 1) * p.hidden * p.ffn * ((p.chosen if active else p.experts) or 1)
    mlp += p.hidden * (p.experts or 0)  # the router
    biases = 0 if p.bias == "none" else width + 2 * kv_width
    if p.bias == "all":
        biases += p.hidden + into_mlp * p.ffn + p.hidden
    norm = p.hidden * (2 if p.norm == "layernorm" else 1)
    layer = attention + mlp + biases + norm * (4 if p.post_norm else 2)
    embeddings = p.vocab * (1 if p.tie_embeddings else 2) + p.learned_positions
    return p.layers * layer + norm + p.hidden * embeddings
