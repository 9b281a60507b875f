"""The axes of a plan: named ways to share the chips out, and what each of them splits. No other module names them.

A new axis is an entry of :data:`AXES`, with a rule of legality of its own if it has one. What it splits says who counts
it, and everyone else goes over all axes: documents have its degree under its name (``tp``) and its network dims under
``tp_dims``, and so have pins, requests, the command line, labels and frames.

==========  ========================================================================================================
it splits   the chips along it
==========  ========================================================================================================
kernels     share the work and the weights of every kernel: shardings are chosen over all such axes together
modules     share the work of every module in a way of its own: sequences, heads, experts or features, see
            :mod:`dfopt.documents.modules`
layers      are the stages of a pipeline, each with some of the layers
batch       hold copies of the weights and work on different samples; their gradients are added up after a step
==========  ========================================================================================================
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
Splits = Literal["kernels", "modules", "layers", "batch"]
Dims = tuple[str, ...]
_COUNTED: Final[dict[Splits, str]] = {
    "kernels": "chips that share the work and the weights of every kernel",
    "modules": "chips over which each module shares its work by a scheme of its own",
    "layers": "pipeline stages, each of which has some of the layers",
    "batch": "replicas, each of which processes samples of its own",
}


@dataclass(frozen=True)
class Axis:
    """A plan axis: one kind of parallelism, such as TP, PP or DP.

    Attributes
    ----------
    name, title : str
        Key in documents, and name in words.
    splits : str
        Object that the axis splits: kernels, modules, layers or the batch.
    refuses : callable, optional
        From a graph and a degree to why the graph cannot use it, or None.
    optional : bool
        Whether documents leave out its keys where its degree is 1.
    """

    name: str  # key of its degree in documents and name of its option; in labels as capitals
    title: str  # for people
    splits: Splits  # what its chips share, see the module
    # (graph, degree) -> why this graph cannot use it, or nothing; beside the rules for all axes that split the same
    refuses: Callable[[Any, int], str | None] | None = None
    optional: bool = True  # left out of documents where its degree is 1; version 1 has the keys of the others anyway

    @property
    def text(self) -> str:
        """A sentence on the meaning of its degree."""
        return f"Degree of {self.title}: the number of {_COUNTED[self.splits]}."

    @property
    def dims_key(self) -> str:
        """Key of the axis's network dims in documents."""
        return f"{self.name}_dims"

    @property
    def keys(self) -> tuple[str, str]:
        """Keys of the axis's degree and of its network dims in documents."""
        return self.name, self.dims_key

    @property
    def label(self) -> str:
        """Label of the axis in plans and messages, such as ``TP``."""
        return self.name.upper()


class AxisDegree(NamedTuple):
    """Degree and network dims of one axis of a plan."""

    axis: Axis
    degree: int
    dims: Dims


MODULES: Final = "mp"
"""The axis over which modules have schemes, as a group of chips."""

# the order is that of labels, and in which they take neighbours of a network dim that they share
AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("tp", "tensor parallelism", "kernels", optional=False),
        Axis(MODULES, "module-wise parallelism", "modules"),
        Axis("pp", "pipeline parallelism", "layers", optional=False),
        Axis("dp", "data parallelism", "batch", optional=False),
    )
}


@cache
def groups() -> dict[str, tuple[tuple[Axis, ...], slice]]:
    """Chip groups that a kernel's own communication may span, by name: axes, and a slice of their network dims.

    An axis that splits kernels, modules or the batch by its name; of the first two, the first network dim alone
    (``tp_first``) or the others (``tp_rest``); ``all`` of those that split kernels or the batch together.
    """
    inside = tuple(axis for axis in AXES.values() if axis.splits in ("kernels", "batch"))
    by_name: dict[str, tuple[tuple[Axis, ...], slice]] = {}
    for axis in (each for each in AXES.values() if each.splits != "layers"):
        by_name[axis.name] = (axis,), slice(None)
        if axis.splits in ("kernels", "modules"):
            by_name |= {f"{axis.name}_first": ((axis,), slice(1)), f"{axis.name}_rest": ((axis,), slice(1, None))}
    return {**by_name, "all": (inside, slice(None))}


@cache
def keys() -> dict[str, tuple[Axis, bool]]:
    """Keys of axes in documents: the axis of each, and whether it holds network dims."""
    keys = {axis.name: (axis, False) for axis in AXES.values()}
    return keys | {axis.dims_key: (axis, True) for axis in AXES.values()}


def spelled_out(keywords: Mapping[str, Any]) -> Callable[[F], F]:
    """Decorator: the signature of a function with ``**others`` lists these keywords with their defaults."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        given = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in keywords.items()
        ]
        function.__signature__ = signature.replace(parameters=[*given, *named])  # type: ignore[attr-defined]
        return function

    return decorate
