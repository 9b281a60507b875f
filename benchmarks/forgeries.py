"""Forge every field of what dfopt proves, seal it again, and see whether `dfopt check` notices.

    python benchmarks/forgeries.py [--seed S] [--count N] [--kind KIND] [--only NUMBER] [--file RESULT]

A field is a path with every position as ``[*]``; of a store that in a record. Each is changed in turn in every way
that goes with it: a number up and down, a word to another one, a switch flipped, a key or an entry removed, an entry
doubled, two swapped. The seal is made anew by the code that made it. A forgery is *caught* where the document is
refused or the check finds something wrong, *as good* where a kernel has another sharding, or a plan another number of
microbatches, and the judge finds that it takes as long, *listed* where the check passes and names the field among those
that it does not check, and else it has *passed*, which fails the run (exit status 1). A certificate is *as good* where
it still shows what is true, and has passed where it shows 1 % more. ``--count`` draws so many of each document instead
of all; ``--only`` repeats one.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple, get_args

import dfopt as df
from dfopt.documents.base import Sealed
from dfopt.documents.certificate import Certificate
from dfopt.documents.exploration import Exploration, ExplorationStatus
from dfopt.documents.plan_records import PlanStatus
from dfopt.documents.result import Result, Status
from dfopt.documents.store import line_of, read_records
from dfopt.errors import DfoptError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.explore import explore
from dfopt.proof.plans import proven
from dfopt.search.claims import SAME
from dfopt.search.verify import verdict, verify
from dfopt.studies.checking import check_store

Path_ = tuple[str | int, ...]
_QUANTITY = re.compile(r"(-?[0-9.]+(?:e[+-]?[0-9]+)?)(.*)")


WORDS = [get_args(kind) for kind in (Status, PlanStatus, ExplorationStatus)]
"""Words of which any may stand where another one does."""


class Edit(NamedTuple):
    """A change of one place."""

    path: Path_
    how: str
    to: Callable[[Any], None]  # changes the container that the path ends in


def places(data: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every place in some data with what stands there, but the whole and the seal."""
    items: Any = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if (*path, key) != ("seal",):
            yield (*path, key), value
            yield from places(value, (*path, key))


def field(path: Path_) -> str:
    """The field that a place is one of.

    >>> field(("plans", 3, "bound"))
    '$.plans[*].bound'
    """
    return "$" + "".join("[*]" if isinstance(step, int) else f".{step}" for step in path)


def _drop(key: str | int, container: Any) -> None:
    container.pop(key)


def _set(key: str | int, value: Any) -> Callable[[Any], None]:
    return lambda container: container.__setitem__(key, value)


def _of_number(number: float, rng: random.Random) -> Iterator[tuple[str, Any]]:
    if isinstance(number, int):
        yield from (("up", number + rng.choice((1, 2, 1000))), ("down", number - 1))
        return
    factor = rng.choice((1.001, 1.5, 1e30))
    yield "up", number * factor if abs(number) > SAME else 0.25
    yield "down", number / rng.choice((1.001, 1.5)) if abs(number) > SAME else -0.25


def _of_text(text: str, others: Sequence[str], rng: random.Random) -> Iterator[tuple[str, Any]]:
    if (found := _QUANTITY.fullmatch(text)) and found[2].strip():
        yield from (("up", f"{float(found[1]) * 2:g}{found[2]}"), ("down", f"{float(found[1]) / 2:g}{found[2]}"))
    yield "swapped", rng.choice([other for other in others if other != text] or [f"{text} x"])
    yield "another", f"{text}x"


