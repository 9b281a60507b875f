"""An ONNX model as a graph: `dfopt import onnx MODEL.onnx`.

Weights, inputs and outputs are those of the file, shapes are inferred by ONNX under the sizes that are given for
symbolic dims. Nothing is guessed: a node whose operator could cost something and is not understood is refused by its
name and place. How operators are drawn is said in :mod:`dfopt.frontends.onnx.ops`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from dfopt.documents.base import plain_words
from dfopt.documents.graph import Graph
from dfopt.documents.tokens import Tokens
from dfopt.errors import DocumentError, Issue, did_you_mean, refuse
from dfopt.workloads.fold import find_run, fold, with_entrances

if TYPE_CHECKING:
    from dfopt.frontends.onnx.canvas import Canvas
    from dfopt.frontends.onnx.model import OnnxModel, OnnxNode
    from dfopt.frontends.onnx.ops import Draw


def read(
    path: str | os.PathLike[str],
    dims: Mapping[str, int] | None = None,
    *,
    samples: str = "",
    tokens: str = "",
    folded: bool | None = None,
) -> Graph:
    """Import an ONNX model as a graph.

    Parameters
    ----------
    path : path
        The model. Only shapes of weights are used, so files with their values need not be there.
    dims : mapping, optional
        Sizes of symbolic dims, by name; ``INPUT[AXIS]`` names a dim that has none.
    samples, tokens : str, optional
        Names of the dims that count the samples of one evaluation, and the tokens of a sample; without them an
        evaluation is one sample of one token.
    folded : bool, optional
        Whether layers that repeat are drawn once, see :mod:`dfopt.workloads.fold`; left out, where that at least halves
        the kernels.

    Raises
    ------
    DocumentError
        With the node or dim that is not understood; also where the package ``onnx`` is missing.

    Examples
    --------
    >>> import onnx
    >>> folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    >>> graph = read(folder / "light_squeezenet.onnx", folded=False)
    >>> graph, graph.kernels[0].op
    (Graph(light_squeezenet: 65 kernels, batch 1), 'gemm')
    """
    file = os.fspath(path)
    try:
        import onnx  # noqa: F401
    except ImportError:
        refuse(file, "found no onnx, the package that reads such files", "python -m pip install onnx")
    from dfopt.frontends.onnx.attention import DOMAINS, SHAPES
    from dfopt.frontends.onnx.canvas import Canvas
    from dfopt.frontends.onnx.model import STANDARD, read_model
    from dfopt.frontends.onnx.parts import draw_parts
    from dfopt.frontends.onnx.recurrent import CELLS

    model = read_model(path, dims or {}, SHAPES)
    table = {**DOMAINS, **dict.fromkeys(STANDARD, DOMAINS[""])}
    _refuse_unknown(model, {domain: frozenset(operators) for domain, operators in table.items()}, file)
    about = {
        "name": Path(file).stem,
        "source": f"{Path(file).name}, opset {max((node.opset for node in model.nodes), default=0)}",
        "microbatch": (size := _size(model, samples, "--sample-dim", file)),
    }
    each = _size(model, tokens, "--token-dim", file)
    about |= {"tokens": Tokens(processed=each * size)} if each > 1 else {}
    try:
        canvas = Canvas(model)
        for node in model.nodes:
            if any(model.types[name].size for name in node.outputs if name in model.types):
                _draw(table[node.domain][node.op], canvas, node)
        if not canvas.kernels:
            refuse(file, "found nothing that costs anything", "is it the right file?")
        draw_parts(canvas)
        drawn = canvas.graph(**about, batch=about["microbatch"])
    except DocumentError as error:
        raise DocumentError(file, error.issues) from None
    except ValidationError as error:  # a count that no kernel may have
        refuse(file, f"found no size or count of a kernel: {plain_words(error)}", "give smaller sizes")
    run = find_run(drawn)
    if run is not None:
        drawn, run = with_entrances(drawn, run)
    alike = f", {run.repeat} layers alike" if run is not None else ""
    cells = sorted({node.op for node in model.nodes if node.op in CELLS})
    once = f"; matrices and state of {' and '.join(cells)} stay on the chip from token to token" if cells else ""
    description = f"ONNX model with {canvas.parameters / 1e6:.4g} million parameters{alike}{canvas.notes()}{once}"
    described = drawn.model_copy(update={"description": description})
    if run is None or folded is False or (folded is None and 2 * run.saved < len(drawn.kernels)):
        return described
    return fold(described, run)


def _draw(draw: Draw, canvas: Canvas, node: OnnxNode) -> None:
    try:
        draw(canvas, node)
    except (LookupError, ValueError) as error:  # ONNX infers shapes of nodes that lack what others need
        raise node.refuse(f"its inputs and attributes are not those of the operator: {error}") from None


def _refuse_unknown(model: OnnxModel, table: Mapping[str, frozenset[str]], file: str) -> None:
    """Refuse operators that are not understood, each once, at its first place."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, node in enumerate(model.nodes):
        if node.op not in table.get(node.domain, ()):
            places.setdefault((node.domain, node.op), []).append(place)
    issues = []
    for (domain, op), where in places.items():
        node = model.nodes[where[0]]
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        message = f"{node.what}{more}: what the operator costs is not known"
        remedy = did_you_mean(op, table.get(domain, ()), "export the model without it")
        issues.append(Issue(node.where, message, remedy))
    if issues:
        raise DocumentError(file, issues)


def _size(model: OnnxModel, name: str, option: str, file: str) -> int:
    if name and name not in model.sizes:
        close = did_you_mean(name, model.sizes, f"dims: {', '.join(model.sizes)}")
        raise DocumentError(file, [Issue("$.graph.input", f"{option}: no input has a dim {name!r}", close)])
    return model.sizes[name] if name else 1
