"""Damage inputs of every kind and see what the command line says to them.

    python benchmarks/bad_input.py [--seed S] [--count N] [--kind KIND] [--only NUMBER] [--keep FOLDER]

Documents of every schema, tables as CSV, ONNX models, configurations and arguments of other tools, and stores are
changed in one to three places each: a value, a key, an entry, a line, some bytes, or the file itself. Each is given to
a command that reads such a file, in a process of its own. It is *refused* (one message that starts with ``dfopt:``,
with an issue a line, nothing on standard output, the exit code of its kind) or *accepted*. It is a failure (exit status
1) if it ends in a traceback, says nothing, or more than that, or in the words of a library; ends with another exit
code; takes more than 2 s of CPU or 500 MB to be refused; prints a control character; or changes its input. ``--only``
repeats one draw; what fails is cut down to the fewest changes that still do, and ``--keep`` writes those files.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import json
import os
import random
import re
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1] / "tests"
GOLDEN = TESTS / "golden"
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]

from cli_tools import GRAPH, ONE_CHIP_MAPPING, RECIPE, SYSTEM  # noqa: E402 - the small documents of the tests
from design_cases import searched  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from dfopt.cli import app  # noqa: E402
from dfopt.documents.store import SCHEMA, line_of  # noqa: E402
from dfopt.documents.strict_yaml import dump_yaml, load_strict  # noqa: E402
from dfopt.documents.zoo import KINDS, find, zoo  # noqa: E402

SECONDS, BYTES = 2.0, 500e6
FRESH = 100e6  # bytes of a process that has all imported and done nothing
CODES = (0, 2, 3, 4, 5, 7, 8)  # of an answer, and of what can be wrong with an input
FOREIGN = re.compile(r"Input should|[Pp]ydantic|validation error|Errno|object at 0x|For further information")
CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
Data = Any


class Input(NamedTuple):
    """A whole file, and commands that read it as ``F``; G and S are a graph and a system."""

    kind: str
    name: str
    content: Data  # data of a document, or a text, or bytes
    commands: tuple[str, ...]


class Change(NamedTuple):
    """A change of a file's content, and what it is called."""

    what: str
    apply: Callable[[Data], Data]


class Outcome(NamedTuple):
    """What a process left behind; code -1: a traceback, -2: killed."""

    code: int
    out: str
    err: str
    seconds: float
    bytes: float


# --- inputs --------------------------------------------------------------------------------------------------------

BOTH = ("check F", "show F")
SOLVE = " --time-limit 1 --no-sensitivity -q"
STUDY = {
    "schema": "dfopt/study/1", "name": "one", "graphs": [{"graph": "g.yaml", "parameters": {"batch": 8}}],
    "systems": [{"system": "s.yaml", "label": "a"}],
    "axes": {"degree": [{"label": degree, "set": {"options.tp": degree}} for degree in (1, 4)]},
    "claims": [{"name": "c", "value": "utilization", "at_least": 0.1, "reason": "physics"}],
}  # fmt: skip
QUESTION = {"schema": "dfopt/question/2", "graph": "g.yaml", "system": "s.yaml", "options": {"tp": 4, "top": 2}}
PLAN = {"schema": "dfopt/plan/1", "dp": 4, "dp_dims": ["ring"], "microbatches": 2}
PINS = {"schema": "dfopt/pins/1", "partition": {"up": 0}, "sharding": {"up": "m"}}
ASSUMED = {"schema": "dfopt/assumptions/3", "profile": "mine", "overlap": "none", "compute_utilization": 0.5}
GEMMS = "system,m,n,k,latency_ms\n" + "x,8192,8192,8192,4\n" * 2 + "x,64,64,64,0.1\n"
STEPS = (
    "iter_time_ms,n_gpus,tp,pp,dp,microbatch,seq_len,layers,hidden,heads,global_batch,params_B\n"
    "1000,8,8,1,1,1,2048,24,2304,24,8,1.7\n2000,8,4,2,1,1,2048,24,2304,24,8,1.7\n"
)
FRAME = (
    "graph,system,status,step_time_s,utilization,price_usd,power_w,chips\n"
    "a,x,optimal,1.5,0.5,10,5,4\nb,y,optimal,2.5,0.25,9,6,8\n"
)
RECORDS = [
    {"cell": f"{number:016x}", "status": "optimal", "seconds": 0.1, "dfopt": "1", "study": "one",
     "axes": {"graph": "g", "system": "s"},
     "figures": {"plan": PLAN, "step_time_s": 0.1 + number, "flop_per_step": 1e9, "tokens_per_s": 1.0, "gap": 0.0,
                 "utilization": 0.5}}
    for number in range(3)
]  # fmt: skip


