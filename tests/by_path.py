"""Scripts that are no part of a package, as modules, and run in this process."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock


def module_at(path: Path) -> ModuleType:
    """The module that a file is, run once more for each call."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@functools.cache
def beside_its_own(path: Path) -> ModuleType:
    """The module of a script, imported with what lies beside it; kept, so that imports are paid for once."""
    with mock.patch.object(sys, "path", [str(path.parent), *sys.path]):
        return module_at(path)


def ran(path: Path, *words: object) -> tuple[int, str, str]:
    """Exit code and both streams of a script's ``main``, in this process: a new one spends 0.7 s on imports."""
    out, err = io.StringIO(), io.StringIO()
    script = beside_its_own(path)
    with (
        mock.patch.object(sys, "argv", [str(path), *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = script.main()
    return code, out.getvalue(), err.getvalue()
