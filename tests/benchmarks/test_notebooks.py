"""The notebooks: stored with outputs and without errors, with names that exist; nightly they run."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

import dfopt as df

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "notebooks"
NOTEBOOKS = sorted(HERE.glob("*.ipynb"))
KNOWN = {"dfopt", "pandas", "matplotlib", *sys.stdlib_module_names}
NETWORK = {"urllib", "http", "socket", "ftplib", "smtplib", "asyncio", "ssl"}
ABSOLUTE = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|usr|mnt|Users|var|opt)/|[A-Z]:\\\\")

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def loaded(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def nodes_of(path: Path) -> Iterator[ast.AST]:
    """The syntax of the code cells, with the magics of IPython turned into Python."""
    plain = TransformerManager().transform_cell
    for cell in loaded(path).cells:
        if cell.cell_type == "code":
            yield from ast.walk(ast.parse(plain(cell.source)))


def test_all_seven_are_there_and_small() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06", "07"]
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 2e6


@by_name
def test_it_is_stored_as_it_ran(path: Path) -> None:
    """Cells in order, each ran once, none of them ended with an error, and there are pictures."""
    notebook = loaded(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)


@by_name
def test_the_first_cell_says_what_it_is_for(path: Path) -> None:
    first = loaded(path).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith(f"# {int(path.name[:2])}. ")
    assert "What you learn:" in first.source
    seconds = re.search(r"Runs in about (\d+) seconds", first.source)
    assert seconds is not None and int(seconds[1]) < 60


@by_name
def test_claims_are_asserted(path: Path) -> None:
    asserted = [node for node in nodes_of(path) if isinstance(node, ast.Assert)]
    assert len(asserted) >= 4
    assert not [node for node in asserted if isinstance(node.test, ast.Constant)]


@by_name
def test_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    """No paths of a machine, neither in the source nor in outputs, and nothing that needs a network."""
    found = ABSOLUTE.search(path.read_text(encoding="utf-8"))
    assert found is None, found and found[0]
    for node in nodes_of(path):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] in KNOWN - NETWORK, name


@by_name
def test_every_name_of_dfopt_exists(path: Path) -> None:
    """A renamed function would else be noticed at night only."""
    seen = 0
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dfopt"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module}.{alias.name}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "df":
            seen += 1
            assert hasattr(df, node.attr), f"df.{node.attr}"
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "df.plot":
            assert hasattr(df.plot, node.attr), f"df.plot.{node.attr}"
    assert seen >= 4


@pytest.mark.nightly
@by_name
def test_it_runs(path: Path, tmp_path: Path) -> None:
    """From top to bottom in a fresh kernel and an empty folder; its own asserts are the test."""
    from nbclient import NotebookClient

    notebook = loaded(path)
    stored = [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert [bool(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"] == [bool(n) for n in stored]
