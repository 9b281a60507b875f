"""``sweep``: expand a study, solve what its store does not have yet, return all of it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from dfopt.documents.names import renamed
from dfopt.documents.result import Result
from dfopt.documents.store import Record, Store, damage, read_records
from dfopt.documents.study import Study
from dfopt.documents.study_entries import SystemEntry
from dfopt.errors import PlanError
from dfopt.processes.executor import INTERRUPTED, Executor
from dfopt.processes.executors import executor_of
from dfopt.studies.cells import expand
from dfopt.studies.packing import Tasks
from dfopt.studies.runs import Runs
from dfopt.studies.shard import Shard

CellProgress = Callable[[int, int, Record | None], None]


def load_study(source: str | os.PathLike[str] | Study) -> tuple[Study, Path, str]:
    """A study, the folder that its paths are relative to, and its name in error messages."""
    if isinstance(source, Study):
        return source, Path(), source.name
    return Study.load(source), Path(source).absolute().parent, os.fspath(source)


@renamed(shard="part", results="out_dir")
def sweep(  # noqa: PLR0913 - a public function with options
    study: str | os.PathLike[str] | Study,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    part: str | None = None,
    store: str | os.PathLike[str] | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    retry: bool = False,
    progress: CellProgress | None = None,
    executor: Executor | None = None,
) -> Runs:
    """Solve all cells of a study, on this machine or on a cluster.

    Parameters
    ----------
    study
        The study, or the file it is in.
    jobs
        Processes at once, of one solver thread each; the cores of this machine by default.
    cluster
        Address of the scheduler of a Dask cluster, such as ``tcp://10.0.0.1:8786``, instead of processes here.
    part
        ``i/n``: only the i-th of n shares of the cells, which are the same in every process; the others stay pending.
        Each share needs its own store, and `collect` reads several.
    store
        File of records, JSON Lines. Cells that it has are not solved again, so that an interrupted sweep resumes;
        several studies may share a store. None: records are kept in memory.
    out_dir
        Folder for the whole result of every cell, ``CELL.json``, written before the cell counts as done. Cells of the
        store whose file is missing there are solved again.
    retry
        Solve cells again that the store has as ``failed`` or ``no_solution``.
    progress
        Called with the number of finished cells, the number of all, and the latest record (None at the start). Its
        method ``resumed``, if it has one, is called first, with the records that the store has for these cells.
    executor
        Executor that solves the cells, instead of ``jobs`` and ``cluster``.

    Returns
    -------
    Runs
        With ``interrupted`` set where Ctrl-C or a lost cluster ended it; cells that were being solved are pending then.

    Raises
    ------
    DocumentError
        If the study or the store is invalid. Errors of single cells are in their records instead.
    PlanError
        If ``jobs``, ``cluster``, ``part`` or ``out_dir`` cannot be.

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
    share = None if part is None else Shard.parse(part)
    chosen = executor or executor_of(jobs, cluster)
    kept = None if out_dir is None else _folder(out_dir)
    with closing(chosen), nullcontext() if store is None else Store(store) as opened:
        if opened is None or not opened.records:  # a new sweep: import there while the study is expanded here
            chosen.prepare(_at_most(document))
        cells = expand(document, folder, path)
        wanted = {cell.key: cell for cell in cells}
        records = {} if opened is None else dict(opened.records)
        notes = [opened.set_aside] if opened is not None and opened.set_aside else []
        notes += _other_versions(record for key, record in records.items() if key in wanted)
        if share is not None:
            keys = share.share(wanted)
            wanted = {key: cell for key, cell in wanted.items() if key in keys}
        todo = [cell for key, cell in wanted.items() if _is_open(key, records.get(key), retry, kept)]
        tasks = Tasks(todo, kept is not None, folder)
        left = {cell.key for cell in todo}
        if progress is not None and hasattr(progress, "resumed"):
            progress.resumed([records[key] for key in wanted if key not in left])
        tell = progress or (lambda done, total, record: None)
        tell(len(wanted) - len(left), len(wanted), None)

        def take(answer: dict[str, Any]) -> None:
            key = answer["cell"]
            if key not in left:  # an executor may be told twice; a cell is done once
                return
            cell = wanted[key]
            record = {**answer, "study": document.name, "axes": dict(cell.axes), "asked": tasks.asked(cell)}
            record |= {} if cell.calibration is None else {"calibrated_by": cell.calibration}
            result = record.pop("result", None)
            if kept is not None and result is not None:
                Result.from_data(result).dump(kept / f"{key}.json")
            if opened is not None:
                opened.append(record)
            left.remove(key)
            records[key] = record
            tell(len(wanted) - len(left), len(wanted), record)

        ended = chosen.run(tasks, take) if todo else ""
    # Ctrl-C may come between the writing of a record and its entry in the table: the file knows
    final = read_records(store) if ended and store is not None else records
    notes += [ended] if ended and ended != INTERRUPTED else []
    return Runs(document, cells, final, interrupted=bool(ended), notes=tuple(notes))


def collect(study: str | os.PathLike[str] | Study, *stores: str | os.PathLike[str]) -> Runs:
    """Records that stores have of a study, without solving; also while sweeps are running.

    Raises
    ------
    DocumentError
        If the study or a store is invalid.
    """
    document, folder, path = load_study(study)
    records = read_records(*stores)
    cells = expand(document, folder, path)
    present = (records[key] for key in {cell.key for cell in cells} if key in records)
    notes = [message] if (message := damage(stores)) else []
    return Runs(document, cells, records, notes=(*notes, *_other_versions(present)))


def _at_most(study: Study) -> int:
    """Cells that a study cannot have more of, known before it is expanded."""
    systems = 0
    for entry in study.systems:
        # a list of parts that is left out or empty is one system, of the chip's own
        parts = () if isinstance(entry, SystemEntry) else [part for _, part in entry if isinstance(part, tuple)]
        systems += math.prod(len(part) or 1 for part in parts)
    axes = math.prod(len(points) for points in (*study.parameters.values(), *study.axes.values()))
    return len(study.graphs) * systems * len(study.assumptions) * (len(study.limits) or 1) * axes


def _is_open(key: str, record: Record | None, retry: bool, results: Path | None) -> bool:
    if record is None or (retry and record["status"] in ("failed", "no_solution")):
        return True
    return results is not None and "figures" in record and not (results / f"{key}.json").exists()


def _other_versions(records: Iterable[Record]) -> Iterator[str]:
    """A digest says what was asked, not which dfopt answered."""
    from dfopt import __version__

    others = Counter(str(record.get("dfopt")) for record in records if record.get("dfopt") != __version__)
    for version, count in others.items():
        yield f"{count} cells are from dfopt {version}, this is {__version__}: another store solves them again"


def _folder(results: str | os.PathLike[str]) -> Path:
    try:
        os.makedirs(results, exist_ok=True)
    except OSError as error:
        raise PlanError(f"out_dir: {os.fspath(results)} cannot be made: {error.strerror or error}") from None
    return Path(results).absolute()
