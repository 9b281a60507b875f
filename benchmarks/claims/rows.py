"""What the claims share: rows of the table, solves by the clock, and programs run as processes of their own."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import dfopt as df
from dfopt.documents.assumptions import profile

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks"
SHORT = 5.0  # seconds: solves that take less are timed again
# one machine's own rules, as the first version had them: no split of tokens, no library of kernels on GPUs and TPUs
PLAIN = {"sequence_parallelism": "none"}
ALONE = PLAIN | {"execution": "kernel_by_kernel"}


class Row(NamedTuple):
    """A claim: what ran, what was seen, what the limit is, and whether it is met (None: it could not be said).

    Without the data of others it is passed over.
    """

    claim: str
    ran: str
    seen: str
    limit: str
    met: bool | None
    passed_over: bool = False

    @property
    def verdict(self) -> str:
        """Whether it is met, in a word."""
        if self.met is None:
            return "passed over" if self.passed_over else "error"
        return "yes" if self.met else "**no**"

    def line(self) -> str:
        """The row of the table."""
        cells = (one.replace("|", "/").replace("\n", " ") for one in self[:4])
        return f"| {' | '.join(cells)} | {self.verdict} |"


def without_data(claim: str, ran: str, limit: str) -> Row:
    """A claim that needs the data of others, which were not given."""
    return Row(claim, ran, "no data: give --reference DIR", limit, None, passed_over=True)


HEAD = "| claim | what ran | seen | limit | met |\n| --- | --- | --- | --- | --- |"


@dataclass(frozen=True)
class Asked:
    """What the command line asks for.

    Attributes
    ----------
    seconds : float
        Limit of a solve where the claim has none of its own.
    attack : float
        Of the search around one answer.
    examples : int
        Random worlds: those of the profile, of which a test takes a part or a multiple.
    most : int, optional
        Drawn pairs, checked results or mutations of a section at most; if given, studies have fewer cells as well.
    reference : Path, optional
        Folder with the measured and simulated cases of others.
    """

    seconds: float = 60.0
    attack: float = 20.0
    examples: int = 1000
    most: int | None = None
    reference: Path | None = None


Section = Callable[[Asked], Iterator[Row]]


def parser_of(doc: str | None, sections: dict[str, Section]) -> argparse.ArgumentParser:
    """The options that every runner of claims has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the sections, run none")
    parser.add_argument("--only", nargs="+", choices=sections, default=list(sections), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a solve that has none of its own")
    parser.add_argument("--examples", type=int, default=1000, help="random worlds (a test takes a multiple of it)")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="measured and simulated cases of others")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    return parser


def table(sections: dict[str, Section], names: list[str], asked: Asked, file: Path | None = None) -> list[Row]:
    """Run sections, and print a row for each claim as soon as it is known; rows may go into a file as well."""
    rows = list[Row]()
    print(HEAD)
    for name in names:
        try:
            for row in sections[name](asked):
                rows.append(row)
                print(row.line(), flush=True)
        except Exception as error:  # the other claims are run all the same
            rows.append(Row(name, "", f"{type(error).__name__}: {error}", "", None))
            print(rows[-1].line(), flush=True)
    if file is not None:
        found = [{**row._asdict(), "verdict": row.verdict.strip("*")} for row in rows]
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return rows


def listed(sections: dict[str, Section]) -> None:
    """Print what the sections are about."""
    for name, section in sections.items():
        print(f"{name}: {section.__doc__}")


@dataclass(frozen=True)
class Case:
    """A graph on a system, the rules that differ from the default, and what the plan is asked to be."""

    graph: str
    system: Any
    parameters: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        machine = self.system if isinstance(self.system, str) else self.system.name
        words = [f"{key}={value}" for key, value in (self.parameters | self.asked | self.rules).items()]
        return f"{self.graph}, {machine}" + (f": {', '.join(words)}" if words else "")

    def loaded(self) -> tuple[df.Graph, df.System, Any]:
        """Graph, system and assumptions."""
        system = df.load_system(self.system) if isinstance(self.system, str) else self.system
        return (
            df.load_graph(self.graph, **self.parameters),
            system,
            profile("default").with_(**{"memory_reserve": 0.0} | self.rules),
        )

    def solved(self, seconds: float, **changed: Any) -> tuple[df.Result, float]:
        """The answer under some rules changed, and the seconds that it took on the clock, without loading."""
        graph, system, rules = self.loaded()
        rules = rules.with_(**changed)
        began = time.perf_counter()
        result = df.solve(graph, system, assumptions=rules, time_limit=seconds, **{"zero": 0, **self.asked})
        return result, time.perf_counter() - began


def warm() -> None:
    """Imports of solvers, and first calls, are no part of what is timed."""
    for tokens in ("none", "allow"):
        case = Case("llama-68m", "sn10-8-ring", {"mode": "training", "ends": False}, {}, {"tp": 8})
        case.solved(30.0, sequence_parallelism=tokens)


def timed(case: Case, seconds: float, **changed: Any) -> tuple[df.Result, float]:
    """The answer, and the least seconds of three solves, or those of one that takes long."""
    result, least = case.solved(seconds, **changed)
    for _ in range(2 if least < SHORT else 0):
        least = min(least, case.solved(seconds, **changed)[1])
    return result, least


def gap_of(result: df.Result) -> str:
    """The gap, in words."""
    return "gap 0" if result.gap == 0 else f"gap {100 * result.gap:.3g} % ({result.status})"


class Ran(NamedTuple):
    """How a program ended: exit code (None: it was ended), what it printed, seconds on the clock and of the CPU."""

    code: int | None
    out: str
    err: str
    seconds: float
    processor: float

    @property
    def last(self) -> str:
        """Its last line."""
        lines = [line for line in (self.out or self.err).splitlines() if line.strip()]
        return lines[-1].strip() if lines else "nothing printed"


def run(words: list[str], *, root: Path = ROOT, limit: float | None = None, **environment: str) -> Ran:
    """Run Python with some words in a checkout, whose code it takes; after so many seconds it is ended."""
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment
    began, before = time.perf_counter(), os.times()
    with subprocess.Popen(
        [sys.executable, *words], cwd=root, env=found, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=limit)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started: they hold the pipes open
            (out, err), code = process.communicate(), None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    seconds, after = time.perf_counter() - began, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(code, out, err, seconds, processor)


def shown(words: list[str]) -> str:
    """A command as the table has it."""
    return "`" + " ".join(one.removeprefix(f"{ROOT}{os.sep}") for one in words) + "`"
