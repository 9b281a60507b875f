"""Where solvers put their files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from solver_doors import assert_nothing_left


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, with a blank in its name, as PuLP splits its command lines there.

    Behind a test nothing is left in it, and nobody works there.
    """
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert_nothing_left(folder)
