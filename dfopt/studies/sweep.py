"""``sweep``: expand a study, solve what its store does not have yet, return all of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dfopt.documents.study import Study
from dfopt.errors import PlanError
from dfopt.studies.cells import Cell, expand
from dfopt.studies.executor import run
from dfopt.studies.runs import Runs
from dfopt.studies.store import Record, Store, read_records

__all__ = ["collect", "load_study", "sweep"]

Told = Callable[[int, int, Record | None], None]


def load_study(source: str | os.PathLike[str] | Study) -> tuple[Study, Path, str]:
    """A study, the folder in which its paths start, and its name in errors."""
    if isinstance(source, Study):
        return source, Path(), source.name
    return Study.load(source), Path(source).absolute().parent, os.fspath(source)


def sweep(
    study: str | os.PathLike[str] | Study,
    *,
    jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    results: str | os.PathLike[str] | None = None,
    retry: bool = False,
    progress: Told | None = None,
) -> Runs:
    """Solve all cells of a study on this machine.

    Parameters
    ----------
    study : str, Path or Study
        The study, or the file it is in.
    jobs : int, optional
        Processes at once, of one solver thread each; the cores of this machine by default.
    store : str or Path, optional
        The file of record, JSON Lines. What it has of this study is not solved again, so a sweep that was ended
        goes on where it stopped; the store of another study may be shared. Without one, records live in memory.
    results : str or Path, optional
        Folder in which the whole result of every cell is written as ``CELL.json``.
    retry : bool
        Solve cells again that the store has as ``failed`` or ``no_solution``.
    progress : callable, optional
        Called with the number of cells done, of all, and the record that just came (none at the start).

    Returns
    -------
    Runs
        With ``interrupted`` set where Ctrl-C ended it; the cells that were being solved are pending then.

    Raises
    ------
    DocumentError
        If the study or the store is not what it must be. What goes wrong in a cell is in its record instead.
    PlanError
        If ``jobs`` or ``results`` cannot be.

    Examples
    --------
    >>> runs = sweep(
    ...     Study(name="one", graphs=[{"graph": "gpt2-small"}], systems=[{"system": "sn10-8-ring"}], options={"tp": 8}),
    ...     jobs=1,
    ... )
    >>> runs
    Runs(one: 1 cell, 1 optimal)
    >>> runs.frame()[["graph", "tp", "bound_by"]].iloc[0].to_dict()
    {'graph': 'gpt2-small', 'tp': 8, 'bound_by': 'network'}
    """
    document, folder, path = load_study(study)
    cells = expand(document, folder, path)
    kept = _folder(results)
    if store is None:
        return _run(document, cells, {}, lambda record: None, jobs, kept, retry, progress, ())
    with Store(store) as opened:
        notes = (opened.set_aside,) if opened.set_aside else ()
        runs = _run(document, cells, opened.records, opened.append, jobs, kept, retry, progress, notes)
    # Ctrl-C may come between the writing of a record and its entry in the table: the file knows
    return replace(runs, records=read_records(store)) if runs.interrupted else runs


def collect(study: str | os.PathLike[str] | Study, store: str | os.PathLike[str]) -> Runs:
    """What a store has of a study, without solving anything; also while a sweep writes to the store.

    Raises
    ------
    DocumentError
        If the study or the store is not what it must be.
    """
    document, folder, path = load_study(study)
    records = read_records(store)
    cells = expand(document, folder, path)
    mine = (records[key] for key in {cell.key for cell in cells} if key in records)
    return Runs(document, cells, records, notes=tuple(_other_versions(mine)))


def _run(
    study: Study,
    cells: tuple[Cell, ...],
    known: Mapping[str, Record],
    keep: Callable[[Record], None],
    jobs: int | None,
    results: Path | None,
    retry: bool,
    progress: Told | None,
    notes: tuple[str, ...],
) -> Runs:
    records = dict(known)
    again = ("failed", "no_solution") if retry else ()
    wanted = {cell.key: cell for cell in cells}
    notes = (*notes, *_other_versions(record for key, record in records.items() if key in wanted))
    todo = [cell for key, cell in wanted.items() if key not in records or records[key]["status"] in again]
    done = len(wanted) - len(todo)
    if progress is not None:
        progress(done, len(wanted), None)

    def take(record: dict[str, Any]) -> None:
        nonlocal done
        keep(record)
        records[record["cell"]] = record
        done += 1
        if progress is not None:
            progress(done, len(wanted), record)

    finished = run([_task(cell, results) for cell in todo], take, jobs)
    return Runs(study, cells, records, interrupted=not finished, notes=notes)


def _other_versions(known: Iterable[Record]) -> Iterator[str]:
    """A digest says what was asked, not which dfopt answered."""
    from dfopt import __version__

    others = Counter(str(record.get("dfopt")) for record in known if record.get("dfopt") != __version__)
    for version, count in others.items():
        yield f"{count} cells are from dfopt {version}, this is {__version__}: another store solves them again"


def _task(cell: Cell, results: Path | None) -> dict[str, Any]:
    return {
        "cell": cell.key,
        "graph": cell.graph.to_data(),
        "system": cell.system.to_data(),
        "assumptions": cell.assumptions.to_data(),
        "options": cell.options.model_dump(),
        "seed": cell.seed,
        "save": None if results is None else str(results / f"{cell.key}.json"),
    }


def _folder(results: str | os.PathLike[str] | None) -> Path | None:
    if results is None:
        return None
    folder = Path(results)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(f"results: {folder} cannot be made: {error.strerror or error}") from None
    return folder.absolute()
