"""No answer about plans is remembered by a key that somebody wrote: what was read of a plan decides, see `ByReads`.

A key by hand is a tuple that picks two or more fields of a plan, where a dict remembers something by it: as an index,
in ``in``, ``get`` or ``setdefault``. To pick is to read an attribute of a plan, or to call one. A whole plan in a tuple
picks nothing. A key may be written where it is used or bound to a name of the same function first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "dfopt"
CORE = ("setting", "terms", "sharding", "fusion", "formulation", "heat", "search", "exploring")
ASKS = ("get", "setdefault", "pop")
FILES = sorted(path for room in CORE for path in (PACKAGE / room).rglob("*.py"))


def keys(function: ast.AST) -> Iterator[ast.expr]:
    """What dicts of a function are asked for."""
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            yield node.left
        elif isinstance(node, ast.Call) and node.args and getattr(node.func, "attr", "") in ASKS:
            yield node.args[0]


def bound(function: ast.AST) -> dict[str, ast.expr]:
    """Names of a function, and the last expression that each is bound to."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.NamedExpr):
            found[node.target.id] = node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                found |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return found


def picks(element: ast.expr) -> bool:
    """Whether an expression reads a field of a plan."""
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "plan"
        for node in ast.walk(element)
    )


def by_hand(tree: ast.AST) -> list[str]:
    """Keys by hand of a module."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
            continue
        names = bound(function)
        for key in keys(function):
            key = names.get(key.id, key) if isinstance(key, ast.Name) else key
            if isinstance(key, ast.Tuple) and sum(map(picks, key.elts)) > 1:
                found.append(f"{key.lineno}: {ast.unparse(key)}")
    return found


def test_no_key_is_written_by_hand() -> None:
    found = {path: by_hand(ast.parse(path.read_text(encoding="utf-8"))) for path in FILES}
    assert not {path: keys for path, keys in found.items() if keys}


@pytest.mark.parametrize(
    ("source", "many"),
    [
        ("def f(self, plan):\n return self.known[plan.tp, plan.dp]", 1),
        ("def f(self, plan):\n key = 'a', plan.tp, plan.axis_values('x')\n if key not in self.known:\n  pass", 1),
        ("def f(one):\n return memo.setdefault((one.plan.tp, one.plan.dp), 0)", 1),
        ("def f(self, plan, tiles):\n return self.known[plan, tiles]", 0),
        ("def f(self, plan):\n return self.known[plan.label, 1]", 0),
    ],
)
def test_what_a_key_by_hand_is(source: str, many: int) -> None:
    assert len(by_hand(ast.parse(source))) == many
