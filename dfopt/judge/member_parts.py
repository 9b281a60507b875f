"""The part that a kernel plays on a plan's second axis, and how large a chip has it, by the judge's own reading."""

from __future__ import annotations

import math
from functools import cached_property

from dfopt.arrays import ROUNDING
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.physics import ops
from dfopt.physics.spread import ExpertLoad, spread

_ATTENDS = {"scores": "looked up", "softmax": "looked up", "scores_dropout": "looked up", "context": "merged"}
"""Kernels that attend to keys, by their role in a layer, and what they are where chips share the keys."""


class Parts:
    """A graph whose kernels are shared over the second axis, and each kernel's role on one chip."""

    def __init__(self, graph: Graph, plan: Plan, near: int) -> None:
        assert plan.modules is not None
        self.all, self.modules, self.chips = graph, plan.modules, plan.members
        self.near = near
        self.of = {kernel.name: kernel for kernel in graph.kernels}
        self.made_by: dict[str, list[str]] = {name: [] for name in self.of}
        self.taken_by: dict[str, list[str]] = {name: [] for name in self.of}
        for tensor in graph.tensors:
            self.made_by[tensor.dst].append(tensor.src)
            self.taken_by[tensor.src].append(tensor.dst)
        self.sequences = math.ceil(graph.microbatch / self.chips)
        self._roles: dict[str, str] = {}

    # -- the part that a kernel plays -------------------------------------------------------
    def role(self, name: str) -> str:
        """Role of a kernel on one chip of the second axis, as a word.

        One of: ``copy``; ``rows`` (some sequences, or some tokens of each); ``sent`` (tokens of some experts);
        ``into``, ``inside`` and ``out`` (of split features); ``added up`` (of some heads); ``grown`` (some features of
        a weight's gradient); ``looked up`` (scores of some keys); ``merged`` (weighted sums of their values); ``looked
        back`` (gradients of all keys, from some of the queries).
        """
        if name not in self._roles:
            self._roles[name] = self._role(self.of[name])
        return self._roles[name]

    def _role(self, kernel: Kernel) -> str:
        scheme = self.modules.of(kernel.module)
        if scheme == "none":
            return "copy"
        if self.modules.stream == "context" and scheme != "outer" and self._of_keys(kernel):
            return "looked back"
        if scheme == "n" or (scheme == "context" and self.modules.stream == "context"):
            return "rows"
        if scheme == "context":
            return _ATTENDS.get(kernel.role or "", "copy")
        if kernel.module == "experts" and scheme == "outer":
            return "sent"
        if _goes_back(kernel):
            return self._way_back(kernel)
        behind = any(self._hands_on_features(other) for other in self._own(kernel, self.made_by[kernel.name]))
        if kernel.op == "elementwise" and kernel.outer == 1 and self._adds_heads(kernel):
            return "added up"
        if kernel.outer > 1:
            return "copy" if kernel.op == "elementwise" and not behind else "inside"
        if kernel.op == "elementwise":
            return "inside" if behind else "copy"
        if behind:
            return "out"
        normed = (self.of[other] for other in self._own(kernel, self.taken_by[kernel.name]))
        small = kernel.role in ("router", "latent") or any(reader.normalizes and reader.outer == 1 for reader in normed)
        return "copy" if small else "into"

    def _way_back(self, kernel: Kernel) -> str:
        """What the gradient of a product's input or weight is, by what the product is."""
        product = self.product(kernel)
        there = "copy" if product is None else self.role(product.name)
        if kernel.op == "weight_update" and there != "copy":
            return "grown"
        return {"into": "out", "out": "into", "inside": "inside" if kernel.outer > 1 else "out"}.get(there, "copy")

    def product(self, kernel: Kernel) -> Kernel | None:
        """The forward product of a backward kernel, whose weight it reads or whose weight gradient it computes."""
        partner = self.of.get(kernel.stage_with or "")
        same = (
            partner is not None
            and partner.module == kernel.module
            and partner.pass_ == "forward"
            and partner.op == "gemm"
        )
        return partner if same else None

    def _of_keys(self, kernel: Kernel) -> bool:
        """Whether it is the gradient of keys or values: of what the product that attends has as its operand 2."""
        return kernel.op == "matmul" and _on_way_back(kernel) and self._reads_again(kernel) == {1}

    def _reads_again(self, kernel: Kernel) -> set[int]:
        """The operands of a product of two activations that a gradient of it reads, of its input."""
        product, operands_read = self.of.get(kernel.stage_with or ""), set[int]()
        if product is None or product.op != "matmul" or product.pass_ != "forward" or product.module != kernel.module:
            return operands_read
        makers = [self.of[name] for name in self.made_by[kernel.name]]
        once = {maker.stage_with if maker.pass_ == "recompute" else maker.name for maker in makers}
        for tensor, operand in zip(self.all.tensors, self.all.operands(), strict=True):
            if tensor.dst == product.name and tensor.src in once:
                operands_read.add(operand)
        return operands_read

    def grows_along(self, kernel: Kernel) -> str:
        """Axis along which chips share a weight's gradient: ``n`` corresponds to the product's ``m``."""
        product = self.product(kernel)
        assert product is not None  # else it is a copy
        if kernel.outer > 1 and self.role(product.name) == "inside":
            return "outer"
        return "m" if self.role(product.name) == "out" else "n"

    def _adds_heads(self, kernel: Kernel) -> bool:
        """Whether it reads more of split heads than it makes."""
        own_elements = (kernel.samples or 1) * ops.needed(kernel)
        heads = [name for name in self._own(kernel, self.made_by[kernel.name]) if self.of[name].outer > 1]
        split = {name for name in heads if self._hands_on_features(name)}
        read = (tensor for tensor in self.all.tensors if tensor.dst == kernel.name and tensor.src in split)
        return any(self.all.elements_of(tensor) > own_elements for tensor in read)

    def _own(self, kernel: Kernel, names: list[str]) -> list[str]:
        return [name for name in names if self.of[name].module == kernel.module]

    def leaves_parts(self, name: str) -> bool:
        """Whether other chips need what each computes of an output: partial sums, or outputs of its experts."""
        summed = ("out", "added up", "looked back", "merged")
        return self.role(name) in (*summed, "sent") and self.of[name].op != "weight_update"

    def _hands_on_features(self, name: str) -> bool:
        return self.role(name) in ("into", "inside")

    def problem(self, kernel: Kernel) -> str | None:
        """A sentence on why a kernel cannot be shared in its role, or None."""
        role, name = self.role(kernel.name), kernel.name
        if _goes_back(kernel):
            if self.product(kernel) is None:
                return f"{name!r} stays with no product of its module"
            if kernel.op == "weight_update" and self.taken_by[name]:
                return f"{name!r} is a part of a gradient, which others read"
        if role in ("looked up", "merged"):
            return self._keys_problem(kernel, kernel.k if role == "merged" else kernel.m)
        if role == "copy" and self._strays(name):
            return f"{name!r} needs all keys"
        if role in ("rows", "looked back") and self.modules.stream == "context":
            return self._rows_problem(kernel)
        if role == "rows":
            return self._sequences_problem(kernel)
        if role == "sent":
            return self._experts_problem(kernel)
        if role in ("copy", "into") and any(map(self._hands_on_features, self._own(kernel, self.made_by[name]))):
            return f"{name!r} needs all features"
        return None if role in ("copy", "added up") else self._features_problem(kernel, role)

    def _keys_problem(self, kernel: Kernel, keys: int) -> str | None:
        """Why chips cannot share the keys that a kernel attends to."""
        name = kernel.name
        if keys < self.chips:
            return f"{name!r} has {keys} keys for {self.chips} chips"
        if kernel.op == "elementwise" and any(self.role(other) != "looked up" for other in self.made_by[name]):
            return f"{name!r} is told which keys to look at"
        return self._whole_sequences(kernel)

    def _sequences_problem(self, kernel: Kernel) -> str | None:
        """Why whole sequences cannot be shared out."""
        name, many = kernel.name, self.all.microbatch
        if many == 1:
            return "one sequence has no parts"
        if kernel.samples is None and kernel.op == "matmul":
            return f"{name!r} is not apart for every sequence"
        size = getattr(kernel, self._rows_along(kernel)) if kernel.samples is None else kernel.samples
        counts = [size, *(state.sequences for state in kernel.states or ())]
        return f"{name!r} is not as large as {many} sequences make it" if any(c % many for c in counts) else None

    def _experts_problem(self, kernel: Kernel) -> str | None:
        """Why tokens cannot be sent to chips that share the experts."""
        free = [experts.count - (experts.always or 0) for experts in self._experts]
        extra = max(((e.routing.redundant or 0) if e.routing else 0 for e in self._experts), default=0)
        if len(free) != 1 or not self.chips <= free[0] + extra <= free[0] * self.chips:
            return f"{self.chips} chips for experts of {free}" + (f", {extra} of them twice or more" if extra else "")
        by_token = kernel.op != "matmul" and kernel.samples is None
        return None if by_token else f"{kernel.name!r} is no work on tokens apart"

    def _features_problem(self, kernel: Kernel, role: str) -> str | None:
        """Why chips cannot share the features that a kernel of one of their roles reads or makes."""
        name = kernel.name
        if kernel.op == "matmul" and kernel.outer == 1:
            return f"{name!r} cannot be split by features"
        if role == "inside" and kernel.outer == 1 and kernel.normalizes:
            return f"{name!r} needs all features"
        along = {"out": "k", "into": "m", "inside": "outer" if kernel.outer > 1 else "m"}
        size = getattr(kernel, self.grows_along(kernel) if role == "grown" else along[role])
        if size % self.chips:
            return f"{size} of {name!r} are not shared by {self.chips} chips"
        if role == "grown":
            return self._grown_problem(kernel)
        if self._hands_on_features(name):
            beyond = {t.dst for t in (*self.all.tensors, *self.all.carried) if t.src == name}
            if any(self.of[other].module != kernel.module for other in beyond):
                return f"what {name!r} makes is needed whole"
        return None

    def _grown_problem(self, kernel: Kernel) -> str | None:
        """Whether the operand of a weight's gradient that chips do not share comes in parts."""
        cut = {"n": 1, "m": 2}.get(self.grows_along(kernel))
        for tensor, operand in zip(self.all.tensors, self.all.operands(), strict=True):
            own = tensor.dst == kernel.name and self.of[tensor.src].module == kernel.module
            if own and cut is not None and operand != cut and self._hands_on_features(tensor.src):
                return f"{kernel.name!r} needs all features of {tensor.src!r}"
        return None

    def _strays(self, name: str) -> bool:
        """Whether scores of some keys come to where all are needed."""
        return any(self.role(other) == "looked up" for other in self.made_by[name])

    def _whole_sequences(self, kernel: Kernel) -> str | None:
        kept = [state.name for state in kernel.states or () if state.bytes_per_sequence > 0]
        return f"{kept[0]} of {kernel.name!r} are of whole sequences" if kept else None

    def _rows_problem(self, kernel: Kernel) -> str | None:
        """Why the tokens of a sequence cannot be shared out."""
        name, many = kernel.name, self.all.microbatch
        if kernel.module == "mixer" and self.modules.mixer == "n":
            return f"{name!r} shares sequences where all else shares their tokens"
        size = getattr(kernel, self._rows_along(kernel))
        if kernel.samples is not None or kernel.op == "matmul":
            if kernel.role not in _ATTENDS or size < 2 or (kernel.samples or 1) % many:
                return f"{name!r} does not attend with several tokens of each sequence"
            if kernel.op == "matmul" and _on_way_back(kernel) and len(self._reads_again(kernel)) != 1:
                return f"{name!r} reads no operand of what it stays with again"
        elif size % many:
            return f"{name!r} is not as large as {many} sequences make it"
        if any(state.reads > 0 for state in kernel.states or ()):
            return f"{name!r} reads what was kept before, on all chips"
        return self._whole_sequences(kernel)

    # -- sizes ------------------------------------------------------------------------------
    @cached_property
    def _experts(self) -> set[Experts]:
        return {k.experts for k in self.all.kernels if k.experts is not None and k.module == "experts"}

    def _spread(self, tokens: int) -> ExpertLoad:
        (experts,) = self._experts
        return spread(experts, self.chips, self.near, tokens)

    def _rows_along(self, kernel: Kernel) -> str:
        """The axis of tokens, over which the gradient of a weight is a sum, or that of keys."""
        is_summed = kernel.op == "weight_update" or self.role(kernel.name) == "looked back"
        return "k" if is_summed else "n"

    def _row_share(self, kernel: Kernel) -> float:
        """The most of a kernel's rows that a chip has."""
        if self.modules.stream != "context":
            return self.sequences / self.all.microbatch
        tokens: int = getattr(kernel, self._rows_along(kernel))
        if kernel.samples is None and kernel.op != "matmul":
            tokens //= self.all.microbatch
        return math.ceil(tokens / self.chips) / tokens

    def _kept(self, kernel: Kernel) -> object:
        """Tokens of one chip, of what is kept of all."""
        return self._states(
            kernel, lambda s: {name: math.ceil(getattr(s, name) / self.chips) for name in ("tokens", "reads", "writes")}
        )

    def cut(self, kernel: Kernel) -> Kernel:
        """The kernel with the extents that one chip has of it."""
        role, new = self.role(kernel.name), dict[str, object]()
        if role in ("looked up", "merged"):
            axis = "k" if role == "merged" else "m"
            new = {axis: math.ceil(getattr(kernel, axis) / self.chips), "states": self._kept(kernel)}
        elif role in ("rows", "looked back"):
            part, tokens = self._row_share(kernel), self.modules.stream == "context"
            axis = self._rows_along(kernel) if tokens or kernel.samples is None else "samples"
            new = {name: getattr(kernel, name) * part for name in ("dram_bytes", "dram_bytes_per_chip")}
            new[axis] = round(getattr(kernel, axis) * part)
            fewer = self._states(kernel, lambda s: {"sequences": round(s.sequences * part)})
            new["states"] = self._kept(kernel) if tokens else fewer
            if kernel.experts is not None:
                new["experts"] = kernel.experts.for_tokens(round(getattr(kernel, axis) * part))
            new |= self._alike(kernel, 1.0)
        elif role == "sent":
            (experts,), axis = self._experts, self._rows_along(kernel)
            tokens = getattr(kernel, axis)
            here, every = self._spread(tokens), experts.always or 0
            own = tokens * ((experts.chosen - every) * here.load + every / self.chips) / experts.chosen
            new[axis] = max(math.ceil(own - ROUNDING * own), 1)
            if every > 0:  # whoever holds them has seen some of the tokens
                new |= self._alike(kernel, every / here.held)
            if kernel.experts is not None:
                more = {"count": here.held, "touched": here.touched, "held": experts.count}
                new["experts"] = kernel.experts.model_copy(update=more)
        elif role == "grown":
            axis = self.grows_along(kernel)
            new[axis] = getattr(kernel, axis) // self.chips
        elif role in ("into", "out") or (role == "inside" and kernel.outer == 1):
            axis = "k" if role == "out" else "m"
            if kernel.outer > 1:
                axis = "outer"
            new[axis] = getattr(kernel, axis) // self.chips
        elif role == "inside":
            new["outer"] = kernel.outer // self.chips
            new["states"] = self._states(kernel, self._of_heads)
        return self._seen(kernel, kernel.model_copy(update=new))

    def _alike(self, kernel: Kernel, share: float) -> dict[str, float]:
        """Of weights that learn, and of their gradients, what is on all chips."""
        learns = self.all.trains and (kernel.op in ("weight_update", "gemm") or kernel.resident_bytes > 0)
        return {"copied": share} if learns else {}

    def _seen(self, kernel: Kernel, own: Kernel) -> Kernel:
        """What a mask leaves is shared evenly where keys are, or tokens of a sequence."""
        role = self.role(kernel.name)
        shared = role in ("looked up", "merged") or (
            role in ("rows", "looked back") and self.modules.stream == "context"
        )
        if kernel.density is None or not shared:
            return own
        seen = math.ceil(ops.needed(kernel, kernel.masked or 0) / self.chips)
        elements = own.m * own.n if kernel.masked is None else math.prod(ops.operand_shape(own, kernel.masked))
        return own.model_copy(update={"density": min(seen / elements, 1.0)})

    def _of_heads(self, state: object) -> dict[str, object]:
        heads = getattr(state, "heads")  # noqa: B009
        kept = math.ceil(heads / self.chips)
        names = ("bytes_per_token", "bytes_per_sequence")
        return {"heads": kept, **{name: getattr(state, name) * kept // heads for name in names}}

    @staticmethod
    def _states(kernel: Kernel, change: object) -> object:
        assert callable(change)
        return tuple(s.model_copy(update=change(s)) for s in kernel.states) if kernel.states else kernel.states


def _on_way_back(kernel: Kernel) -> bool:
    """Whether it gives a gradient: what is computed again does not."""
    return kernel.pass_ not in ("forward", "recompute")


def _goes_back(kernel: Kernel) -> bool:
    """Whether it is the gradient of a product's input or of its weight."""
    return kernel.op == "weight_update" or (kernel.op == "gemm" and _on_way_back(kernel))
