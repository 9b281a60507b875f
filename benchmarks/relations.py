"""Answers that have to agree with an answer: to the same question fixed, widened, relabelled, or on more machine."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from doors import LIMIT, agree, by_study, by_words, in_python
from drawing import Draw, command, drawn, keywords
from pairs import dims_of
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.errors import DfoptError, Infeasible, NoSolution
from dfopt.physics.ops import legal_schemes
from dfopt.physics.tiled import hides_less
from dfopt.search.sensitivity import more_of

NEAR: Final = 1e-9
PROOF: Final = 1e-6  # of MILPs
SMALL: Final = 24  # kernels, up to which other solvers have a chance
_RESTRICT: Final = ("tp", "pp", "dp", "tp_dims", "zero", "interleave", "schedule", "p_max", "pin_sharding")


class Verdict(NamedTuple):
    """``equal``, ``refused``, ``at the limit`` (nothing to compare), ``left out`` (no such relation), ``different``."""

    kind: str
    why: str = ""


class Without(Exception):
    """There is no answer to compare with."""


def asked(graph: Any, system: Any, **given: Any) -> df.Result:
    """An answer, or a reason to have none."""
    try:
        return df.solve(graph, system, **given)
    except NoSolution:
        raise Without("at the limit") from None
    except DfoptError:
        raise Without("refused") from None


def first(draw: Draw, seconds: float) -> df.Result:
    """The answer that others are held against."""
    return asked(draw.graph, draw.system, **keywords(draw, seconds))


def again(result: df.Result, seconds: float, system: df.System | None = None, **more: Any) -> df.Result:
    """The documents of a result asked again, with its request changed."""
    given = {**result.request.asked(), "time_limit": seconds, "sensitivity": False, **more}
    return df.solve(result.graph, system or result.system, assumptions=result.assumptions, **given)


def doors(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """The command line, Python and a study say the same, to 1e-12."""
    with tempfile.TemporaryDirectory() as folder:
        answers = [by_words(draw, seconds, Path(folder)), in_python(draw, seconds), by_study(draw, seconds)]
    if crashed := [one.status for one in answers if one.status.startswith("crash")]:
        return Verdict("different", crashed[0])
    if any(one.status == LIMIT for one in answers):
        return Verdict("at the limit")
    if not agree(answers):
        words = (
            f"{door} {one.value} {one.status} {one.fixed}"
            for door, one in zip(("words", "python", "study"), answers, strict=True)
        )
        return Verdict("different", "; ".join(words))
    return Verdict("equal" if answers[0].value is not None else "refused")


def files(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """The saved answer loads and is verified, and every command that reads it tells the same step."""

    def run(*words: object) -> Any:
        done = CliRunner().invoke(app, [str(word) for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        done = run(*command(draw, seconds), "-q", "--no-sensitivity", "-o", file)
        if done.exit_code:
            return Verdict("at the limit" if done.exit_code == 5 else "refused")
        result = df.Result.load(file)
        step, other = result.step_time_s, Path(folder) / "other.json"
        again(result, seconds, seed=result.request.seed + 1).dump(other)
        told = {
            "score": _scored(json.loads(run("score", file, "--json").stdout), str(file)),
            "show": json.loads(run("show", file, "--json").stdout)["score"]["step_time_s"],
            "compare": json.loads(run("compare", file, other, "--json").stdout)[str(file)]["step_time_s"],
        }
        checked = run("check", file, "--time-limit", 8 * seconds)
        codes = {"check": checked.exit_code}
        codes["plot"] = run("plot", "--kind", "breakdown", file, "-o", Path(folder) / "a.svg").exit_code
        codes["report"] = run("report", file, "-o", Path(folder) / "a.html").exit_code
        exported = run("export", "torchtitan", file, "-o", Path(folder) / "a").exit_code
    wrong = [name for name, said in told.items() if abs(said / step - 1) > 1e-12]
    wrong += [f"{name} ends with {code}" for name, code in codes.items() if code]
    wrong += [f"export ends with {exported}"] * (exported not in (0, 2, 3))
    if codes["check"] == 5:
        return Verdict("at the limit")
    return Verdict("different", ", ".join(wrong) + f" {checked.output[-300:]}") if wrong else Verdict("equal")


def _scored(said: Any, file: str) -> float:
    """The step of a score, or of the first of several: that of the file."""
    if isinstance(said, list):
        said = next(row["score"] for row in said if row["result"] == file)
    return float(said["step_time_s"])


def decisions(result: df.Result) -> dict[str, Any]:
    """Everything that an answer chose, as pins."""
    plan = result.plan
    given: dict[str, Any] = dims_of(plan)
    given |= {"interleave": plan.interleave, "two_batch_overlap": bool(plan.two_batch_overlap)}
    if result.graph.trains:
        given["zero"] = (plan.zero or 0,)
    if plan.modules is not None:
        given["modules"] = dict(plan.modules.schemes)
    if plan.shards > 1:
        given["pin_sharding"] = {kernel.name: kernel.sharding for kernel in result.mapping.kernels}
    if result.assumptions.execution != "kernel_by_kernel" and not plan.two_batch_overlap:  # which allows no such pins
        given["pin_partition"] = {kernel.name: kernel.partition for kernel in result.mapping.kernels}
    return given


def fixed(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """With every decision fixed to the answer's the value is the same."""
    result = first(draw, seconds)
    if result.plan.hybrid is not None or {"zero_replicas", "p_max"} & draw.options.keys():
        return Verdict("left out")
    try:
        other = again(result, seconds, **decisions(result))
    except NoSolution:
        return Verdict("at the limit")
    except DfoptError as error:
        return Verdict("different", f"the answer pinned is refused: {error}")
    same = result.bound * (1 - PROOF) <= other.value <= result.value * (1 + NEAR)
    return Verdict("equal") if same else Verdict("different", f"{result.value!r} free, {other.value!r} pinned")