def _of_place(path: Path_, value: Any, others: Sequence[Any], rng: random.Random) -> Iterator[tuple[str, Any]]:
    """What may stand there instead."""
    if isinstance(value, bool):
        yield "swapped", not value
    elif isinstance(value, int | float):
        yield from _of_number(value, rng)
        if different := [o for o in others if not isinstance(o, int | float) or abs(o - value) > SAME]:
            yield "swapped", rng.choice(different)
    elif isinstance(value, str):
        others = [*others, *(word for words in WORDS if value in words for word in words)]
        yield from _of_text(value, [other for other in others if isinstance(other, str)], rng)
    elif value is None:
        yield "up", rng.choice([other for other in others if other is not None] or [1])
    elif isinstance(value, list) and value:
        at, other = rng.randrange(len(value)), rng.randrange(len(value))
        yield "entry removed", [*value[:at], *value[at + 1 :]]
        yield "entry doubled", [*value[: at + 1], *value[at:]]
        if value[at] != value[other]:
            swapped = list(value)
            swapped[at], swapped[other] = value[other], value[at]
            yield "entries swapped", swapped
    elif isinstance(value, dict) and (different := [other for other in others if other != value]):
        yield "swapped", rng.choice(different)


def edits(data: Any, rng: random.Random) -> Iterator[Edit]:
    """Every field changed in turn, in one of its places by chance, in every way that goes with it."""
    of_field: dict[str, list[tuple[Path_, Any]]] = {}
    for path, value in places(data):
        of_field.setdefault(field(path), []).append((path, value))
    for listed in of_field.values():
        others = [value for _, value in listed]
        ways: dict[str, list[Edit]] = {}
        for path, value in rng.sample(listed, min(len(listed), 8)):
            for how, to in _of_place(path, value, others, rng):
                if to == value and not isinstance(value, bool):
                    continue
                ways.setdefault(how, []).append(Edit(path, how, _set(path[-1], to)))
            if not isinstance(path[-1], int):
                removed = Edit(path, "removed", partial(_drop, path[-1]))
                ways.setdefault("removed", []).append(removed)
        yield from (rng.choice(found) for found in ways.values())


def forged(data: Any, edit: Edit) -> Any:
    """Some data with a change."""
    made = copy.deepcopy(data)
    at = made
    for step in edit.path[:-1]:
        at = at[step]
    edit.to(at)
    return made


def covered(path: Path_, listed: Sequence[str]) -> str:
    """The field, among those that a check says it did not check, that a place is in: fields, then a colon, then why."""
    names = [
        re.sub(r"\[\d+\]", "[*]", name.strip())
        for line in listed
        for name in line.partition(": ")[0].split(",")
        if name.strip()[:1] == "$"
    ]
    here = field(path).replace("$[*]", "$", 1)  # of a store, what is said of a record
    return next((name for name in names if here == name or here.startswith((f"{name}.", f"{name}["))), "")


class Case(NamedTuple):
    """A document that holds, as data, and the check of what is made of it: what it does not check, or an error."""

    name: str
    data: Any
    check: Callable[[Any], Sequence[str]]


def _said(document: Any, name: str) -> Sequence[str]:
    """What a check that finds nothing wrong does not check."""
    if isinstance(document, Path):
        said = check_store(document)
    else:
        said = verdict(verify(document), name) if isinstance(document, Result) else check_exploration(document, name)
    return [line.partition("not checked: ")[2] for line in said.splitlines() if "not checked: " in line]


def sealed_case(name: str, document: Sealed) -> Case:
    """A sealed document: forged, read, sealed again and checked."""
    kind = type(document)
    content = json.loads(json.dumps(document.to_data()))
    honest = kind.from_data(content)

    def check(data: Any) -> Sequence[str]:
        made = kind.from_data(data).sealed()
        if made == honest:
            raise Unchanged
        return _said(made, name)

    _said(honest, name)  # what is true holds
    return Case(name, content, check)


