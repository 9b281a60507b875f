"""Commands as functions: what `dfopt list`, `show`, `check` and `compare` do, for Python and for the command line."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Sequence
from html import escape
from typing import Any

from dfopt.documents.base import Document
from dfopt.documents.certificate import Certificate
from dfopt.documents.exploration import Exploration
from dfopt.documents.published import issues
from dfopt.documents.result import Result
from dfopt.documents.store import SCHEMA, is_store
from dfopt.documents.zoo import KINDS
from dfopt.errors import DocumentError, PlanError, did_you_mean
from dfopt.library import load_sized
from dfopt.search.verify import Verification, verify

Readable = Document | str | os.PathLike[str]


class Text(str):
    """Text that prompts and notebooks display without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def _text(renderable: Any, width: int) -> Text:
    from dfopt.show.grid import print_to

    stream = io.StringIO()
    print_to(stream, renderable, width)
    return Text(stream.getvalue().rstrip())


def names_of(kind: str) -> builtins.list[str]:
    """Names of one shelf of the zoo, or of the assumption profiles."""
    from dfopt.documents.assumptions import PROFILES
    from dfopt.documents.zoo import zoo

    return sorted(PROFILES) if kind == "assumptions" else zoo(kind)  # type: ignore[arg-type]


def list(kind: str = "") -> builtins.list[str]:
    """List the shelves of the zoo, or the names of one shelf.

    Parameters
    ----------
    kind : str
        ``graphs``, ``systems``, ``chips``, ``memories``, ``links``, ``topologies``, ``stacks``, ``technologies``,
        ``designs``, ``calibrations`` or ``assumptions``; all kinds if left out.

    Raises
    ------
    PlanError
        For an unknown kind.

    Examples
    --------
    >>> import dfopt as df
    >>> df.list("systems")[:2], df.list()[:2]
    (['a100-4096', 'a100-512'], ['graphs', 'systems'])
    """
    kinds = [*KINDS, "assumptions"]
    if kind and kind not in kinds:
        raise PlanError(f"list: expected one of {', '.join(kinds)}, found {kind!r} ({did_you_mean(kind, kinds)})")
    return names_of(kind) if kind else kinds


def show(document: Readable, detail: str | Sequence[str] = (), **parameters: Any) -> Text:
    """Show a graph, a system, a result or any other document, as `dfopt show` prints it.

    Parameters
    ----------
    document : Document, name or path
        Document to show.
    detail : str or sequence of str
        Sections of a result: ``plan``, ``kernels``, ``time``, ``memory``, ``decisions``, ``proof``, ``sensitivity``,
        ``heat``, ``matrices`` or ``all`` but for these; a summary if left out.
    **parameters
        Parameters of a graph that is named, such as ``phase="decode"``.

    Examples
    --------
    >>> import dfopt as df
    >>> print(df.show("sn10-8-ring").splitlines()[0])
    system        sn10-8-ring: 8 SambaNova SN10 RDUs, a ring of 8
    """
    from dfopt.show.describe import report

    sections = (detail,) if isinstance(detail, str) else tuple(detail)
    loaded, figures = (document, ()) if isinstance(document, Document) else load_sized(os.fspath(document), parameters)
    return _text(report(loaded, sections, figures), 140 if sections else 80)


def check(
    document: Readable, time_limit: float | None = None, certificate: Certificate | str | os.PathLike[str] | None = None
) -> Verification:
    """Check a document: a graph against published counts; a result, an exploration or a store, every claim.

    Parameters
    ----------
    document : Document, name or path
        Document to check, or path of a store of a sweep.
    time_limit : float, optional
        Seconds; 60, or four times what the search took, if left out.
    certificate : Certificate or path, optional
        Certificate of an earlier check of this result, which saves time; it is not trusted.

    Returns
    -------
    Verification
        ``ok``, a ``verdict`` in words, the ``gap`` that was verified, ``problems``, and a ``certificate`` that another
        check can follow.

    Raises
    ------
    DocumentError
        For a file that is wrong in itself, and for an exploration whose claims do not hold.

    Examples
    --------
    >>> import dfopt as df
    >>> df.check("llama-3.1-8b").verdict, df.check(df.solve("gpt2-small", "sn10-8-ring", tp=8)).ok
    ('ok', True)
    """
    return checked(document, time_limit, certificate)[0]


def checked(
    document: Readable, time_limit: float | None = None, certificate: Certificate | str | os.PathLike[str] | None = None
) -> tuple[Verification, str]:
    """Outcome of `check`, and the schema of the document.

    Parameters
    ----------
    document
        A document, or the file of one.
    time_limit : float, s, optional
        Wall-clock limit.
    certificate
        Certificate of the proof, or the file of one, which is followed instead of a search.
    """
    followed = Certificate.load(certificate) if isinstance(certificate, str | os.PathLike) else certificate
    name = document.SCHEMA if isinstance(document, Document) else os.fspath(document)
    if not isinstance(document, Document) and is_store(document):
        from dfopt.studies.checking import check_store

        if followed is not None:
            raise PlanError(f"certificate: {name} is a store, and only a result has one")
        return Verification(check_store(document, time_limit), None, (), unchecked=()), SCHEMA
    loaded, figures = (document, ()) if isinstance(document, Document) else load_sized(os.fspath(document))
    if wrong := [*issues(figures)]:
        raise DocumentError(name, wrong)
    if isinstance(loaded, Result):
        return verify(loaded, time_limit, followed), loaded.SCHEMA
    if followed is not None:
        raise PlanError(f"certificate: {name} is a {loaded.SCHEMA}, and only a result has one")
    words = "ok"
    if isinstance(loaded, Exploration):
        from dfopt.exploring.checking import check_exploration

        words = check_exploration(loaded, name, *([] if time_limit is None else [time_limit]))
    return Verification(words, None, (), unchecked=()), loaded.SCHEMA


def compare(*results: Result | str | os.PathLike[str]) -> Text:
    """Put results side by side, as `dfopt compare` prints it: what differs in the question, and their figures.

    Parameters
    ----------
    *results : Result or path
        Two or more results.

    Examples
    --------
    >>> import dfopt as df
    >>> ring, torus = (df.solve("gpt2-small", system, tp=8) for system in ("sn10-8-ring", "sn10-8-torus"))
    >>> print(df.compare(ring, torus).splitlines()[0])
    different system: sn10-8-ring against sn10-8-torus
    """
    from dfopt.show.compare import compare_report

    loaded = [each if isinstance(each, Result) else Result.load(each) for each in results]
    names = [
        f"result {place}" if isinstance(each, Result) else os.fspath(each) for place, each in enumerate(results, 1)
    ]
    return _text(compare_report(names, loaded), 140)


def frame(results: Sequence[Result]) -> Any:
    """A :class:`pandas.DataFrame` with the `summary` of each result as a row.

    Examples
    --------
    >>> import dfopt as df
    >>> results = [df.solve("gpt2-small", "sn10-8-ring", tp=tp) for tp in (4, 8)]
    >>> df.frame(results)[["system", "chips", "status"]].values.tolist()
    [['sn10-8-ring', 8, 'optimal'], ['sn10-8-ring', 8, 'optimal']]
    """
    import pandas as pd

    return pd.DataFrame([result.summary() for result in results]).infer_objects()