def pins(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """No sharding or partition changed by hand beats the bound."""
    result = first(draw, seconds)
    plan = dims_of(result.plan)
    kernels, tried = list(result.mapping.kernels), 0
    pinned = {**result.request.pin_partition, **result.request.pin_sharding}
    for _ in range(4):
        kernel = rng.choice([one for one in kernels if one.name not in pinned])
        moved = {**result.request.pin_partition, kernel.name: max(kernel.partition + rng.choice((-1, 1)), 0)}
        change: dict[str, Any] = {"pin_partition": moved}
        if result.plan.shards > 1 and rng.random() < 0.7:
            drawn = next(one for one in result.graph.kernels if one.name == kernel.name)
            scheme = rng.choice(legal_schemes(drawn, result.plan.shards, result.assumptions))
            change = {"pin_sharding": {**result.request.pin_sharding, kernel.name: scheme}}
        elif result.assumptions.execution == "kernel_by_kernel":
            continue
        try:
            other = again(result, seconds, **(plan if rng.random() < 0.7 else {}), **change)
        except DfoptError:
            continue
        tried += 1
        if other.value < result.bound * (1 - PROOF):
            return Verdict("different", f"{change} gives {other.value!r}, below the bound {result.bound!r}")
    return Verdict("equal" if tried else "left out")


def more(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """More bandwidth, memory or compute is never worse."""
    result = first(draw, seconds)
    resource = rng.choice(("compute", "dram_bandwidth", "link_bandwidth", "sram", "dram_capacity"))
    if resource == "compute" and hides_less(result.assumptions, result.plan.tensor_overlap):
        return Verdict("left out")  # a faster product that waits for memory hides less: see dfopt.physics.tiled
    if resource == "dram_capacity":
        roomier = result.system.chip.with_memories(
            lambda one: one if one.capacity is None else one.model_copy(update={"capacity": one.capacity * 1.5})
        )
        system = result.system.model_copy(update={"chip": roomier})
    else:
        system = more_of(result.system, resource, 1.5)
    try:
        other = again(result, seconds, system)
    except NoSolution:
        return Verdict("at the limit")
    except DfoptError as error:
        return Verdict("different", f"with more {resource}: {error}")
    return _not_worse(other, result, f"with more {resource}")


def _not_worse(wider: df.Result, narrower: df.Result, what: str) -> Verdict:
    """Whether the least of a superset may be at most that of the other."""
    if wider.bound > narrower.value * (1 + PROOF):
        return Verdict("different", f"{what} nothing is below {wider.bound!r}, {narrower.value!r} was found")
    return Verdict("equal" if wider.gap == 0 else "at the limit")


def wider(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """A superset of options is never worse."""
    names = [name for name in draw.options if name in _RESTRICT]
    if not names or {"pin_partition", "recomputed"} & draw.options.keys():
        return Verdict("left out")
    result, dropped = first(draw, seconds), rng.choice(names)
    free = {name: value for name, value in keywords(draw, seconds).items() if name != dropped}
    try:
        other = df.solve(draw.graph, draw.system, **free)
    except NoSolution:
        return Verdict("at the limit")
    except Infeasible as error:
        return Verdict("different", f"without {dropped}: {error}")
    except DfoptError:
        return Verdict("refused")
    if draw.parameters.get("batch") == "max" and other.graph.batch != result.graph.batch:  # steps of other work
        fewer, batches = other.graph.batch < result.graph.batch, f"batch {other.graph.batch}, {result.graph.batch} fits"
        return Verdict("different" if fewer else "equal", f"without {dropped}: {batches}")
    return _not_worse(other, result, f"without {dropped}")


def relabelled(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """Other names of kernels, and dims of the network in reverse, change nothing."""
    if {"pin_partition", "pin_sharding"} & draw.options.keys():
        return Verdict("left out")
    result = first(draw, seconds)
    data = result.graph.to_data()
    text = json.dumps(data)
    names = sorted({kernel.name for kernel in result.graph.kernels}, key=len, reverse=True)
    for number, name in enumerate(names):
        text = text.replace(json.dumps(name), json.dumps(f"kernel {number:04d}"))
    graph = df.Graph.from_data(json.loads(text))
    system = result.system.model_copy(update={"network": result.system.network[::-1]})
    given = {**result.request.asked(), "time_limit": seconds, "sensitivity": False}
    try:
        one = again(result, seconds)
        two = df.solve(graph, system, assumptions=result.assumptions, **given)
    except NoSolution:
        return Verdict("at the limit")
    except DfoptError as error:
        return Verdict("different", f"relabelled: {error}")
    return _compatible(one, two, "relabelled")


def _compatible(one: df.Result, two: df.Result, what: str) -> Verdict:
    if one.bound > two.value * (1 + PROOF) or two.bound > one.value * (1 + PROOF):
        return Verdict("different", f"{one.value!r} (bound {one.bound!r}), {what} {two.value!r} ({two.bound!r})")
    return Verdict("equal" if one.gap == two.gap == 0 else "at the limit")


def solvers(draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """The paper's matrices, and CBC, agree where they are small."""
    result = first(draw, seconds)
    if len(result.graph.kernels) > SMALL:
        return Verdict("left out")
    way = rng.choice(({"formulation": "assignment"}, {"solver": "pulp:CBC"}))
    plan = dims_of(result.plan)
    if not result.graph.trains:  # matrices know no two microbatches at a time, which the proof says
        plan["two_batch_overlap"] = False
    try:
        one, two = again(result, seconds, **plan), again(result, seconds, **plan, **way)
    except NoSolution:
        return Verdict("at the limit")
    except DfoptError:
        return Verdict("refused")
    return _compatible(one, two, f"with {way}")


__all__ = ["KINDS", "Verdict", "drawn", "held"]

KINDS: Final[dict[str, Callable[[Draw, float, random.Random], Verdict]]] = {
    kind.__name__: kind for kind in (doors, files, fixed, pins, more, wider, relabelled, solvers)
}


def held(kind: str, draw: Draw, seconds: float, rng: random.Random) -> Verdict:
    """What becomes of one kind of relation; a crash is a difference."""
    try:
        return KINDS[kind](draw, seconds, rng)
    except Without as reason:
        return Verdict(str(reason))
    except Exception as error:  # a crash is an answer too, and a wrong one
        return Verdict("different", f"crash: {type(error).__name__}: {error}")
