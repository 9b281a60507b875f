"""One word for each act and each option, on the command line, in Python and in studies; and earlier words for it.

Documents keep the keys in which they were first written. Earlier names work for one release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar

from dfopt.errors import PlanError

F = TypeVar("F", bound=Callable[..., Any])


class Act(NamedTuple):
    """An action of dfopt: its command, its Python function, and former names of that function."""

    command: str
    python: str
    earlier: tuple[str, ...] = ()


class Word(NamedTuple):
    """Public name of an option or parameter, and its key in documents."""

    word: str
    key: str


ACTS: Final = (
    Act("solve", "solve", ("optimize",)), Act("score", "score", ("evaluate",)), Act("check", "check", ("verify",)),
    Act("list", "list", ("zoo",)), Act("show", "show"), Act("compare", "compare"), Act("sweep", "sweep"),
    Act("explore", "explore"), Act("derive", "derive"), Act("heat", "heat", ("heat_answers",)),
    Act("plot", "plot"), Act("collective", "collective"),
)  # fmt: skip
WORDS: Final = (
    Word("isl", "seq"), Word("cached", "hit"), Word("tp_comm_overlap", "tensor_overlap"),
    Word("param_gather_overlap", "parameter_overlap"), Word("p2p_overlap", "point_to_point_overlap"),
    Word("recompute_layers", "recomputed"), Word("module", "modules"), Word("shard", "pin_sharding"),
    Word("pin", "pin_partition"),
)  # fmt: skip
OPTIONS: Final[dict[str, dict[str, str]]] = {
    "solve": {"--prompt": "--isl", "--hit": "--cached", "--window": "--draft"},
    "sweep": {"--shard": "--part", "--results": "--out-dir"},
    "derive": {"--stack": "--stack-out", "--system": "--system-out"},
    **{name: {"--output": "--out-dir", "-o": "--out-dir"} for name in ("export", "dfmodel", "calculon", "megatron")},
}
"""Earlier spellings of the options of a command."""
TAKEN_BY: Final = {
    "technologies": "df.explore", "jobs": "df.sweep or df.explore", "store": "df.sweep or df.explore",
    "cluster": "df.sweep", "part": "df.sweep", "retry": "df.sweep", "out_dir": "df.sweep",
    "physical": "df.score", "throttle": "df.score", "on": "df.derive", "one_kelvin": "df.heat",
    "detail": "df.show",
}  # fmt: skip
"""Keywords that other functions take."""


def renamed(**keywords: str) -> Callable[[F], F]:
    """Decorator: a function also accepts keywords by their former names."""

    def decorate(function: F) -> F:
        @wraps(function)
        def run(*given: Any, **named: Any) -> Any:
            return function(*given, **{keywords.get(name, name): value for name, value in named.items()})

        return run  # type: ignore[return-value]

    return decorate


def word_of(key: str) -> str:
    """Public name of a document key.

    Examples
    --------
    >>> word_of("tensor_overlap"), word_of("tp")
    ('tp_comm_overlap', 'tp')
    """
    return next((word for word, its in WORDS if its == key), key)


def in_documents(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options, or parameters of a workload, renamed to their document keys.

    Examples
    --------
    >>> in_documents({"cached": 3, "isl": 8, "tp": 2})
    {'hit': 3, 'seq': 8, 'tp': 2}
    """
    keys = dict(WORDS)
    for word, key in WORDS:
        if word in given and key in given and given[word] != given[key]:
            raise PlanError(f"{word}: found {given[word]!r} and {key} {given[key]!r}, which mean the same; give one")
    return {keys.get(word, word): value for word, value in given.items()}
