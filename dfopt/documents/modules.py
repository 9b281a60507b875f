"""The second axis of chips: modules of a graph, and the scheme that each of them takes over it.

On the first axis every kernel has a scheme of its own. On the second one all kernels of a module follow one scheme, and
the residual stream (kernels of no module: norms, sums) has one too:

===========  ===========================================================================================================
scheme       what the chips of the axis share
===========  ===========================================================================================================
``n``        sequences: each chip has some of them whole, with what is kept of them, and a copy of all weights; where
             the residual stream is shared by ``context``, tokens of every sequence, with a copy of all weights
``outer``    heads of a mixer, or experts: each chip has some of them, and all tokens, or of experts the tokens sent
             there
``context``  tokens of every sequence. Of a residual stream and its mixer: each chip has some of them, and gathers keys
             and values. Of a mixer alone: each chip has some of the keys that are kept, and all queries look for them
``m``        features: what goes into a module is split by its output, what leads out by its contraction
``none``     nothing: every chip does the same work
===========  ===========================================================================================================
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from dfopt.documents.base import Part

Module = Literal["mixer", "dense", "experts", "ends"]
ModuleScheme = Literal["n", "outer", "m", "context", "none"]
STREAM = "stream"
SCHEMES: Final = get_args(ModuleScheme)


class Modules(Part):
    """Sharding scheme of every module over the second axis; None: the graph lacks that module.

    Attributes
    ----------
    stream : e.g. n
        Scheme of the residual stream, that is of norms and sums. ``n``: each chip has some of the sequences.
        ``context``: each chip has some tokens of every sequence. ``none``: every chip does the same work.
    mixer : e.g. outer
        Scheme of attention or its replacement. ``n``: each chip has some of the sequences. ``outer``: each chip has
        some of the heads. ``context``: each chip has some tokens of every sequence. ``none``: every chip does the same
        work. None: the graph has no mixer.
    dense : e.g. m
        Scheme of feed-forward networks that every token passes. ``n``: each chip has some of the tokens. ``m``: each
        chip has some of the features. ``none``: every chip does the same work. None: the graph has no such network.
    experts : e.g. outer
        Scheme that the routed experts follow. ``n``: each chip has some of the tokens. ``outer``: each chip has some of
        the experts. ``m``: each chip has some features of every expert. ``none``: every chip does the same work. None:
        the graph has no experts.
    ends : e.g. n
        Scheme of logits, classifiers and input products. ``n``: each chip has some of the tokens. ``m``: each chip has
        some of the features. ``none``: every chip does the same work. None: the graph has no such kernels.

    Examples
    --------
    Attention by sequences, experts by expert:

    >>> modules = Modules(stream="n", mixer="n", dense="n", experts="outer", ends="n")
    >>> modules.label
    'n: stream mixer dense ends; outer: experts'
    """

    stream: Literal["n", "context", "none"] = "none"
    mixer: Literal["n", "outer", "context", "none"] | None = None
    dense: Literal["n", "m", "none"] | None = None
    experts: Literal["n", "outer", "m", "none"] | None = None
    ends: Literal["n", "m", "none"] | None = None

    def of(self, module: str | None) -> ModuleScheme:
        """Scheme of a module; for None that of the residual stream."""
        scheme: ModuleScheme | None = getattr(self, module or STREAM)
        return scheme or "none"

    @property
    def schemes(self) -> dict[str, ModuleScheme]:
        """Schemes of all modules that have one."""
        every = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: scheme for name, scheme in every.items() if scheme is not None}

    @property
    def copies_weights(self) -> bool:
        """Whether some module splits tokens, so that chips of the axis replicate its weights."""
        return any(scheme in ("n", "context") for name, scheme in self.schemes.items() if name != STREAM)

    @property
    def alike(self) -> bool:
        """Whether mixers and dense networks use the same kind of split: tokens, or features.

        Examples
        --------
        >>> Modules(mixer="context", dense="n", experts="outer").alike, Modules(mixer="n", dense="m").alike
        (True, False)
        """
        by_tokens = {scheme in ("n", "context") for scheme in (self.mixer, self.dense) if scheme not in (None, "none")}
        return len(by_tokens) < 2

    @property
    def label(self) -> str:
        """Modules by scheme in one line."""
        by: dict[str, list[str]] = {}
        for name, scheme in self.schemes.items():
            by.setdefault(scheme, []).append(name)
        return "; ".join(f"{scheme}: {' '.join(names)}" for scheme, names in by.items())


MENU: dict[str, tuple[ModuleScheme, ...]] = {
    "mixer": ("n", "outer", "context"), "dense": ("n", "m"), "experts": ("outer", "m", "n"), "ends": ("n", "m"),
}  # fmt: skip
"""Schemes of every module, of which those are tried that its kernels allow; ``none`` where they allow no other."""
