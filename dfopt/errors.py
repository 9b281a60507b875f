"""Every error dfopt raises on purpose, and the words they are made of.

::

    DfoptError
      DocumentError(path, issues)         a file that cannot be read or does not say what it must   exit 3
        UnitError                           every issue of the file is a unit that does not fit
        SchemaVersionError                  a document of another kind or version
        NotInZoo(name, matches, kind)       neither a file nor a zoo name
      GraphError(path, issues)            a cycle, shapes that disagree                             exit 3
      SystemSpecError(path, issues)       a network dim no plan can use                             exit 3
      PlanError                           degrees that do not multiply to the chips                 exit 2
      SolveError                                                                                    exit 6
        Infeasible(report, least, fixed)    proven: no mapping fits, and why                        exit 4
        NoSolution(bound, seconds)          a limit came before the first mapping                   exit 5
        SolverFailure                       the solver broke                                        exit 6
      ScoreMismatch(term, milp, judge)    MILP and judge disagree: a bug in dfopt                   exit 6

All of them can be pickled, because sweeps send them between processes. That is why every constructor sets
``args`` to exactly what it was called with: unpickling calls the class with ``args``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NoReturn, TypeVar

EXIT_CODES: Final = {
    0: "The command succeeded.",
    1: "The answer could not be printed.",
    2: "The command line is wrong, or a plan does not fit the system.",
    3: "A document is wrong: a file that cannot be read, or that breaks a rule.",
    4: "No mapping fits, which is proven. The message says what is missing.",
    5: "A limit came before the first mapping.",
    6: "The solver failed, or MILP and judge disagree.",
    7: "The mapping was judged, and the stack of dies on which it would run breaks a limit.",
    8: "A proof was required, and the gap stayed above the requested one.",
    130: "Ctrl-C ended the command before it found anything.",
    143: "SIGTERM ended the command before it found anything.",
}
"""Exit statuses of the command line."""

# A file can be wrong in a million places (a list of the wrong type); a person reads the first hundred.
_SHOWN = 100
Name = TypeVar("Name", bound=Hashable)
_STEERING = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_BARE_KEY = re.compile(r"[^\s.\[\]'\"$]+")


@dataclass(frozen=True)
class Issue:
    """One problem in a document: path, message and remedy."""

    where: str  # JSON path of the offending value, such as $.chip.dram.bandwidth
    message: str  # what was found and what was expected
    remedy: str = ""  # what to do about it, where there is something useful to say

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"

    @property
    def text(self) -> str:
        """Message and remedy, without the path."""
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


def json_path(*steps: str | int) -> str:
    """JSON path from keys and indices.

    Examples
    --------
    >>> json_path("kernels", 3, "outer"), json_path("a b", 0), json_path()
    ('$.kernels[3].outer', "$['a b'][0]", '$')
    """
    parts = ["$"]
    for step in steps:
        bare = isinstance(step, str) and _BARE_KEY.fullmatch(step)
        parts.append(f".{step}" if bare else f"[{step!r}]")
    return "".join(parts)


def visible(text: str) -> str:
    r"""Text with control and bidirectional characters escaped.

    Line feeds and tabs stay.

    Examples
    --------
    >>> print(visible("red \x1b[31m, back \u202e"))
    red \x1b[31m, back \u202e
    """
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def shown(value: object, length: int = 60) -> str:
    """A value as text in the notation of files, shortened.

    Examples
    --------
    >>> shown("ring"), shown(True), shown(None), shown([1, 2]), shown("x" * 99, 9)
    ("'ring'", 'true', 'nothing', 'a list of 2', "'xxxxx...")
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)} key{'' if len(value) == 1 else 's'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    # repr() of a slice: a huge text is not copied, and control characters do not reach the terminal.
    text = repr(value[: length + 1]) if isinstance(value, str) else str(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def close_matches(word: str, names: Iterable[str], least: float = 0.6) -> list[str]:
    """Up to three names with a similar spelling, regardless of case.

    Parameters
    ----------
    word, names
        The word, and the names that it may mean.
    least : float
        Least similarity, from 0 to 1, as of :func:`difflib.get_close_matches`.

    Examples
    --------
    >>> close_matches("bandwith", ["bandwidth", "latency"]), close_matches("KB", ["kB", "KiB"])
    (['bandwidth'], ['kB', 'KiB'])
    """
    lower: dict[str, list[str]] = {}
    for name in names:
        lower.setdefault(name.lower(), []).append(name)
    near = difflib.get_close_matches(word.lower(), lower, 3, least)
    return [name for match in near for name in lower[match]][:3]


def did_you_mean(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """Remedy for a misspelt word, or ``otherwise`` if no name is close.

    Parameters
    ----------
    word, names
        The word, and the names that it may mean.
    otherwise : str
        Remedy if no name is close.
    """
    close = close_matches(word, names)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else otherwise


def repeated(names: Iterable[Name]) -> Iterator[tuple[int, Name, int]]:
    """Repeated names: (position, name, first position) of each.

    Examples
    --------
    >>> list(repeated(["x", "y", "x"]))
    [(2, 'x', 0)]
    """
    first: dict[Name, int] = {}
    for position, name in enumerate(names):
        if first.setdefault(name, position) != position:
            yield position, name, first[name]


class DfoptError(Exception):
    """Base of all errors that dfopt raises on purpose."""

    exit_code: ClassVar[int] = 1


class _IssuesError(DfoptError):
    """An error that is a list of issues of one file; ``path`` is empty when the data came from no file."""

    exit_code: ClassVar[int] = 3
    path: str
    issues: tuple[Issue, ...]

    def __init__(self, path: object, issues: Iterable[Issue]) -> None:
        self.path, self.issues = str(path), tuple(issues)
        super().__init__(self.path, self.issues)

    def __str__(self) -> str:
        if not self.path and len(self.issues) == 1 and self.issues[0].where == "$":
            return self.issues[0].text
        count = len(self.issues)
        lines = [f"{self.path or '<data>'}: {count} problem{'' if count == 1 else 's'}"]
        lines += [f"  {issue}" for issue in self.issues[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"  ... and {count - _SHOWN} more")
        return "\n".join(lines)


class DocumentError(_IssuesError):
    """Raised for a document that cannot be read, parsed or validated, with all issues at once.

    Examples
    --------
    >>> print(DocumentError("a.yaml", [Issue("$.chips", "missing", "add the key 'chips'")]))
    a.yaml: 1 problem
      $.chips: missing (add the key 'chips')
    """


def refuse(path: object, message: str, remedy: str) -> NoReturn:
    """Raise a `DocumentError` with one issue that concerns the whole file.

    Parameters
    ----------
    path
        Name of the file.
    message, remedy : str
        What is wrong, and what helps.

    Raises
    ------
    DocumentError
        Always.
    """
    raise DocumentError(path, [Issue("$", message, remedy)]) from None


class UnitError(DocumentError, ValueError):
    """Raised for a quantity without a unit, or with a unit of another dimension.

    It is a ``ValueError`` too, so that pydantic collects it with the other issues of the file.
    """


class SchemaVersionError(DocumentError):
    """Raised for a document of another kind, or of a version that this dfopt cannot read."""


class NotInZoo(DocumentError):
    """Raised for a name that is neither a file nor in the zoo."""

    def __init__(self, name: str, matches: Iterable[str], kind: str) -> None:
        self.name, self.matches, self.kind = name, tuple(matches), kind
        every = f"`dfopt list {kind}` lists them all"
        close = " or ".join(repr(match) for match in self.matches)
        remedy = f"did you mean {close}? {every}" if close else every
        super().__init__(name, [Issue("$", f"no file and no zoo name in {kind}: found {name!r}", remedy)])
        self.args = (self.name, self.matches, self.kind)


class GraphError(_IssuesError):
    """Raised for an inconsistent graph: a cycle, or shapes that disagree."""


class SystemSpecError(_IssuesError):
    """Raised for an inconsistent system, such as a network dim that no plan can use."""


class PlanError(DfoptError):
    """Raised for an impossible plan or request: degrees that do not multiply to the chips, dims that do not divide."""

    exit_code: ClassVar[int] = 2


class SolveError(DfoptError):
    """Base of all errors of a solve."""

    exit_code: ClassVar[int] = 6


class Infeasible(SolveError):
    """Raised where it is proven that nothing keeps the limits; ``report`` says which is short and what helps.

    ``least``: if a memory is too small for every plan, the least demand of the best plan, a
    :class:`dfopt.search.shortage.LeastHeld`; else None. ``fixed``: restrictions of what was searched, as sentences.
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, report: object, least: object = None, fixed: Sequence[str] = ()) -> None:
        self.report, self.least, self.fixed = report, least, tuple(fixed)
        super().__init__(report, least, self.fixed)

    def __str__(self) -> str:
        fixed = f"fixed: {', '.join(self.fixed)}" if self.fixed else None
        return "\n".join(str(part) for part in (f"infeasible: {self.report}", self.least, fixed) if part is not None)


class NoSolution(SolveError):
    """Raised where a limit ended the solve before the first feasible solution; feasibility stays open.

    ``bound``: what no solution beats, in ``unit``. ``seconds``: time spent. ``progress``: how far the search came.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, bound: float, seconds: float, progress: str = "", unit: str = " s") -> None:
        self.bound, self.seconds, self.progress, self.unit = bound, seconds, progress, unit
        super().__init__(bound, seconds, progress, unit)

    def __str__(self) -> str:
        progress = f"; {self.progress}" if self.progress else ""
        proven = f"no solution can be better than {self.bound:.6g}{self.unit}{progress}"
        return f"no solution found in {self.seconds:.4g} s ({proven}); give it more time, or fix more of it"


class SolverFailure(SolveError):
    """Raised where a solver failed: error code, crash, or an answer that violates its model."""


class ScoreMismatch(DfoptError):
    """Raised where solver and independent judge disagree: a bug in dfopt, never in the input."""

    exit_code: ClassVar[int] = 6

    def __init__(self, term: str, milp: float, judge: float) -> None:
        self.term, self.milp, self.judge = term, milp, judge
        super().__init__(term, milp, judge)

    def __str__(self) -> str:
        values = f"{self.milp!r} against {self.judge!r}"
        return f"MILP and judge disagree on {self.term}: {values}; please report this bug"
