"""Who may import whom, read from the source: the order of the rooms of `dfopt`, its one door to solvers, no cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "dfopt"
LONGEST = 400

# From the ground up: a module imports from its own floor and from lower ones.
FLOORS = [
    ("errors", "units", "interrupts", "arrays", "divisors"),
    ("bnb",),
    ("guide",),
    ("documents",),
    ("workloads", "machines", "frontends"),
    ("physics",),
    ("technology",),
    ("library",),
    ("questions",),
    ("exports",),
    ("setting",),
    ("terms",),
    ("milp",),
    ("sharding",),
    ("fusion",),
    ("formulation",),
    ("heat",),
    ("solving",),
    ("regions",),
    ("search",),
    ("calibration",),
    ("processes",),
    ("exploring",),
    ("studies",),
    ("arguments", "api"),
    ("cli", "__main__", "commands"),
]
# Rooms beside the tower, with everything they may import.
BESIDE = {
    "judge": ("judge", "documents", "physics", "technology", "errors", "units", "arrays"),
    "proof": ("proof", "judge", "documents", "physics", "errors", "units", "arrays"),
    "show": ("show", "documents", "physics", "studies", "units", "errors"),
}
OUTSIDE = {"judge": ("numpy",), "proof": ("numpy",), "show": ("rich", "numpy", "networkx", "matplotlib", "jinja2")}
SOLVERS = {"highspy", "pulp"}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_zoo" not in path.parts)


def module_of(path: Path) -> str:
    """Name below ``dfopt``; the empty name is the package itself."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@cache
def imports(module: str, types: bool = False) -> tuple[tuple[str, int], ...]:
    """(full name, line) of everything a module imports; of what is for ``types`` alone only if that is asked for."""
    return tuple(imports_of(MODULES[module].read_text(encoding="utf-8"), module, types))


def imports_of(source: str, module: str, types: bool) -> list[tuple[str, int]]:
    """As `imports`, of the source of a module."""
    found: list[tuple[str, int]] = []

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not types:
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, child.lineno) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}:{child.lineno} is a relative import"
                for alias in child.names:
                    inner = f"{child.module}.{alias.name}"
                    known = inner.removeprefix("dfopt.") in MODULES
                    found.append((inner if known else str(child.module), child.lineno))
            walk(child)

    walk(ast.parse(source))
    return found


def room(module: str) -> str | None:
    """The most specific name in FLOORS or BESIDE that a module belongs to."""
    known = [name for floor in FLOORS for name in floor] + list(BESIDE)
    fits = [name for name in known if module == name or module.startswith(name + ".")]
    return max(fits, key=len, default=None)


def floor_of(name: str) -> int:
    return next(i for i, floor in enumerate(FLOORS) if name in floor)


def inner(module: str) -> list[tuple[str, int]]:
    """What a module imports from dfopt, below ``dfopt``. The package's own ``__version__`` belongs to nobody."""
    found = [
        (name.removeprefix("dfopt").removeprefix("."), line)
        for name, line in imports(module)
        if name.split(".")[0] == "dfopt"
    ]
    return [(name, line) for name, line in found if name]


def test_every_module_has_a_room() -> None:
    homeless = [module for module in MODULES if module and room(module) is None]
    assert not homeless, f"{homeless} belong to no room: add them to FLOORS or BESIDE"


def upwards(module: str) -> Iterator[str]:
    """What a module imports that it may not, in words."""
    here = room(module)
    assert here is not None, module
    for name, line in inner(module):
        there = room(name)
        where = f"dfopt.{module}:{line} imports dfopt.{name}"
        if there is None:
            yield f"{where}, which belongs to no room"
        elif here in BESIDE:
            if there not in BESIDE[here]:
                yield f"{where}; {here} may import only {', '.join(BESIDE[here])}"
        elif there in BESIDE:
            # the judge stands beside the problems and below heat, proofs below what is checked; show is for the cli and
            # for printing results
            lowest = floor_of({"judge": "heat", "proof": "search"}.get(there, "cli"))
            if floor_of(here) < lowest:
                yield f"{where}, which only {FLOORS[lowest][0]} and above may"
        elif floor_of(there) > floor_of(here):
            yield f"{where}, which lies above it"


