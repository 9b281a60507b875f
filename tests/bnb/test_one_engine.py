"""Definitions that hold branch and bound together, read from the source: one engine, and entries without state.

* A *best-first loop* is a module that orders what is open with a heap (``heapq``). Only `dfopt.bnb` has one. `LEFT`
  names those that still do; a file comes off the list with its loop, and none is added.
* A *decision by time* compares a reading of the clock. Only the clock of a search does (`bnb/clock`), and only to end a
  run; what is tried next is decided by units of work. Heat is a leaf with a deadline of its own.
* An *entry* is a class with a base of `dfopt.bnb.entries`. What it knows is set in ``__init__``. No other method
  assigns an attribute, of itself or of anything else.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "dfopt"
LEFT = {"fusion/segments", "search/jointly", "search/placing", "search/racing", "search/shortage"}
ROOMS = {"bnb", "formulation", "fusion", "joint", "regions", "search", "setting", "sharding", "terms"}
BASES = {"Relaxation", "Heuristic", "Reduction", "BranchingRule", "LeafSolver"}


@cache
def modules() -> list[tuple[str, ast.Module]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [
        (str(path.relative_to(PACKAGE).with_suffix("")), ast.parse(path.read_text(encoding="utf-8"))) for path in paths
    ]


def imported(tree: ast.Module) -> set[str]:
    names = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def base_of(node: ast.expr) -> str:
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).split(".")[-1]


def entries() -> list[tuple[str, ast.ClassDef]]:
    return [
        (name, node)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and BASES & {base_of(one) for one in node.bases}
    ]


def test_best_first_loops_are_in_one_room() -> None:
    found = {name for name, tree in modules() if "heapq" in imported(tree) and not name.startswith("bnb/")}
    assert found == LEFT


def reads_time(node: ast.AST) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
    return bool(names & {"perf_counter", "monotonic", "time", "process_time"})


def test_only_the_clock_decides_by_time() -> None:
    comparing = {
        name
        for name, tree in modules()
        if name.split("/")[0] in ROOMS
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and reads_time(node)
    }
    assert comparing == {"bnb/clock"}


def test_entries_hold_no_state() -> None:
    found = entries()
    assert {name for name, _ in found} >= {"exploring/entries"}
    written = [
        f"{name}: {entry.name}.{method.name}, line {node.lineno}"
        for name, entry in found
        for method in entry.body
        if isinstance(method, ast.FunctionDef) and method.name != "__init__"
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    assert not written
