"""A question at three doors: the command line, Python and a study with one cell."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from drawing import Draw, command, keywords
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.errors import DfoptError, NoSolution
from dfopt.processes.worker import solve
from dfopt.studies.cells import expand
from dfopt.studies.packing import Tasks

SAME = 1e-12
LIMIT = "limit_with_solution"  # also of a limit that left none


class Heard(NamedTuple):
    """The answer of a door: value, status and what was fixed; or a refusal."""

    value: float | None
    status: str
    fixed: str = ""


def _heard(result: df.Result) -> Heard:
    return Heard(result.value, result.status, result.proof.partition("fixed: ")[2])


def by_words(draw: Draw, seconds: float, folder: Path) -> Heard:
    """The answer of the command line."""
    file = folder / "result.json"
    file.unlink(missing_ok=True)
    words = [*command(draw, seconds), "-q", "--no-sensitivity", "-o", str(file)]
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return Heard(None, f"crash: {done.exception!r}")
    if done.exit_code == 5:
        return Heard(None, LIMIT)
    return _heard(df.Result.load(file)) if done.exit_code == 0 else Heard(None, "refused")


def in_python(draw: Draw, seconds: float) -> Heard:
    """The answer of the library."""
    try:
        return _heard(df.solve(draw.graph, draw.system, **keywords(draw, seconds)))
    except NoSolution:
        return Heard(None, LIMIT)
    except DfoptError:
        return Heard(None, "refused")
    except Exception as error:  # a crash is an answer too, and a wrong one
        return Heard(None, f"crash: {error!r}")


def by_study(draw: Draw, seconds: float) -> Heard:
    """The answer of a study with one cell."""
    machine = {path: value for path, value in draw.set.items() if "." in path}
    rules = {path: value for path, value in draw.set.items() if "." not in path}
    seed = draw.options.get("seed", 0)
    options = {name: value for name, value in draw.options.items() if name != "seed"} | {"time_limit": f"{seconds} s"}
    machine_name = draw.system if draw.chips is None else f"{draw.system}:{draw.chips}"
    assumed = {"set": rules} | ({} if draw.assumptions is None else {"profile": draw.assumptions})
    data = {
        "schema": df.Study.SCHEMA, "name": "one", "seed": seed, "options": options,
        "graphs": [{"graph": draw.graph, "parameters": draw.parameters}],
        "systems": [{"system": machine_name, "set": machine}], "assumptions": [assumed],
    }  # fmt: skip
    try:
        [task] = Tasks(expand(df.Study.from_data(data)), keep=True)
    except DfoptError:
        return Heard(None, "refused")
    record = solve(task)
    if "result" in record:
        return _heard(df.Result.from_data(record["result"]))
    if record["status"] == "no_solution":
        return Heard(None, LIMIT)
    crashed = ":" in record["message"].partition(" ")[0] and record["status"] == "failed"
    return Heard(None, f"crash: {record['message']}" if crashed and "Error" in record["message"][:20] else "refused")


def agree(answers: list[Heard]) -> bool:
    """Whether three doors say the same."""
    first = answers[0]
    if any((one.status, one.fixed) != (first.status, first.fixed) for one in answers):
        return False
    return all(one.value == first.value or abs((one.value or 0) / (first.value or 1) - 1) <= SAME for one in answers)
