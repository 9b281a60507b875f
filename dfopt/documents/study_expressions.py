"""Conditions and values over the columns of a study's frame: what may be written in one, and what it names.

They are a small part of Python's expressions, the part that pandas evaluates column by column: names of columns,
numbers, text, lists of them, comparisons, ``in``, ``and``, ``or``, ``not`` and arithmetic. Calls, attributes and
variables of the program are refused, so a study from a stranger can do no more than compare and divide.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Literal

from dfopt.documents.base import problem
from dfopt.errors import did_you_mean, shown

ExpressionKind = Literal["condition", "value"]

_CONDITIONS = (ast.Compare, ast.BoolOp)
_COMMON = (ast.Name, ast.Load, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.USub)
_ONLY_IN_CONDITIONS = (
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
    ast.BoolOp, ast.And, ast.Or, ast.Not, ast.List, ast.Tuple,
)  # fmt: skip
_EXAMPLE = {"condition": "chip == 'h100' and tp >= 8", "value": "samples_per_s / chips"}


def _tree(text: str, kind: ExpressionKind, where: str = "$") -> ast.expr:
    try:
        # one line, as pandas wants it: YAML folds long conditions over several
        return ast.parse(" ".join(text.split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"found {shown(text)}, expected a {kind} over columns"
        raise problem(message, f'write it as in "{_EXAMPLE[kind]}"', where) from None


def names_in(text: str, kind: ExpressionKind = "condition") -> tuple[str, ...]:
    """Columns that an expression names, in order of first use."""
    names = [node for node in ast.walk(_tree(text, kind)) if isinstance(node, ast.Name)]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return tuple(dict.fromkeys(node.id for node in names))


def check_expression(
    text: str, kind: ExpressionKind, columns: Collection[str], texts: Collection[str] = (), where: str = "$"
) -> None:
    """Raise an error unless an expression is a condition, or a value, over the columns of a data frame.

    The error is that of :func:`dfopt.documents.base.problem`.

    Parameters
    ----------
    text : str
        The expression.
    kind : str
        ``condition``: true or false in every row; ``value``: a number in every row.
    columns : collection of str
        Names that may occur.
    texts : collection of str
        Columns that hold text and thus no value.
    where : str
        The place in the document, for errors.

    Examples
    --------
    >>> check_expression("tp * pp > 8", "condition", ["tp", "pp"])
    >>> check_expression("__import__('os')", "value", [])
    Traceback (most recent call last):
    pydantic_core._pydantic_core.PydanticCustomError: found "__import__('os')": a call is no part of a value
    """
    actual, tree = f"found {shown(text)}", _tree(text, kind, where)
    is_condition = isinstance(tree, _CONDITIONS) or (isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not))
    if is_condition != (kind == "condition"):
        other = "a comparison" if is_condition else "a value"
        raise problem(f"{actual}, {other}, expected a {kind}", f'write it as in "{_EXAMPLE[kind]}"', where)
    allowed = _COMMON if kind == "value" else _COMMON + _ONLY_IN_CONDITIONS
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            fits = isinstance(node.value, int | float | (str if kind == "condition" else int))
            fits = fits and (kind == "condition" or not isinstance(node.value, bool))
        else:
            fits = isinstance(node, allowed)
        if not fits:
            what = {"Call": "call", "Attribute": "attribute", "Constant": "constant of this kind"}
            word = what.get(type(node).__name__, type(node).__name__.lower())
            article = "an" if word[0] in "aeiou" else "a"
            remedy = "use columns, numbers and operators" + (", text and lists" if kind == "condition" else "")
            raise problem(f"{actual}: {article} {word} is no part of a {kind}", remedy, where)
    for name in names_in(text, kind):
        if name not in columns:
            remedy = did_you_mean(name, columns, f"columns: {', '.join(columns)}")
            raise problem(f"{actual}: there is no column {name!r}", remedy, where)
        if kind == "value" and name in texts:
            raise problem(f"{actual}: column {name!r} holds text, expected numbers", "name another column", where)