def store_case(name: str, study: df.Study) -> Case:
    """The store of a study: records forged, written with their checksums and checked."""
    path = Path(mkdtemp()) / "runs.jsonl"
    df.sweep(study, jobs=1, store=path)
    content = [{key: value for key, value in one.items() if key != "schema"} for one in read_records(path).values()]
    honest = [_plain(record) for record in content]

    def check(data: Any) -> Sequence[str]:
        if all(_plain(record) in honest for record in data):  # maybe fewer of them
            raise Unchanged
        path.write_bytes(b"".join(map(line_of, data)))
        return _said(path, name)

    _said(path, name)
    return Case(name, content, check)


def certificate_case(name: str, result: Result) -> Case:
    """The certificate of a result of one plan: forged, read, and followed, also to show more than what is true."""
    honest = df.check(result).certificate
    assert honest is not None
    own, of = (result.plan, result.mapping.tile_count), (result.graph, result.system, result.assumptions)
    too_high = {(each.plan, tiles): 1.01 * result.value for each in honest.classes for tiles in each.tile_counts}
    assert own in too_high

    def check(data: Any) -> Sequence[str]:
        made = Certificate.from_data(data)
        if made == honest:
            raise Unchanged
        if own not in proven(*of, too_high, certificate=made).open:
            return ()
        verdict(verify(result, certificate=made), name)
        raise AsGood

    return Case(name, json.loads(json.dumps(honest.to_data())), check)


def _plain(record: Any) -> Any:
    """A record with its mapping in full."""
    try:
        return {**record, "mapping": df.Mapping.from_data(record["mapping"]).to_data()}
    except (DfoptError, LookupError, TypeError):
        return record


class Unchanged(Exception):
    """What was forged says the same."""


class AsGood(Exception):
    """What was forged still shows what is true, and no more."""


def outcome(case: Case, edit: Edit) -> str:
    """caught, listed (and as what), as good, passed or unchanged; what is no error of dfopt is a crash."""
    try:
        listed = case.check(forged(case.data, edit))
    except Unchanged:
        return "unchanged"
    except AsGood:
        return "as good"
    except DfoptError:
        return "caught"
    except Exception as error:  # as it would end the command
        return f"crash ({type(error).__name__}: {error})"
    name = covered(edit.path, listed)
    # the judge has looked at it, and no other figure is changed: an answer that is as good
    other = "mapping" in edit.path and edit.path[-1] in ("sharding", "microbatches")
    return f"listed {name}" if name else "as good" if other else "passed"


def _solved(graph: str, system: str, **options: Any) -> Callable[[], Result]:
    return lambda: df.solve(graph, system, **options)


def _explored() -> Exploration:
    """A few designs of a die, with the next best one and what more of a budget buys."""
    data = df.load_design("reticle-2026").to_data()
    data["choices"] = {
        "stacks": {"least": 7, "most": 8}, "capacity": {"L2": {"least": "32 MiB", "most": "96 MiB", "step": "32 MiB"}},
        "rate": {"between_packages": {"least": "1 TB/s", "most": "1 TB/s", "step": "100 GB/s"}},
    }  # fmt: skip
    return explore("gpt2-small", df.Design.from_data(data), top=2, gap=0.0)


def _study() -> df.Study:
    """Cells that are soon solved: proven, to a gap on a calibrated chip, the largest batch, one that fits nowhere."""
    trains = {"phase": "training", "batch": 8, "microbatch": 1, "recompute": "full"}
    serves = {"phase": "decode", "context": 32768, "batch": "max"}
    return df.Study(
        name="forged", graphs=[
            {"graph": "gpt2-small", "parameters": {"microbatch": 1}},
            {"graph": "gpt2-small", "label": "trained", "parameters": trains, "options": {"zero": [0], "gap": 0.5}},
            {"graph": "llama-68m", "label": "largest", "parameters": serves, "options": {"tp": 1, "dp": 8}},
            {"graph": "llama-3.1-405b", "label": "too large", "parameters": {"microbatch": 1}},
        ],
        systems=[
            {"system": "sn10-8-ring", "graphs": ["gpt2-small"]},
            {"system": "a100-8", "graphs": ["trained", "largest", "too large"]},
        ],
        options={"tp": 8},
    )  # fmt: skip


