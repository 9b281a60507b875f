"""What kernels keep for sequences between evaluations."""

from __future__ import annotations

from pydantic import Field

from dfopt.documents.base import Part

__all__ = ["SequenceState"]


class SequenceState(Part):
    """What a kernel keeps in DRAM for every sequence from step to step: keys, values, latents, recurrent states.

    Sequences of all microbatches have theirs at the same time. ``heads`` says what divides it: a chip holds those that
    its share of the kernel's ``outer`` belongs to, and all of a state of one head.

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
