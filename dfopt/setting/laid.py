"""How the kernels of a graph lie on the second axis: what one chip has of each, by the scheme of its module."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal

from dfopt.arrays import ROUNDING
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, SequenceState, Tensor
from dfopt.documents.kernel import needed, operand_shape
from dfopt.documents.modules import Modules, ModuleScheme
from dfopt.documents.routing import Routing
from dfopt.physics.spread import ExpertLoad, spread

Lies = Literal["whole", "tokens", "sums", "experts", "features", "keys", "gradient"]

_ONWARDS: Final = ("forward", "recompute")
"""Passes of kernels that are no gradients."""
_OVER_KEYS: Final = {"scores": "m", "softmax": "m", "scores_dropout": "m", "context": "k"}
"""Kernels of attention by their role, with the axis that keys are along."""
_TURNED: Final = {"m": ("k", "n"), "k": ("m", "m"), "outer": ("k", "n")}
"""Axis of a product with a weight -> that of the gradient of its input, and of the gradient of its weight."""
_LYING: Final[dict[str, tuple[Lies, Lies]]] = {
    "k": ("features", "sums"),
    "m": ("whole", "features"),
    "outer": ("features", "features"),
}
"""Axis of a gradient of features -> how it needs what it reads, and how it lies."""


class Unsplit(Exception):
    """Raised where a module cannot take a scheme; the message says why."""


@dataclass(frozen=True)
class KernelLayout:
    """Layouts of a kernel on one chip of the second axis.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    needs, makes : Lies
        Layout of its inputs, and of its output.
    cut : int, optional
        The only operand of a weight update that chips share, if not both.
    """

    kernel: Kernel
    needs: Lies
    makes: Lies
    cut: int | None = None


class Laid:
    """A graph shared out over the second axis: the layout of every kernel and tensor."""

    def __init__(self, model: Graph, modules: Modules, members: int, first: int) -> None:
        self.model, self.modules, self.members, self.first = model, modules, members, first
        self.samples = Fraction(-(-model.microbatch // members), model.microbatch)
        self.of = {kernel.name: kernel for kernel in model.kernels}
        self.into: dict[str, list[Tensor]] = defaultdict(list)
        self.out: dict[str, list[Tensor]] = defaultdict(list)
        for tensor in model.tensors:
            self.into[tensor.dst].append(tensor)
            self.out[tensor.src].append(tensor)

    @cached_property
    def laid(self) -> dict[str, KernelLayout]:
        """Layouts of every kernel by name, in the order of the tensors."""
        laid = dict[str, KernelLayout]()
        products = {kernel.name: self._of_product(kernel) for kernel in self.model.kernels if _is_gradient(kernel)}
        sorter = self.model.sorter()
        for name, forward in products.items():
            sorter.add(name, forward.name)
        memo: dict[Hashable, KernelLayout] = self.model.memo.setdefault("placed", {})  # many graphs have the same
        for name in sorter.static_order():
            kernel, of = self.of[name], products.get(name)
            read = [t for t in self.into[name] if self.of[t.src].module == kernel.module]
            split = tuple(tensor for tensor in read if laid[tensor.src].makes == "features")
            part = None if of is None else laid[of.name].kernel
            scheme, context = self.modules.of(kernel.module), self.modules.stream == "context"
            key = name, scheme, context, self.members, self.first, split, part
            if key not in memo:
                placed = self._placed(kernel, scheme, split, of, part)
                memo[key] = replace(placed, makes="gradient") if kernel.op == "weight_update" else placed
            laid[name] = memo[key]
        return laid

    def _of_product(self, kernel: Kernel, op: str = "gemm") -> Kernel:
        """The product of the forward pass whose gradient a kernel is: with the same weight, or of the same matrices."""
        product = self.of.get(kernel.stage_with or "")
        if product is None or (product.op, product.pass_, product.module) != (op, "forward", kernel.module):
            raise Unsplit(f"{kernel.name!r} stays with no product of its module whose gradient it is")
        return product

    def _placed(
        self, kernel: Kernel, scheme: ModuleScheme, split: Sequence[Tensor], of: Kernel | None, part: Kernel | None
    ) -> KernelLayout:
        """How a kernel lies, which depends on nothing but the arguments, chips, and whether the stream is by context.

        ``split``: what it reads of its module that lies by features; ``of``: the product whose gradient it is, and
        ``part``: what a chip has of that.
        """
        if scheme == "none":
            return KernelLayout(kernel, "whole", "whole")
        if scheme in ("n", "context") and self.modules.stream == "context":
            keys = kernel.op == "matmul" and self._queries(kernel) == "k"  # whose gradient is a sum over queries
            return KernelLayout(self._by_tokens(kernel, scheme), "tokens", "sums" if keys else "tokens")
        if scheme == "context" and self.model.trains:
            raise Unsplit("keys that are kept from step to step have no gradient")
        if scheme == "n":
            return KernelLayout(self._by_samples(kernel), "tokens", "tokens")
        if scheme == "context":
            return self._by_keys(kernel)
        if kernel.module == "experts" and scheme == "outer":
            return KernelLayout(self._by_expert(kernel), "experts", "experts")
        if of is not None and part is not None:
            return self._turned(kernel, of, part)
        return self._by_features(kernel, split)

    def _turned(self, kernel: Kernel, product: Kernel, part: Kernel) -> KernelLayout:
        """A gradient of a product of which a chip has some features: those that the product has there."""
        cut = [axis for axis in _TURNED if getattr(part, axis) != getattr(product, axis)]
        if not cut:
            return KernelLayout(kernel, "whole", "whole")
        update = kernel.op == "weight_update"
        axis = "outer" if cut == ["outer"] and kernel.outer > 1 else _TURNED[cut[0]][update]
        own = self._cut(kernel, axis)
        if update:
            return KernelLayout(own, "features", "gradient", {"n": 1, "m": 2}.get(axis))
        return KernelLayout(own, *_LYING[axis])

    def _part(self, kernel: Kernel, size: int, what: str) -> int:
        if size % self.members:
            raise Unsplit(f"{what} of {kernel.name!r}, {size}, are not shared by {self.members} chips")
        return size // self.members

    def _cut(self, kernel: Kernel, axis: str) -> Kernel:
        """A kernel with one chip's part of the features, along an axis."""
        return kernel.model_copy(update={axis: self._part(kernel, getattr(kernel, axis), "features")})

    def _by_samples(self, kernel: Kernel) -> Kernel:
        """A kernel with one chip's part of the sequences."""

        def of(size: int, what: str) -> int:
            part = size * self.samples
            if part.denominator != 1 or self.samples == 1:
                raise Unsplit(f"{what} of {kernel.name!r}, {size}, are not those of {self.model.microbatch} sequences")
            return int(part)

        if kernel.samples is None and kernel.op == "matmul":
            raise Unsplit(f"{kernel.name!r} is not apart for every sequence")
        axis, what = (_tokens(kernel), "tokens") if kernel.samples is None else ("samples", "samples")
        size = of(getattr(kernel, axis), what)
        states = [s.model_copy(update={"sequences": of(s.sequences, "sequences")}) for s in kernel.states or ()]
        return self._some(kernel, axis, size, tuple(states) or None, self.samples)

    def _some(
        self, kernel: Kernel, axis: str, size: int, states: tuple[SequenceState, ...] | None, share: Fraction
    ) -> Kernel:
        """A share of the sequences or tokens of a kernel: so many along an axis, and what is kept of them."""
        changes: dict[str, Any] = {axis: size, "states": states, **_traffic(kernel, share)}
        if kernel.experts is not None and axis != "samples":
            changes["experts"] = kernel.experts.for_tokens(size)
        return kernel.model_copy(update=changes | self._copied(kernel, 1.0))

    def _by_tokens(self, kernel: Kernel, scheme: ModuleScheme) -> Kernel:
        """A kernel with one chip's part of the tokens of every sequence.

        A chip has early and late tokens, so that under a causal mask all chips do as much.
        """
        name, sequences = kernel.name, self.model.microbatch
        if kernel.module == "mixer" and scheme == "n":
            raise Unsplit(f"{name!r} shares sequences, the residual stream tokens of each")
        by_sequence = _is_by_sequence(kernel)
        axis = self._queries(kernel) if by_sequence else _tokens(kernel)
        size = getattr(kernel, axis)
        if by_sequence and (kernel.role not in _OVER_KEYS or size == 1 or (kernel.samples or 1) % sequences):
            raise Unsplit(f"{name!r} does not attend with several tokens of each of {sequences} sequences")
        if not by_sequence and size % sequences:
            raise Unsplit(f"tokens of {name!r}, {size}, are not those of {sequences} sequences")
        n = -(-size // self.members) if by_sequence else sequences * -(-size // (sequences * self.members))
        states = self._of_tokens(kernel)
        if any(state.reads for state in kernel.states or ()):
            raise Unsplit(f"{name!r} reads tokens of an earlier evaluation, which are not gathered")
        return self._masked(kernel, self._some(kernel, axis, n, states, Fraction(n, size)))

    def _copied(self, kernel: Kernel, share: float) -> dict[str, float]:
        """The share of a weight, or of its gradient, that all chips have, where it is trained."""
        has = kernel.op in ("gemm", "weight_update") or kernel.resident_bytes
        return {"copied": share} if has and self.model.trains else {}

    def _queries(self, kernel: Kernel) -> str:
        """The axis that queries are along: in gradients of keys and values the contraction."""
        if kernel.pass_ in _ONWARDS or kernel.op != "matmul":
            return "n"
        product, read = self._of_product(kernel, "matmul"), {self._first(t.src) for t in self.into[kernel.name]}
        pairs = zip(self.model.tensors, self.operands, strict=True)
        again = {operand for tensor, operand in pairs if tensor.dst == product.name and tensor.src in read}
        if len(again) != 1:
            raise Unsplit(f"{kernel.name!r} does not read one operand of {product.name!r} again")
        return "k" if again == {1} else "n"

    def _first(self, name: str) -> str:
        """The kernel itself, or the one of the forward pass that it computes again."""
        kernel = self.of[name]
        return (kernel.stage_with or name) if kernel.pass_ == "recompute" else name

    @cached_property
    def operands(self) -> tuple[int, ...]:
        """For every tensor, which operand of its reader it is."""
        return self.model.operands()

    def _by_keys(self, kernel: Kernel) -> KernelLayout:
        """A kernel with one chip's part of the keys of every sequence; softmax parts are put together behind it."""
        if not any(k.module == "mixer" and k.role == "scores" for k in self.model.kernels):
            raise Unsplit("no kernel scores keys")
        axis = _OVER_KEYS.get(kernel.role or "")
        if axis is None:
            return KernelLayout(kernel, "whole", "whole")
        keys = getattr(kernel, axis)
        if keys < self.members:
            raise Unsplit(f"{self.members} chips for {keys} keys of {kernel.name!r}")
        read = (self.of[tensor.src] for tensor in self.into[kernel.name])
        if axis == "m" and kernel.op == "elementwise" and any(source.role not in _OVER_KEYS for source in read):
            raise Unsplit(f"{kernel.name!r} is told which keys are attended to, anywhere")
        cut = kernel.model_copy(update={axis: -(-keys // self.members), "states": self._of_tokens(kernel)})
        return KernelLayout(self._masked(kernel, cut), "keys", "keys" if axis == "m" else "sums")

    def _masked(self, kernel: Kernel, part: Kernel) -> Kernel:
        """A part of a masked kernel with the density of a chip that has its share of what the mask leaves."""
        if kernel.density is None:
            return part
        rows, columns = operand_shape(part, kernel.masked) if kernel.masked else (part.m, part.n)
        left = -(-needed(kernel, kernel.masked or 0) // self.members)
        return part.model_copy(update={"density": min(left / (rows * columns), 1.0)})

    def _of_tokens(self, kernel: Kernel) -> tuple[SequenceState, ...] | None:
        """What is kept of the tokens of one chip: of those with the most."""
        if any(state.bytes_per_sequence for state in kernel.states or ()):
            raise Unsplit(f"what {kernel.name!r} keeps is of whole sequences")
        names = ("tokens", "reads", "writes")
        parts = [{name: -(-getattr(state, name) // self.members) for name in names} for state in kernel.states or ()]
        return tuple(s.model_copy(update=p) for s, p in zip(kernel.states or (), parts, strict=True)) or None

    def _by_expert(self, kernel: Kernel) -> Kernel:
        """A kernel with one chip's part of the experts, and the tokens sent to the most loaded chip."""
        experts, always, axis = self.experts, self.experts.always or 0, _tokens(kernel)
        if kernel.op == "matmul" or kernel.samples is not None:
            raise Unsplit(f"{kernel.name!r} is no work on tokens apart")
        here = self.spread(kernel)
        part = ((experts.chosen - always) * here.load + always / self.members) / experts.chosen
        changes: dict[str, Any] = {axis: max(math.ceil(getattr(kernel, axis) * part * (1 - ROUNDING)), 1)}
        if always:  # on every chip, for some of the tokens
            changes |= self._copied(kernel, always / here.held)
        if kernel.experts is not None:
            own = {"count": here.held, "touched": here.touched, "held": experts.count}
            changes["experts"] = kernel.experts.model_copy(update=own)
        return kernel.model_copy(update=changes)

    @cached_property
    def experts(self) -> Experts:
        """The experts of the model; all expert kernels have the same."""
        kinds = {k.experts for k in self.model.kernels if k.module == "experts" and k.experts is not None}
        if len(kinds) != 1:
            raise Unsplit(f"experts of {len(kinds)} kinds")
        experts = kinds.pop()
        routed, copies = experts.count - (experts.always or 0), (experts.routing or Routing()).redundant or 0
        if routed + copies < self.members:
            raise Unsplit(f"{self.members} chips for {routed} experts" + f" and {copies} copies" * bool(copies))
        if copies > routed * (self.members - 1):
            raise Unsplit(f"{copies} copies of {routed} experts, more than {self.members} chips can hold apart")
        return experts

    def spread(self, kernel: Kernel) -> ExpertLoad:
        """Load of experts and tokens over chips, for an expert kernel."""
        return spread(self.experts, self.members, self.first, getattr(kernel, _tokens(kernel)))

    def share(self, kernel: Kernel) -> float:
        """Share of a kernel's output that one chip computes where tokens are shared."""
        if self.modules.stream != "context":
            return float(self.samples)
        each = kernel.n if _is_by_sequence(kernel) else -(-kernel.n // self.model.microbatch)
        return -(-each // self.members) / each

    def needs(self, tensor: Tensor, operand: int) -> Lies:
        """Layout in which a tensor's reader needs it."""
        reader = self.laid[tensor.dst]
        attends = reader.kernel.op == "matmul" and reader.makes == "tokens" and self.modules.stream == "context"
        if attends and operand == 2:
            return "whole"  # all keys, of which its queries see those before them
        return "whole" if reader.needs in ("features", "keys") else reader.needs

    def _by_features(self, kernel: Kernel, split: Sequence[Tensor]) -> KernelLayout:
        """Heads, or features: ``split`` is what it reads of its module that is."""
        if kernel.outer > 1:
            if kernel.op == "gemm" or split or kernel.op == "matmul":
                return KernelLayout(
                    self._by_heads(kernel, self._part(kernel, kernel.outer, "heads")), "features", "features"
                )
            return KernelLayout(kernel, "whole", "whole")
        if kernel.op == "matmul":
            raise Unsplit(f"{kernel.name!r} has one head")
        if kernel.op == "elementwise":
            if not split:
                return KernelLayout(kernel, "whole", "whole")
            heads = (tensor for tensor in split if self.of[tensor.src].outer > 1)
            if any(self.model.elements_of(tensor) > kernel.matrices * needed(kernel) for tensor in heads):
                return KernelLayout(kernel, "features", "sums")  # a chip adds its own heads up
            if kernel.normalizes:
                raise Unsplit(f"{kernel.name!r} needs all features")
            return KernelLayout(self._cut(kernel, "m"), "features", "features")
        if split:
            return KernelLayout(self._cut(kernel, "k"), "features", "sums")
        readers = [self.of[t.dst] for t in self.out[kernel.name]]
        normed = any(reader.normalizes and reader.outer == 1 and reader.module == kernel.module for reader in readers)
        if normed or kernel.role in ("router", "latent"):
            return KernelLayout(kernel, "whole", "whole")
        return KernelLayout(self._cut(kernel, "m"), "whole", "features")

    def _by_heads(self, kernel: Kernel, heads: int) -> Kernel:
        """A kernel with ``heads`` of its heads, and the states of these: one that all heads share is on every chip."""
        states = []
        for state in kernel.states or ():
            own = -(-state.heads // self.members)
            if heads % own or state.bytes_per_token * own % state.heads or state.bytes_per_sequence * own % state.heads:
                raise Unsplit(f"{state.name} of {kernel.name!r} belong to {state.heads} heads")
            names = ("bytes_per_token", "bytes_per_sequence")
            sizes = {name: getattr(state, name) * own // state.heads for name in names}
            states.append(state.model_copy(update={"heads": own, **sizes}))
        return kernel.model_copy(update={"outer": heads, "states": tuple(states) or None})


def _is_by_sequence(kernel: Kernel) -> bool:
    """Whether it works on every sequence apart, with ``n`` of its tokens, and not on the tokens of all at once."""
    return kernel.samples is not None or kernel.op == "matmul"


def _traffic(kernel: Kernel, share: Fraction) -> dict[str, float]:
    """What a part of a kernel moves to and from DRAM beside its tensors."""
    names = ("dram_bytes", "dram_bytes_per_chip")
    return {name: size * share.numerator / share.denominator for name in names if (size := getattr(kernel, name))}


def _is_gradient(kernel: Kernel) -> bool:
    """Whether a kernel is the gradient of a product with a weight: of its input, or of the weight."""
    return kernel.op == "weight_update" or (kernel.op == "gemm" and kernel.pass_ not in _ONWARDS)


def _tokens(kernel: Kernel) -> str:
    """The axis that tokens are along."""
    return "k" if kernel.op == "weight_update" else "n"
