"""What kernels keep for sequences between evaluations."""

from __future__ import annotations

from pydantic import Field

from dfopt.documents.base import Part

__all__ = ["SequenceState"]


class SequenceState(Part):
    """What a kernel keeps in DRAM for every sequence from step to step: keys, values, latents, recurrent states.

    Sequences of all microbatches have theirs at the same time. ``heads`` says what divides it: a chip holds those that
    its share of the kernel's ``outer`` belongs to, and all of a state of one head.

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
    sequences: int = Field(ge=1, le=10**9, description="in one evaluation")
    heads: int = Field(default=1, ge=1, le=10**5, description="heads that it is of, a divisor of the kernel's outer")
    bytes_per_token: int = Field(default=0, ge=0, le=10**12, description="of all heads, for each token that is held")
    bytes_per_sequence: int = Field(
        default=0,
        ge=0,
        le=10**15,
        description="of all heads, whatever the tokens; written in each evaluation, and read but by the first tokens",
    )
    tokens: int = Field(default=0, ge=0, le=10**9, description="of a sequence that are held in the end")
    reads: int = Field(default=0, ge=0, le=10**9, description="tokens of a sequence that an evaluation reads")
    writes: int = Field(default=0, ge=0, le=10**9, description="tokens of a sequence that an evaluation adds")
    page: int = Field(default=1, ge=1, le=10**6, description="tokens that are given DRAM together")

    @property
    def held_bytes(self) -> int:
        """Bytes of whole pages, over all heads."""
        tokens = -(-self.tokens // self.page) * self.page
        return self.sequences * (tokens * self.bytes_per_token + self.bytes_per_sequence)

    @property
    def read_bytes(self) -> int:
        """Bytes that an evaluation reads, over all heads; of a sequence without earlier tokens there is nothing yet."""
        fresh = self.tokens > 0 and self.reads == 0
        return self.sequences * (self.reads * self.bytes_per_token + (0 if fresh else self.bytes_per_sequence))

    @property
    def written_bytes(self) -> int:
        """Bytes that an evaluation writes, over all heads."""
        return self.sequences * (self.writes * self.bytes_per_token + self.bytes_per_sequence)