LEVELS = df.Assumptions(sharding_objective="seconds", sequence_parallelism="none")
DOCUMENTS: dict[str, Callable[[], Result | Exploration | df.Study]] = {
    "proven": _solved("gpt2-small", "sn10-8-ring", microbatch=1, sensitivity=True),
    "top 3": _solved("gpt2-small", "sn10-8-ring", top=3),
    "training": _solved("llama-68m", "sn10-8-ring", phase="training", batch=16, microbatch=1, tp=2, recompute="none"),
    "decode": _solved("llama-3.2-1b", "h100-8", phase="decode", context=128, batch=8, tp=8, top=2),
    "pins": _solved(
        "gpt2-small", "sn10-8-ring", tp=8, p_max=3, pin_partition={"FFN0": 1}, pin_sharding={"FFN1": "k"},
        sensitivity=True,
    ),
    "gap": _solved("gpt2-small", "sn10-8-torus", gap=0.3),
    "two levels": _solved("gpt3-175b", "sn10-8-torus", microbatch=1, top=2, sensitivity=True, assumptions=LEVELS),
    "stack": _solved("gpt2-small", "sn10-8-ring", tp=8, stack="hybrid-vault"),
    "heat": _solved("gpt2-small", "sn10-8-ring", tp=8, stack="hybrid-vault", heat="aware", top=2),
    "certificate": _solved(
        "gpt3-175b", "sn10-8-ring", tp=8, microbatch=1,
        assumptions=df.Assumptions(overlap="none", sequence_parallelism="none"),
    ),
    "exploration": _explored,
    "store": _study,
}  # fmt: skip


@cache
def case(kind: str) -> Case:
    """A document of a kind, made once."""
    document = DOCUMENTS[kind]()
    if kind == "certificate":
        assert isinstance(document, Result)
        return certificate_case(kind, document)
    return store_case(kind, document) if isinstance(document, df.Study) else sealed_case(kind, document)


def tried(case: Case, seed: str, count: int | None, only: int | None = None) -> Iterator[tuple[int, Edit, str]]:
    """Forgeries of a document with their outcomes: all, or so many by chance."""
    numbered = list(enumerate(edits(case.data, random.Random(f"{seed}/{case.name}"))))
    if only is not None:
        numbered = numbered[only : only + 1]
    elif count is not None:
        numbered = random.Random(f"{seed}/{case.name}/draw").sample(numbered, min(count, len(numbered)))
    for number, edit in numbered:
        yield number, edit, outcome(case, edit)


def main() -> int:
    """Forge, check, count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", default="0")
    parser.add_argument("--count", type=int, help="of each document, by chance; all if left out")
    parser.add_argument("--kind", choices=list(DOCUMENTS), action="append")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this one alone")
    asked = parser.parse_args()
    total, listed = Counter[str](), set[str]()
    for kind in asked.kind or DOCUMENTS:
        began, counts = time.process_time(), Counter[str]()
        for number, edit, came in tried(case(kind), asked.seed, asked.count, asked.only):
            counts["as good" if came == "as good" else came.partition(" ")[0]] += 1
            if came.startswith("listed"):
                listed.add(came.partition(" ")[2])
            if came.startswith(("passed", "crash")) or asked.only is not None:
                print(f"  {came}: {field(edit.path)} {edit.how}: --seed {asked.seed} --kind {kind!r} --only {number}")
        total += counts
        said = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"{kind}: {said} ({time.process_time() - began:.1f} CPU s)", flush=True)
    print(f"seed {asked.seed}: {', '.join(f'{count} {what}' for what, count in sorted(total.items()))}")
    print(f"{len(listed)} listed as unchecked: {', '.join(sorted(listed)) or 'none'}")
    return 1 if total["passed"] or total["crash"] else 0


if __name__ == "__main__":
    sys.exit(main())