def test_imports_go_down() -> None:
    wrong = [sentence for module in MODULES if module for sentence in upwards(module)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("place", list(OUTSIDE))
def test_the_rooms_beside_need_little_from_outside(place: str) -> None:
    wrong = []
    for module in MODULES:
        if module == place or module.startswith(place + "."):
            for name, line in imports(module):
                top = name.split(".")[0]
                if top != "dfopt" and top not in sys.stdlib_module_names and top not in OUTSIDE[place]:
                    wrong.append(f"dfopt.{module}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_only_milp_imports_a_solver() -> None:
    wrong = [
        f"dfopt.{module}:{line} imports {name}"
        for module in MODULES
        if module.split(".")[0] != "milp"
        for name, line in imports(module)
        if name.split(".")[0] in SOLVERS
    ]
    assert not wrong, "\n".join(wrong)


def test_the_judge_is_asked_and_nothing_else_of_it() -> None:
    """What others priced with the judge's own modules would be wrong with them, and pass.

    Proofs ask it for the figures of one block and of one step, and have nothing else.
    """
    asked = ("judge.items", "judge.steps")
    wrong = [
        f"dfopt.{module}:{line} imports dfopt.{name}"
        for module in MODULES
        if room(module) != "judge"
        for name, line in inner(module)
        if name.startswith("judge.") and not (room(module) == "proof" and name in asked)
    ]
    assert not wrong, "\n".join(wrong)


def inner_imports() -> nx.DiGraph:
    """Which module of dfopt imports which; a package's ``__init__`` is one of its own, run before its modules."""
    graph = nx.DiGraph()
    for module in MODULES:
        for name, _ in imports(module, types=True):
            if name.split(".")[0] == "dfopt":
                graph.add_edge(module, name.removeprefix("dfopt").removeprefix("."))
                parts = name.split(".")[1:]
                for package in (".".join(parts[:depth]) for depth in range(1, len(parts))):
                    if not f"{module}.".startswith(f"{package}."):  # else its __init__ runs already
                        graph.add_edge(module, package)
    return graph


def cycles_of(graph: nx.DiGraph) -> set[frozenset[str]]:
    """Largest sets of modules of which each imports each other one, in however many steps, or imports itself."""
    groups = map(frozenset, nx.strongly_connected_components(graph))
    return {group for group in groups if len(group) > 1 or any(graph.has_edge(name, name) for name in group)}


def test_no_import_cycles() -> None:
    """At the top of modules, in functions and for types: a concept that two modules need goes below both."""
    assert not sorted(map(sorted, cycles_of(inner_imports())))


def test_files_are_short() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {path: count for path, count in lines.items() if count > LONGEST}


def test_no_two_files_of_tests_have_one_name() -> None:
    """Tests are no packages: pytest would take the second for the first, and collect neither."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py")
    assert not [name for name, times in names.items() if times > 1]


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return set(done.stdout.split())


HEAVY = {"numpy", "scipy", "networkx", "highspy", "pulp", "pydantic", "yaml", "rich", "pandas", "matplotlib"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import dfopt") & HEAVY


def test_the_command_line_starts_without_numpy_and_solvers() -> None:
    assert not loaded_by("from dfopt.cli import app") & (HEAVY - {"pydantic", "yaml", "rich"})


def test_the_judge_needs_no_solver() -> None:
    assert not loaded_by("import dfopt; dfopt.evaluate") & SOLVERS


def test_this_test_sees_imports() -> None:
    """The walker would pass an empty package: here is what it must see."""
    assert any(name.startswith("milp") for name, _ in inner("fusion.intrachip"))
    assert any("highspy" in name for module in MODULES if module.startswith("milp") for name, _ in imports(module))
    assert len(MODULES) > 30


IMPORTS = """
import dfopt.units
if TYPE_CHECKING:
    from dfopt.documents.graph import Graph
class Asks:
    from dfopt.documents import plan
    def late(self):
        if self:
            import dfopt.judge.case as case
"""


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (False, ["dfopt.units", "dfopt.documents.plan", "dfopt.judge.case"]),
        (True, ["dfopt.units", "dfopt.documents.graph", "dfopt.documents.plan", "dfopt.judge.case"]),
    ],
)
def test_imports_in_functions_and_for_types_are_seen(types: bool, names: list[str]) -> None:
    assert [name for name, _ in imports_of(IMPORTS, "asks", types)] == names


def test_what_a_cycle_is() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("f", "f")]
    assert cycles_of(nx.DiGraph(edges)) == {frozenset("abc"), frozenset("f")}
