"""What a tool is here: a table from decisions to its own arguments, and the form that it reads them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dfopt.errors import Issue
from dfopt.exports.decisions import NAMES, OWN, TRAINED, RunDecisions

ToolArguments = dict[str, Any]


@dataclass(frozen=True)
class Lacks:
    """What a tool cannot express of a decision, with the nearest arguments."""

    why: str
    arguments: Mapping[str, Any] | None = None


Says = Callable[[RunDecisions], ToolArguments | Lacks]


@dataclass(frozen=True)
class Tool:
    """A training tool and its vocabulary of arguments.

    ``says`` has an entry for every decision that the tool has arguments for; all other decisions are listed. ``source``
    is the origin of the names of arguments, ``first`` a comment line at the top of the file; ``refuses`` returns
    reasons for which the tool would not start.
    """

    name: str
    title: str
    source: str
    file: str
    says: Mapping[str, Says]
    write: Callable[[Mapping[str, Any], str], str]
    refuses: Callable[[RunDecisions], Iterable[Issue]] = lambda _: ()


@dataclass(frozen=True)
class Exported:
    """Arguments of a tool, and the decisions that they do not express.

    Attributes
    ----------
    tool : Tool
        The tool.
    arguments : dict
        Value of each argument.
    left_out : dict
        Decisions that they do not express, with the reason.
    """

    tool: Tool
    arguments: Mapping[str, Any]
    left_out: Mapping[str, str]

    @property
    def lines(self) -> list[str]:
        """One line for each decision that the arguments do not express, in order of weight."""
        by_weight: dict[str, list[str]] = {"of what is trained": [], "of what a step costs": [], "left to the tool": []}
        for name, why in self.left_out.items():
            heading = list(by_weight)[0 if name in TRAINED else 2 if name in OWN else 1]
            by_weight[heading].append(f"  {name}: {why}")
        return [line for heading, lines in by_weight.items() if lines for line in (f"{heading}:", *lines)]


def exported(tool: Tool, decisions: RunDecisions) -> Exported:
    """Translate decisions to the arguments of a tool.

    Examples
    --------
    >>> from dfopt.exports.tools import TOOLS
    >>> set(TOOLS["megatron"].says) <= set(NAMES)
    True
    """
    arguments: ToolArguments = {}
    left_out: dict[str, str] = {}
    for name, what in NAMES.items():
        says, words = tool.says.get(name), decisions.words.get(name)
        if says is None:
            if words is not None:
                left_out[name] = f"{words} ({what})"
            continue
        answer = says(decisions)
        if isinstance(answer, Lacks):
            left_out[name] = f"{words or 'none'} ({answer.why})"
            answer = dict(answer.arguments or {})
        arguments |= answer
    return Exported(tool, arguments, left_out)
