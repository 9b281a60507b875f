"""Options of a question, for every command that asks one: parameters of the workload, and what is fixed of mappings."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any, Final, TypeVar

from dfopt import arguments
from dfopt.documents.axes import keys

F = TypeVar("F", bound=Callable[..., Any])
_WORKLOAD: Final = """\
phase (forward|training|prefill|decode|verify|mixed): Work of a step: a pass over whole samples, a training
    step, or a step of serving; default: forward.
batch (N|max): Sequences of a step, such as 64; max: the largest number that fits. For explore N[,N...].
isl (N 1..): Input length: tokens of a sequence, such as 4096.
osl (N 1..): Output length in tokens: decode halfway, with isl + osl / 2 cached tokens.
context (N 0..): Cached tokens of each sequence in decode or verify; default: isl.
cached (N 0..): Tokens of a prompt that are cached before prefill; default: 0.
draft (N 0..): Draft tokens that verify checks, such as 3.
tree (0,1[,N...]): Depth of each token of a draft tree in verify, such as 0,1,1,2.
segments (SxN@C[,SxN@C...]): Groups of sequences in mixed, as SEQUENCESxNEW@CACHED, such as
    1x512@0,16x1@4096.
microbatch (N[,N...]|all): Sequences of a microbatch, such as 1,2; default: dfopt chooses.
recompute (none|NAME[+NAME...][/OTHERS][,...]|all): Activation recomputation in training, such as none,
    attention or full; default: dfopt chooses.
recompute_layers (N 1..): Layers of a stage that recompute, with --recompute SOME/OTHERS; default: dfopt
    chooses.
"""
_PARALLELISM: Final = """\
{axes}
ep (N 1..)
cp (N 1..)
attention_dp (N 1..)
parallelism (tp_pp_dp|expanded|per_module)
rank_order (AXIS[-AXIS...])
module (MODULE=n|outer|m|context|none): Split of a module over the chips of --mp, such as mixer=n; may be
    repeated.
schedule (1f1b|interleaved|gpipe)
interleave (N 1..)
first_layers (N 0..)
last_layers (N 0..)
zero (0|1|2|3[,...]|all)
zero_replicas (N[,N...]|all)
sequence_parallelism (none|allow|force)
tp_comm_overlap (none|ring|pipe|waves|any)
gradient_overlap (none|backward|any)
param_gather_overlap (none|forward|any)
p2p_overlap (none|interleaved|any)
two_batch_overlap
"""
_NAMES: Final = (
    "phase", "context", "cached", "isl", "osl", "draft", "tree", "segments", "microbatch", "recompute", "batch",
)  # fmt: skip
"""Options that are parameters of the workload; all others are fields of the request."""


def with_question_options(command: F) -> F:
    """Decorator: inserts the question's options where a command's docstring has {workload} and {parallelism}."""
    axes = "\n".join(f"{key} ({'DIM[,DIM...]' if dims else 'N 1..'})" for key, (_, dims) in keys().items())
    sections = {"workload": _WORKLOAD, "parallelism": _PARALLELISM.replace("{axes}", axes)}
    for name, text in sections.items():
        command.__doc__ = (command.__doc__ or "").replace(f"        {{{name}}}\n", indent(text, " " * 8))
    return command


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into workload parameters and request fields.

    Examples
    --------
    >>> split_options({"batch": "64", "tp": 8, "dp_dims": "x,y"})
    ({'batch': 64}, {'tp': 8, 'dp_dims': ('x', 'y')})
    """
    given = arguments.given(options)
    served: dict[str, Any] = {name: given.pop(name) for name in _NAMES if name in given}
    if "batch" in served:
        served["batch"] = arguments.batch(served["batch"])
    return served, arguments.fields(given)