@cache
def answers() -> dict[str, Data]:
    """A small result, what heat makes of one, and an exploration."""
    import dfopt as df
    from dfopt.search.heat_aware import heat_answers

    graph, system = df.Graph.from_data(GRAPH), df.System.from_data(SYSTEM)
    design = df.Design.from_data(searched())
    hot = heat_answers(df.solve(graph, system, stack="hbm3", sensitivity=False), None)
    explored = df.explore(graph, design, sensitivity=False)
    return {
        "result": df.solve(graph, system, sensitivity=False).to_data(), "heat": hot.to_data(),
        "exploration": explored.to_data(),
    }  # fmt: skip


def golden(kind: str, folder: str, pattern: str, *commands: str, most: int = 20_000) -> Iterator[Input]:
    """Small files of other tools that the tests have."""
    files = sorted((GOLDEN / folder).glob(pattern), key=lambda path: path.stat().st_size)
    for path in [path for path in files if path.stat().st_size < most][:3]:
        text = path.read_text(encoding="utf-8")
        content = load_strict(path) if path.suffix in (".json", ".yaml") else text
        yield Input(kind, path.name, content, commands)


@cache
def inputs() -> tuple[Input, ...]:
    """Whole inputs of every kind."""
    small = {
        "graph": (GRAPH, (*BOTH, f"solve F S{SOLVE}", "plot F --kind dataflow -o o.svg")),
        "recipe": (RECIPE, (*BOTH, "show F --param mode=training", f"solve F S{SOLVE}")),
        "system": (SYSTEM, (*BOTH, f"solve G F{SOLVE}", "collective all_reduce F --bytes 1MB")),
        "mapping": (ONE_CHIP_MAPPING, (*BOTH, "score F G S")), "plan": (PLAN, BOTH), "study": (
            STUDY, (*BOTH, "sweep F --dry-run", "sweep F --no-solve", "runs t.jsonl --study F")
        ),
        "question": (QUESTION, (*BOTH, f"solve F{SOLVE}")), "pins": (PINS, (*BOTH, f"solve G S --pins F{SOLVE}")),
        "assumptions": (
            ASSUMED, (*BOTH, f"solve G S --assume F{SOLVE}", "collective all_reduce S --bytes 1MB --assume F")
        ),
        "result": (answers()["result"], (*BOTH, "score F", "report F -o o.html", "plot F --kind step -o o.svg",
                                         "score F G S", "plot F --kind trace -o o.json", "export megatron F -o out",
                                         f"solve --like F{SOLVE}")),
        "score": (answers()["result"]["score"] | {"schema": "dfopt/score/1"}, BOTH),
    }  # fmt: skip
    small |= {
        "heat": (answers()["heat"], (*BOTH, "report F -o o.html")),
        "exploration": (answers()["exploration"], (*BOTH, "report F -o o.html")),
        "searched": (searched(), (*BOTH, "derive F", "explore G F --time-limit 1 --no-sensitivity -q")),
    }
    found = [Input(kind, "F" + (".json" if kind == "result" else ".yaml"), *both) for kind, both in small.items()]
    solved = {
        "systems": (f"solve G F{SOLVE}",), "stacks": (f"solve G S --stack F{SOLVE}",), "graphs": (f"solve F S{SOLVE}",),
        "designs": ("derive F", "derive F --system o.yaml"), "calibrations": (f"solve G a100-8 --assume F{SOLVE}",),
    }  # fmt: skip
    for kind in KINDS:
        by_size = sorted((find(kind, name) for name in zoo(kind)), key=lambda path: path.stat().st_size)
        for path in by_size[:: max(len(by_size) // 3, 1)]:
            found.append(Input(kind, "F.yaml", load_strict(path), (*BOTH, *solved.get(kind, ()))))
    out = " -o o.yaml"
    found += golden("hf", "hf", "*.json", f"import hf F{out}", f"solve F S --phase decode{SOLVE}", *BOTH)
    found += golden("megatron", "megatron", "*.args", "import megatron F -o out")
    found += golden("megatron", "megatron", "*.sh", "import megatron F -o out")
    found += golden("dfmodel", "dfmodel", "fig*.json", "import dfmodel F --overrides OVERRIDES -o out")
    found += golden("calculon", "calculon", "gpt3*.json", "import calculon F CALCULON -o out --chips 8")
    found += golden("calculon", "calculon", "a100*.json", "import calculon GPT F -o out --chips 8")
    found += [
        Input("csv", "F.csv", GEMMS, ("calibrate --kernels F --system a100-512 -o o.yaml",)),
        Input("csv", "F.csv", STEPS, ("calibrate F --system a100-512 --fit node -o o.yaml",)),
        Input("csv", "F.csv", FRAME, ("plot F --kind pareto -o o.svg", "plot F --kind heat-map -o o.svg")),
        Input("store", "F.jsonl", RECORDS, ("runs F", "runs F --json", "report F -o o.html", "runs F --csv o.csv",
                                            "sweep st.yaml --no-solve --store F", "runs F --where gap==0")),
        Input("onnx", "F.onnx", onnx_model(), (f"import onnx F --set-dim batch=1 --set-dim sequence=16{out}",)),
        Input("deepflow", "F.yaml", deepflow(), (f"import deepflow F{out}",)),
    ]  # fmt: skip
    return tuple(found)


@cache
def onnx_model() -> bytes:
    """One attention block as a model."""
    import onnx_models

    with tempfile.TemporaryDirectory() as folder:
        return Path(onnx_models.gpt(1, 64, 4).save(Path(folder) / "gpt.onnx")).read_bytes()


def deepflow() -> Data:
    """A hardware configuration of DeepFlow, as the tests write it."""
    from by_path import module_at

    golden = json.loads((GOLDEN / "deepflow" / "age_derived_parameters.json").read_text())
    age = module_at(Path(__file__).resolve().parent / "reference" / "age.py")
    return age.configuration(golden["base_inputs"], golden["cases"][1])


# --- changes -------------------------------------------------------------------------------------------------------

NASTY: Sequence[Data] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e9, 1e-300, 1e308, 2**53 + 1, 10**14, 10**30, "", " ", "x", "NaN",
    "1e3", "-1", "inf", "1 GB/s", "5 parsecs", "\x1b[31mred", "nul\0", "\u202egnp", "=1+1", "<script>alert(1)</script>",
    "a" * 9999, "é", "$x_$", "../../etc/passwd", "g.yaml", "auto", "none", [], {}, [[]],
    [1, "x", None], {"x": 1}, {"": {}},
    {"schema": "dfopt/graph/3"},
)  # fmt: skip
TOKENS = ("\0", "\x1b[2J", "\t", "'", '"', "{", "}", "[", "]", ":", ",", "-", "#", "&a", "*a", "!!python/object:x ",
          "\n", "\r\n", "\ufeff", "1e400", "nan", "9" * 5000, "---\n", "\u2028", "$(rm x)", "--", "\\")  # fmt: skip


def paths(data: Data, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in some data, the top left out."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*at, key)
        yield from paths(value, (*at, key))


def at(data: Data, path: Sequence[Any]) -> Data:
    """What is at a place; nothing where there is none."""
    for step in path:
        with contextlib.suppress(LookupError, TypeError):
            data = data[step]
    return data


def scaled(value: Data, factor: float) -> Data:
    """A number, or a quantity, times a factor, of the same kind; another value as it is."""
    if isinstance(value, str) and (match := re.fullmatch(r"([-+0-9.e]+)(.*)", value)):
        return f"{float(match[1]) * factor:g}{match[2]}"
    return type(value)(value * factor) if isinstance(value, int | float) else value


def of_data(data: Data, rng: random.Random) -> Change:
    """A change of one place of a document."""
    places = [*paths(data)] or [("x",)]
    how = rng.choice(("value", "value", "remove", "rename", "add", "double", "scale", "scale", "scale", "swap", "nest"))
    if how == "scale":
        places = [path for path in places if isinstance(at(data, path), str | int | float)] or places
    *steps, last = rng.choice(places)
    where = "$" + "".join(f"[{step!r}]" for step in (*steps, last))
    nasty, factor = rng.choice(NASTY), rng.choice((-1, 0, 1e-300, 1e-9, 0.5, 2, 3, 1000, 1e9, 1e300))
    other = rng.choice(places)

    def apply(whole: Data) -> Data:
        whole = copy.deepcopy(whole)
        with contextlib.suppress(
            LookupError, TypeError, AttributeError, ValueError, OverflowError
        ):  # a change before may have taken the place away
            node = whole
            for step in steps:
                node = node[step]
            if how == "value":
                node[last] = nasty
            elif how == "remove":
                del node[last]
            elif how == "rename":
                node[f"{last}s"] = node.pop(last)
            elif how == "add":
                node[f"x{last}"] = nasty
            elif how == "double":
                node.append(copy.deepcopy(node[last]))
            elif how == "scale":
                node[last] = scaled(node[last], factor)
            elif how == "swap":
                there = whole
                for step in other[:-1]:
                    there = there[step]
                node[last], there[other[-1]] = there[other[-1]], node[last]
            else:
                node[last] = [node[last]]
        return whole

    said = {"value": f" = {nasty!r:.60}", "add": f" + {nasty!r:.60}", "scale": f" * {factor}", "swap": f" with {other}"}
    return Change(f"{how} {where}{said.get(how, '')}", apply)


def of_text(text: str | bytes, rng: random.Random) -> Change:
    """A change of some characters or lines, or of bytes."""
    size, share = max(len(text), 1), rng.random()
    token, how = (
        rng.choice(TOKENS),
        rng.choice(("cut", "insert", "replace", "byte", "line out", "line twice", "lines swapped")),
    )
    at, byte = int(share * size), bytes([rng.randrange(256)])

    def apply(whole: str | bytes) -> str | bytes:
        raw = whole if isinstance(whole, bytes) else whole.encode(errors="surrogateescape")
        lines = raw.splitlines(keepends=True) or [b""]
        line = int(share * len(lines))
        if how == "cut":
            return raw[:at]
        if how in ("insert", "replace"):
            return raw[:at] + token.encode() + raw[at + (how == "replace") :]
        if how == "byte":
            return raw[:at] + byte + raw[at + 1 :]
        if how == "lines swapped":
            lines[line], lines[0] = lines[0], lines[line]
        else:
            lines[line] *= 2 * (how == "line twice")
        return b"".join(lines)

    return Change(f"{how} at {at} ({token!r:.20}, {byte!r})", apply)


def of_file(rng: random.Random) -> Change:
    """Another file altogether."""
    files: dict[str, Data] = {
        "empty": b"", "a NUL": b"\0", "binary": bytes(rng.randrange(256) for _ in range(999)), "missing": None,
        "a folder": ..., "deep": b"[" * 99_999, "deep mappings": b'{"a":' * 99_999,
        "UTF-16": "schema: x".encode("utf-16"),
        "one long line": b"x" * 3_000_000, "spaces": b" " * 100_000, "JSON of a number": b"1", "a list": b"[1, 2]\n",
        "30 MB": b"a: 1\n" * 6_000_000, "notes": b"# notes\n\ntext\n",
    }  # fmt: skip
    what = rng.choice([*files])
    return Change(what, lambda _: files[what])


class Case(NamedTuple):
    """An input, what is changed of it, and the command."""

    number: int
    given: Input
    changes: tuple[Change, ...]
    words: str

    def content(self) -> Data:
        """What the file has, as bytes; None: no file; ``...``: a folder."""
        data, suffix = self.given.content, Path(self.given.name).suffix
        for change in self.changes:
            if isinstance(data, dict | list) and change.what.split()[0] not in DATA:
                data = written(data, suffix)
            elif not isinstance(data, dict | list | str | bytes):
                break
            data = change.apply(data)
        return (
            written(data, suffix) if isinstance(data, dict | list) else data.encode() if isinstance(data, str) else data
        )


DATA = ("value", "remove", "rename", "add", "double", "scale", "swap", "nest")


def written(data: Data, suffix: str) -> bytes:
    """A document as the file that it is."""
    if suffix == ".jsonl":
        lines = []
        for record in data if isinstance(data, list) else [data]:
            plain = isinstance(record, dict) and record.get("schema", SCHEMA) == SCHEMA
            with contextlib.suppress(ValueError):
                lines.append(line_of(record) if plain else json.dumps(record).encode() + b"\n")
        return b"".join(lines)
    return (
        json.dumps(data).encode()
        if suffix == ".json"
        else dump_yaml(data).encode()
        if isinstance(data, dict)
        else b"[]"
    )


def draw(seed: str, number: int, kinds: Sequence[str] = ()) -> Case:
    """The case of a number."""
    rng = random.Random(f"{seed}:{number}")
    by_kind = defaultdict(list)
    for one in inputs():
        by_kind[one.kind].append(one)
    given = rng.choice(by_kind[rng.choice([kind for kind in by_kind if not kinds or kind in kinds])])
    changes = list[Change]()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        documents = isinstance(given.content, dict | list) and all(change.what.split()[0] in DATA for change in changes)
        if rng.random() < 0.08:
            changes.append(of_file(rng))
        elif documents and rng.random() < 0.8:
            changes.append(of_data(given.content, rng))
        else:
            content = given.content
            text = written(content, Path(given.name).suffix) if isinstance(content, dict | list) else content
            changes.append(of_text(text, rng))
    return Case(number, given, tuple(changes), rng.choice(given.commands))


# --- what is said to them ------------------------------------------------------------------------------------------


def prepared(case: Case, folder: Path) -> tuple[list[str], Path]:
    """The words of the command, and the changed file; all files that it names are in the folder."""
    (folder / "g.yaml").write_text(dump_yaml(GRAPH))
    (folder / "s.yaml").write_text(dump_yaml(SYSTEM))
    (folder / "st.yaml").write_text(dump_yaml(STUDY))
    (folder / "t.jsonl").write_bytes(written(RECORDS, ".jsonl"))
    file, content = folder / case.given.name, case.content()
    if content is ...:
        file.mkdir()
    elif content is not None:
        file.write_bytes(content)
    names = {
        "F": case.given.name, "G": "g.yaml", "S": "s.yaml", "GPT": str(GOLDEN / "calculon" / "gpt3-175B.json"),
        "CALCULON": str(GOLDEN / "calculon" / "a100_80g.json"), "OVERRIDES": str(GOLDEN / "dfmodel" / "overrides.yaml"),
    }  # fmt: skip
    return [names.get(word, word) for word in case.words.split()], file


def ran(words: Sequence[str], folder: Path, seconds: float = 20.0) -> Outcome:
    """Run the command line in a copy of this process, which has all imported, and say what it took."""
    own = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        code, said = -1, ("", "")
        try:
            os.close(reader)
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            answer = CliRunner().invoke(app, list(words))
            code, said = answer.exit_code, (answer.stdout, answer.stderr)
            if answer.exception is not None and not isinstance(answer.exception, SystemExit):
                import traceback

                code, said = -1, ("", "".join(traceback.format_exception(answer.exception)[-3:]))
        finally:
            with open(writer, "wb") as pipe:
                pipe.write(json.dumps([code, *said]).encode())
            os._exit(0)
    os.close(writer)
    data, until = b"", time.monotonic() + 6 * seconds
    with open(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(until - time.monotonic(), 0))[0] and (more := pipe.read(1 << 20)):
            data += more
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    _, _, used = os.wait4(process, 0)
    code, out, err = json.loads(data) if data else (-2, "", "killed")
    grown = max(used.ru_maxrss * 1024 - own, 0)  # what the copy began with is not of this command
    return Outcome(code, out, err, used.ru_utime + used.ru_stime, FRESH + grown)


def wrong_with(outcome: Outcome) -> str:
    """What is wrong with an answer to a bad input; nothing where it is as it should be."""
    code, out, err, seconds, memory = outcome
    lines = [line for line in err.split("\n") if line]
    messages = [line for line in lines if re.match(r"(dfopt|Error): (?!note: |round \d)", line)]
    if code == -1:
        return "a traceback"
    if code == -2:
        return "no end"
    if CONTROL.search(out + err):
        return "a control character"
    if FOREIGN.search(out + err):
        return "words of a library"
    if code not in CODES:
        return f"exit code {code}"
    if code in (2, 3):
        if not err:
            return "silence"
        if out:
            return "an error on standard output too"
        if len(messages) != 1 or len(err) > 30_000:
            return f"{len(messages)} messages"
        if code == 3 and any(not line.startswith((" ", "dfopt: ")) for line in lines):
            return "lines that are no issues"
        if seconds > SECONDS:
            return f"{seconds:.1f} s"
        if memory > BYTES:
            return f"{memory / 1e6:.0f} MB"
    return ""


def tried(case: Case) -> tuple[str, Outcome]:
    """What is wrong with the answer to a case, and the answer."""
    with tempfile.TemporaryDirectory() as name:
        words, file = prepared(case, Path(name))
        before = file.read_bytes() if file.is_file() else None
        outcome = ran(words, Path(name))
        after = file.read_bytes() if file.is_file() else None
        return "a changed input" if before != after else wrong_with(outcome), outcome


def smallest(case: Case, wrong: str) -> Case:
    """The case with the fewest changes of which the same is wrong."""
    for change in case.changes if len(case.changes) > 1 else ():
        alone = case._replace(changes=(change,))
        if tried(alone)[0] == wrong:
            return alone
    return case


def failures(seed: str, numbers: Sequence[int], kinds: Sequence[str] = (), keep: Path | None = None) -> Iterator[str]:
    """What is wrong with the answers to drawn cases, with the least that reproduces each; and counts at the end."""
    for name in ("search", "exploring.explore", "studies.sweep", "show.plots", "show.report", "frontends.onnx"):
        importlib.import_module(f"dfopt.{name}")  # once, and not in each process
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    slowest = 0.0
    for number in numbers:
        case = draw(seed, number, kinds)
        wrong, outcome = tried(case)
        what = "failed" if wrong else "accepted" if outcome.code == 0 else f"code {outcome.code}"
        counts[case.given.kind][what] += 1
        slowest = max(slowest, outcome.seconds if outcome.code in (2, 3) else 0.0)
        if wrong:
            case = smallest(case, wrong)
            if keep is not None:
                (folder := keep / f"{seed}-{number}").mkdir(parents=True, exist_ok=True)
                prepared(case, folder)
            again = (
                f"python benchmarks/bad_input.py --seed {seed} --only {number}{''.join(f' --kind {k}' for k in kinds)}"
            )
            yield (
                f"{number}: {wrong}: dfopt {case.words} with {case.given.kind} {case.given.name}: "
                f"{'; '.join(change.what for change in case.changes)}\n    {outcome.err.strip()[-900:]!r}\n    {again}"
            )
    for kind, of_kind in sorted(counts.items()):
        print(f"{kind:14}", "  ".join(f"{what} {count}" for what, count in sorted(of_kind.items())), flush=True)
    print(f"{sum(map(Counter.total, counts.values()))} inputs, slowest refusal {slowest:.2f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", default="0")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    numbers = range(asked.count) if asked.only is None else [asked.only]
    found = 0
    for failure in failures(asked.seed, numbers, asked.kind, asked.keep):
        found += 1
        print(failure, flush=True)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
