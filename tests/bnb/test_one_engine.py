"""Definitions that hold branch and bound together, read from the source: one engine, and entries without state.

* A *best-first loop* is a module that orders what is open with a heap (``heapq``). Only `dfopt.bnb` has one.
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
ROOMS = {"bnb", "formulation", "fusion", "regions", "search", "setting", "sharding", "solving", "terms"}
TIMES = {"perf_counter", "monotonic", "time", "process_time"}
BASES = {"Relaxation", "Heuristic", "Reduction", "BranchingRule", "LeafSolver"}


@cache
def modules(*words: str) -> list[tuple[str, ast.Module]]:
    """The modules that have one of some words in them."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            found.append((str(path.relative_to(PACKAGE).with_suffix("")), ast.parse(text)))
    return found


def imported(tree: ast.Module) -> set[str]:
    names = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def base_of(node: ast.expr) -> str:
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).split(".")[-1]


def entries() -> list[tuple[str, ast.ClassDef]]:
    """Classes with a base of the engine, and classes with one of these as base."""
    bases, before = {*BASES}, set[str]()
    while bases != before:
        before = {*bases}
        found = [
            (name, node)
            for name, tree in modules(*sorted(bases))
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and bases & {base_of(one) for one in node.bases}
        ]
        bases |= {node.name for _, node in found}
    return found


def test_best_first_loops_are_in_one_room() -> None:
    found = {name for name, tree in modules("heapq") if "heapq" in imported(tree)}
    assert found == {"bnb/node", "bnb/search"}


def reads_time(node: ast.AST) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
    return bool(names & TIMES)


def test_only_the_clock_decides_by_time() -> None:
    comparing = {
        name
        for name, tree in modules(*(f"{word}(" for word in sorted(TIMES)))
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
