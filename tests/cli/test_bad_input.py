"""What the command line says to bad input: the right exit code, one clear message on stderr, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from by_path import module_at
from cli_tools import GRAPH, ONE_CHIP_MAPPING, RECIPE, SYSTEM, Data, assert_refused, call, changed, spawn, write

USAGE, BAD, INFEASIBLE = 2, 3, 4
instrument = module_at(Path(__file__).parents[2] / "benchmarks" / "bad_input.py")


@dataclass(frozen=True)
class Case:
    """One bad call: ``words`` of the command line, where G, S, M and F stand for the written files.

    ``says`` are pieces of the message: the place, what was found, what was expected, a remedy.
    """

    name: str
    words: str
    code: int
    says: tuple[str, ...]
    graph: Data | str | bytes = field(default_factory=lambda: GRAPH)
    system: Data | str | bytes = field(default_factory=lambda: SYSTEM)
    other: Data | str | bytes | None = None  # M and F: a mapping, or any file
    suffix: str = ".yaml"


def asked(name: str, words: str, *says: str, code: int = BAD, **files: Any) -> Case:
    return Case(name, words, code, says, **files)


def graph(name: str, *says: str, words: str = "check G", code: int = BAD, **changes: Any) -> Case:
    return Case(name, words, code, says, graph=changed(GRAPH, **changes))


def system(name: str, *says: str, **changes: Any) -> Case:
    return Case(name, "check S", BAD, says, system=changed(SYSTEM, **changes))


def recipe(name: str, *says: str, words: str = "check G", code: int = BAD, **changes: Any) -> Case:
    return Case(name, words, code, says, graph=changed(RECIPE, **changes))


def text(name: str, content: str | bytes, *says: str, suffix: str = ".yaml") -> Case:
    return Case(name, "check F", BAD, says, other=content, suffix=suffix)


def table(name: str, content: str | bytes | None, *says: str, words: str = "--kernels F") -> Case:
    return Case(name, f"calibrate {words} -o c.yaml --system a100-512", BAD, says, other=content, suffix=".csv")


def solve(name: str, options: str, code: int, *says: str, graph: Data = GRAPH, **changes: Any) -> Case:
    return Case(name, f"solve G S {options}", code, says, graph=graph, system=changed(SYSTEM, **changes))


def training(options: str, *says: str, code: int = USAGE) -> Case:
    return Case(options, f"solve gpt2-small a100-8 --param mode=training --batch 16 {options}", code, says)


def collective(words: str, *says: str) -> Case:
    return Case(words, f"collective {words}", USAGE, says)


def mapping(name: str, *says: str, code: int = BAD, **changes: Any) -> Case:
    return Case(name, "score M G S", code, says, other=changed(ONE_CHIP_MAPPING, **changes))


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{', '.join(['*' + p] * 10)}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)
)
BIG = changed(GRAPH, kernels__1__m=2**14, kernels__1__k=2**14, kernels__0__m=2**14, kernels__2__k=2**14)

GEMM = "system,m,n,k,latency_ms\nx,8192,8192,8192,4\n"
STEPS = "iter_time_ms,n_gpus\n1,2\n"

CASES = [
    # --- graphs
    graph("cycle", "$.tensors", "cycle", "up -> down", "acyclic", tensors__2={"src": "down", "dst": "norm"}),
    graph("unknown op", "$.kernels[1].op", "found 'gem'", "'gemm'", "did you mean", kernels__1__op="gem"),
    graph("negative size", "$.kernels[2].m", "found -64", "expected a number of 1 or more", kernels__2__m=-64),
    graph("zero size", "$.kernels[2].n", "found 0", "expected", kernels__2__n=0),
    graph("size as text", "$.kernels[0].m", "found '64'", "without quotes", kernels__0__m="64"),
    graph("unknown key", "$.kernels[0].outr", "unknown key", "did you mean 'outer'", kernels__0__outr=2),
    graph("duplicate kernel", "$.kernels[2].name", "'up'", "twice", "two producers", kernels__2__name="up"),
    graph(
        "two tensors into one operand",
        "$.tensors[2].dst",
        "takes 1 input",
        "elementwise kernel first",
        tensors__2={"src": "norm", "dst": "up"},
    ),
    graph("tensor to unknown kernel", "$.tensors[1].dst", "'dwn'", "did you mean 'down'", tensors__1__dst="dwn"),
    graph("kernel eats its own output", "$.tensors[2]", "own output", tensors__2={"src": "norm", "dst": "norm"}),
    graph("shapes disagree", "$.tensors[1]", "shapes disagree", "8192", "7680", kernels__2__k=240),
    graph("tensor above producer", "$.tensors[0].bytes", "1000000000", "only 4096", tensors__0__bytes="1 GB"),
    graph("no kernels", "$.kernels", "1 or more entries", kernels=[]),
    graph("newer schema", "$.schema", "'dfopt/graph/9'", "upgrade dfopt", schema="dfopt/graph/9"),
    graph("schema typo", "$.schema", "'dfopt/grph/1'", "did you mean", schema="dfopt/grph/1"),
    graph("no schema", "$.schema", "missing", "expected one of dfopt/graph/3", schema=...),
    graph("unknown type", "$.dtypes.weights", "found 'fp7'", "'mxfp4'", "did you mean", dtypes={"weights": "fp7"}),
    graph("class of no data", "$.dtypes.weight", "did you mean 'weights'", dtypes={"weight": "fp8"}),
    graph("types and words", "$.word_bytes", "found 4", "dtypes", "leave it out", dtypes={}, word_bytes=4),
    graph(
        "output of no class",
        "$.kernels[2].output_class",
        "'logit'",
        "did you mean 'logits'",
        kernels__2__output_class="logit",
    ),
    # --- workloads
    recipe("unknown workload", "$.workload", "'tranformer'", "did you mean 'transformer'", workload="tranformer"),
    recipe("unknown parameter", "$.parameters.hiden", "did you mean 'hidden'", parameters__hiden=8),
    recipe("ill-typed parameter", "$.parameters.heads", "found 'four'", "a whole number", parameters__heads="four"),
    recipe(
        "heads that do not divide",
        "$.parameters.heads",
        "3 heads for 64",
        "divisor",
        words="solve G S --param mode=training --param heads=3",
    ),
    recipe("unknown --param", "$.parameters.modes", "did you mean 'mode'", words="show G --param modes=training"),
    recipe(
        "--param inside a parameter",
        "$.parameters.dtypes.weigths",
        "did you mean 'weights'",
        words="show G --param dtypes.weigths=fp8",
    ),
    recipe("--param inside a number", "$.parameters.heads.x", "no fields of its own", words="show G --param heads.x=1"),
    recipe("--param without value", "--param", "KEY=VALUE", "'mode'", words="show G --param mode", code=USAGE),
    recipe(
        "--param twice",
        "--param",
        "'mode' is given twice",
        words="show G --param mode=training --param mode=forward",
        code=USAGE,
    ),
    graph(
        "--param on explicit graph", "$.hidden", "explicit kernels takes batch, repeat", words="show G --param hidden=8"
    ),
    # --- systems
    system("missing unit", "$.chip.sram.capacity", "unit", "B", chip__sram__capacity=1000000),
    system("unit of another dimension", "$.chip.dram.bandwidth", "10 GHz", "GB/s", chip__dram__bandwidth="10 GHz"),
    system("unit typo", "$.chip.dram.bandwidth", "Gb/sec", "GB/s", chip__dram__bandwidth="10 Gb/sec"),
    system("equal dim names", "$.network[1].name", "'ring' is named twice", network__1=SYSTEM["network"][0]),
    system("unknown topology", "$.network[0].topology", "'rnig'", "did you mean 'ring'", network__0__topology="rnig"),
    system("no compute rate", "$.chip", "compute rate is missing", "give either peak", chip__peak=...),
    system(
        "peak that disagrees",
        "$.chip",
        "peak is 1e+12",
        "lanes x stages x tiles x frequency is 1.638e+10",
        chip__lanes=8,
        chip__stages=8,
        chip__frequency="8 MHz",
    ),
    system("rate of no type", "$.chip.peak.fp9", "unknown key", "did you mean", chip__peak={"fp9": "1 TFLOP/s"}),
    system("rate without a unit", "$.chip.peak.bf16", "missing unit", chip__peak={"bf16": 1e12}),
    system(
        "no rate of 16 bits or more",
        "$.chip.peak: found fp8, expected one of bf16, fp16, tf32 or fp32",
        chip__peak={"fp8": "1 TFLOP/s"},
    ),
    solve(
        "no type that holds the operands",
        "",
        BAD,
        "$.chip.peak",
        "found fp8, bf16",
        "kernel 'norm' of three computes in fp32",
        "give the rate of fp32, or one rate for all types",
        graph=changed(GRAPH, dtypes={"activations": "fp32"}),
        chip__peak={"bf16": "1 TFLOP/s", "fp8": "2 TFLOP/s"},
    ),
    system("share above one", "$.chip.compute_utilization", "1", chip__compute_utilization="120 %"),
    system(
        "shares without a rest",
        "$.chip.efficiency:",
        "no row of the vector unit is without conditions",
        "end with a row {unit: vector, share: ...}",
        chip__efficiency=[{"unit": "matrix", "share": 0.8}, {"unit": "vector", "flop": "1 GFLOP", "share": 0.1}],
    ),
    system(
        "shares never reached",
        "2 problems",
        "$.chip.efficiency[1]: never reached: $.chip.efficiency[0] comes first",
        "$.chip.efficiency[4]: never reached: $.chip.efficiency[3] comes first",
        "from the largest kernels down",
        chip__efficiency=[
            {"unit": "matrix", "flop": "1 GFLOP", "share": 0.6},
            {"unit": "matrix", "flop": "10 GFLOP", "extent": 128, "share": 0.8},
            {"unit": "matrix", "extent": 128, "share": 0.5},
            {"unit": "matrix", "share": 0.2},
            {"unit": "matrix", "extent": 2, "share": 0.1},
            {"unit": "vector", "share": 0.1},
        ],
    ),
    system(
        "a row that is wrong in every key",
        "$.chip.efficiency[0].unit",
        "found 'matrx', expected 'matrix', 'vector' or 'memory' (did you mean 'matrix'?)",
        "$.chip.efficiency[0].flop",
        "missing unit",
        "$.chip.efficiency[0].extent",
        "found 1, expected a number of 2 or more",
        "$.chip.efficiency[0].share",
        "found 1.5, expected a number of 1 or less",
        "$.chip.efficiency[0].shar",
        chip__efficiency=[{"unit": "matrx", "flop": 1e9, "extent": 1, "share": 1.5, "shar": 1}],
    ),
    system("no rows", "$.chip.efficiency", "matrix unit", "vector unit", chip__efficiency=[]),
    # --- files
    text("duplicate key", "schema: dfopt/graph/3\nname: a\nname: b\n", "$.name", "line 3", "first on line 2"),
    text("duplicate key in JSON", '{"schema": "x",\n "a": 1, "a": 2}', "$.a", "duplicate key", suffix=".json"),
    text("YAML bomb", BOMB, "found a tag or an anchor"),
    text("deep nesting", "a: " + "[" * 5000 + "]" * 5000, "levels deep", "flatten"),
    text("deep nesting in JSON", '{"a": ' + "[" * 99999 + "]" * 99999 + "}", "levels deep", suffix=".json"),
    text("50 MB", b"#" * 50_000_000, "50,000,000 bytes", "at most"),
    text("binary", b"\x7fELF\x00\x01\xff\xfe" * 99, "not UTF-8", "expected text"),
    text("NUL", b"a: \x00\n", "NUL byte", "binary file"),
    text("empty", "", "the file is empty", "schema:"),
    text("only a comment", "# nothing\n", "found nothing at the top", "expected a mapping"),
    text("NaN in JSON", '{"schema": "dfopt/graph/3", "batch": NaN}', "found NaN", "finite number", suffix=".json"),
    text("NaN in YAML", "schema: dfopt/graph/3\nbatch: .nan\n", "$.batch", "line 2", "finite number"),
    text("tab", "schema: dfopt/graph/3\nchip:\n\tname: x\n", "line 3", "tab", "spaces"),
    text("not YAML", "a: [1, 2\nb: 3\n", "line", "brackets"),
    asked("a name that is too long", f"solve {'a' * 300} S", "no file and no zoo name", "dfopt list graphs"),
    asked("a config of too long a name", f"import hf {'a' * 300} -o x.yaml", "cannot be read: ", "check the path"),
    asked("a part of too long a name", "check S", "$.chip: no chip of this name", system={**SYSTEM, "chip": "a" * 300}),
    asked("runs of notes", "runs F", "line 1: found '# notes'", "expected a record", other="# notes\n\ntext\n"),
    asked("a folder", "check FOLDER", "found a directory", "expected a file"),
    asked("missing file", "check nope.yaml", "nope.yaml", "no such file", "check the spelling"),
    text("30 MB of another's JSON", b'{"a": "' + b"x" * 30_000_000 + b'"}', "at most 20,000,000", suffix=".json"),
    # --- tables
    table("a missing table", None, "other.csv", "no such file", "check the spelling"),
    table("an empty table", "", "line 1: found no column system, m, n, k, latency_ms"),
    table("no text", b"system,m\n\xff\xfe\n", "line 2: found bytes that are not UTF-8, from column 1 on"),
    table("a column of another name", GEMM.replace("n,k,", "n,kk,"), "line 1: found no column k"),
    table("a column twice", GEMM.replace("n,k,", "n,n,"), "line 1: found column 'n' twice"),
    table("a short row", GEMM + "x,1,2\n", "line 3: found 3 cells, expected 5 as in line 1"),
    table("a row in quotes", GEMM + '"x,1,2,3,4\n', "line 3: found unexpected end of data"),
    table("a field of 200 kB", GEMM + "x," + "1" * 200_000 + ",2,3,4\n", "line 3: found field larger than field limit"),
    table("a NUL", GEMM + "x,\0,2,3,4\n", "line 3", "found", "expected"),
    table(
        "a size with an exponent", GEMM + "x,1e9,2,3,4\n", "line 3, column 'm': found '1e9', expected a whole number"
    ),
    table("a size of nothing", GEMM + "x,1,,3,4\n", "line 3, column 'n': found '', expected a whole number"),
    table("a time that is no number", GEMM + "x,1,2,3,nan\n", "line 3, column 'latency_ms': found 'nan', expected"),
    table("a time below nothing", GEMM + "x,1,2,3,-4\n", "line 3, column 'latency_ms': found '-4', expected"),
    table("steps without a column", STEPS, "line 1: found no column 'tp'", words="F"),
    table("steps of no form", "a,b\n1,2\n", "found columns a, b", words="F"),
    asked("a frame of no CSV", "plot F --kind pareto", "line 2: found 1 cells", other="a,b\n1\n", suffix=".csv"),
    asked(
        "a frame without rows",
        "plot F --kind heat-map",
        "found no rows, expected a frame",
        other="a,b\n",
        suffix=".csv",
    ),
    # --- names
    asked("graph typo", "solve gpt3-175 S", "'gpt3-175'", "did you mean 'gpt3-175b'", "dfopt list graphs"),
    asked("system typo", "solve G sn10-8-rng", "'sn10-8-rng'", "did you mean 'sn10-8-ring'", "dfopt list systems"),
    asked("profile typo", "solve G S --assume dfmodl", "'dfmodl'", "did you mean 'dfmodel'", "dfopt list assumptions"),
    asked("typo of anything", "show sn10-8-rng", "'sn10-8-rng'", "did you mean 'sn10-8-ring'"),
    asked("system for a graph", "solve sn10-8-ring S", "name of a system", "expected a graph", "GRAPH SYSTEM"),
    asked("graph where a system belongs", "solve G gpt2-small", "name of a graph", "expected a system"),
    asked("system file where a graph belongs", "solve S S", "$.schema", "'dfopt/system/1'", "a system where a graph"),
    asked("graph file where a system belongs", "solve G G", "$.schema", "'dfopt/graph/3'", "a graph where a system"),
    asked("list of nothing", "list graph", "'graph'", "graphs, systems, chips", "assumptions", code=USAGE),
    asked("new of nothing", "new systm", "did you mean 'system'?", code=USAGE),
    asked("schema of nothing", "schema grph", "'grph'", "graph, system, chip", code=USAGE),
    asked("unknown command", "slove G S", "slove", code=USAGE),
    asked("unknown option", "solve G S --tensor 4", "--tensor", code=USAGE),
    asked("missing argument", "solve G", "SYSTEM", code=USAGE),
    # --- plans and options
    solve("a degree that no dims give", "--tp 3", USAGE, "TP 3", "ring (ring of 4)", "[1, 2, 4]"),
    solve("degrees that miss the chips", "--tp 4 --pp 4 --dp 4", USAGE, "TP 4, PP 4, DP 4", "must be 4"),
    solve("degree zero", "--tp 0", USAGE, "--tp", "greater than or equal to 1"),
    solve(
        "batch of no multiple", "--dp 4 --batch 6", USAGE, "batch of 6", "does not divide over DP 4", "multiple of 4"
    ),
    solve("pin to unknown kernel", "--pin upp=0", USAGE, "'upp'", "no kernel"),
    solve("pin that is no number", "--pin up=first", USAGE, "--pin", "'first'", "partition number"),
    solve("pin beyond p_max", "--pin up=7 --p-max 2", USAGE, "'up'", "partition 7", "0 to 1"),
    solve("pin without fusion", "--pin up=1 --kernel-by-kernel", USAGE, "--pin", "--kernel-by-kernel", "leave one out"),
    solve("pin given twice", "--pin up=0 --pin up=1", USAGE, "--pin", "'up' is given twice"),
    solve("no such scheme", "--shard up=z", USAGE, "--shard", "'z'", "outer, m, k, k>n, n, none"),
    solve("illegal scheme", "--tp 4 --shard norm=k", USAGE, "'norm'", "cannot be sharded by 'k'", "allows"),
    solve("unknown assumption", "--set overlp=none", BAD, "set: 1 problem", "$.overlp", "did you mean 'overlap'"),
    solve("bad assumption", "--set overlap=some", BAD, "$.overlap", "found 'some'", "'perfect'"),
    solve("time limit 0", "--time-limit 0", USAGE, "--time-limit", "greater than or equal to 0.1"),
    solve("negative time limit", "--time-limit -5", USAGE, "--time-limit", "greater than or equal to 0.1"),
    solve("gap above one", "--gap 2", USAGE, "--gap", "a number from 0 to 1 such as 0.01, or 1%, found '2'"),
    solve(
        "cycle model without lanes", "--set compute_model=cycle", BAD, "$.chip", "lanes, stages and frequency", "fixed"
    ),
    solve(
        "efficiency model without a table",
        "--set compute_model=efficiency",
        BAD,
        "$.chip.efficiency",
        "needs a table of shares of peak",
        "unit: matrix",
        "fixed",
    ),
    solve("exact partitions without p_max", "--assume dfmodel", USAGE, "p_max", "--p-max"),
    solve("output of no kind", "-o result.txt", USAGE, "--output", "'result.txt'", ".json"),
    solve("output in no folder", "-o no/where/result.json", USAGE, "--output", "in an existing folder"),
    # --- what cannot run
    solve("SRAM too small", "--tp 4", INFEASIBLE, "SRAM", "short by", "levers", chip__sram__capacity="100 B"),
    solve("DRAM too small", "", INFEASIBLE, "short by", "levers", chip__dram__capacity="2 kB"),
    solve("least DRAM", "--set sharding_objective=joint", INFEASIBLE, "least DRAM: ", chip__dram__capacity="2 kB"),
    solve(
        "p_max too small",
        "--tp 4 --p-max 1 --set token_blocks=none",
        INFEASIBLE,
        "at most 1 partition",
        "levers",
        graph=BIG,
        chip__sram__capacity="100 MB",
        chip__dram__capacity="1 TB",
    ),
    solve("consumer pinned before producer", "--pp 1 --pin up=1 --pin down=0", INFEASIBLE, "pins", "levers"),
    # --- training steps
    training("--schedule dualpipe", "--schedule: expected one of 1f1b, interleaved, gpipe, found 'dualpipe'"),
    training("--zero 1 --zero-replicas 0", "--zero-replicas: expected numbers such as 1,2,4, found '0'"),
    training("--zero 0 --zero-replicas 2", "no level of ZeRO to share out by"),
    training("--recompute half", "recompute: found 'half', expected none or some of full, op, moe"),
    training("--recompute-layers 2", "all layers of gpt2-small are computed alike"),
    training("--set sequence_parallelism=on", "sequence_parallelism", code=BAD),
    training("--tp 8 --set sequence_parallelism=force --set tile_rows=2", "tiles of 2 rows"),
    training("--set network.nvlin.size=4", "there is no such network dim (did you mean 'nvlink'?)", code=BAD),
    # --- collectives
    collective("all_gathr h100-8 --bytes 1GB", "did you mean 'all_gather'"),
    collective("all_gather h100-8 --bytes 0B", "bytes: found 0, expected more than 0"),
    collective("all_gather h100-8 --bytes 1GB --dims node", "has no network dim 'node'; it has nvlink"),
    collective("all_gather h100-8 --bytes 1GB --dims nvlink[2],nvlink", "have chips of nvlink twice"),
    collective("all_gather h100-8 --bytes 1GB --dims nvlink[1]", "which is one chip"),
    # --- mappings
    mapping("kernel without a place", "$.kernels", "'down'", "add an entry", kernels=ONE_CHIP_MAPPING["kernels"][:2]),
    mapping("kernel placed twice", "mapped twice: up", "exactly one place", kernels__3=ONE_CHIP_MAPPING["kernels"][1]),
    mapping("kernel of another graph", "$.kernels[2].name", "did you mean 'down'", kernels__2__name="dwn"),
    mapping("plan of another system", "$.plan", "1 x 1 x 8 = 8", "has 4 chips", plan__dp=8, code=USAGE),
    mapping("unknown dims", "$.plan.dp_dims[0]", "'x'", "the system's dims: ring", plan__dp_dims=["x"], code=USAGE),
    asked("graph where a mapping belongs", "score G G S", "$.schema", "a graph where a mapping is wanted"),
    # --- other people's files
    asked("import of no JSON", "import dfmodel F -o OUT", "JSON", other="hello: [", suffix=".json"),
    asked("import of no case", "import dfmodel F -o OUT", "$.setup", "not a DFModel case", other="{}", suffix=".json"),
    asked(
        "import of half a case", "import dfmodel F -o OUT", "$.setup", "$.graph", other='{"setup": {}}', suffix=".json"
    ),
    asked(
        "a size that argparse does not read",
        "import megatron F -o OUT",
        "$.num-layers: found 1000 with a point or an exponent, expected a whole number (write all its digits)",
        other="--num-layers 1e3 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1"
        " --global-batch-size 8 --vocab-size 512",
        suffix=".args",
    ),
    asked("import of nothing", "import dfmodel nope.json -o OUT", "nope.json", "no such file"),
]


def words_of(case: Case, folder: Path) -> list[str]:
    """The case's words with its files written and their names filled in."""
    files = {"G": folder / "graph.yaml", "S": folder / "system.yaml"}
    write(folder, "graph.yaml", case.graph)
    write(folder, "system.yaml", case.system)
    files["M"] = files["F"] = folder / f"other{case.suffix}"
    if case.other is not None:
        write(folder, files["F"].name, case.other)
    files |= {"FOLDER": folder, "OUT": folder / "out"}
    return [str(files.get(word, word)) for word in case.words.split()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(call(*words_of(case, tmp_path)), case.code, *case.says)


def test_drawn_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inputs of every kind that were changed at random; today's date draws others every day."""
    monkeypatch.setattr(instrument, "SECONDS", 20.0)  # of a machine that others use too
    found = [*instrument.failures(date.today().isoformat(), range(20))]
    assert not found, "\n".join(found)


def test_what_the_drawn_inputs_find() -> None:
    """The instrument would pass a command line that says nothing: here is what it must see."""
    fine = instrument.Outcome(3, "", "dfopt: a.yaml: 1 problem\n  $.x: unknown key\n", 0.1, 1e8)
    assert instrument.wrong_with(fine) == ""
    for change in (
        {"code": -1}, {"code": -2}, {"code": 1}, {"code": 6}, {"err": ""}, {"out": "x"}, {"seconds": 3.0},
        {"bytes": 6e8},
        {"err": fine.err * 2}, {"err": fine.err + "warning\n"}, {"err": fine.err + "  $.y: Input should be a number\n"},
        {"err": fine.err + "  $.y: \x1b[31m\n"},
    ):  # fmt: skip
        assert instrument.wrong_with(fine._replace(**change)), change
    drawn = {instrument.draw("0", number).given.kind for number in range(300)}
    assert drawn == {one.kind for one in instrument.inputs()} and len(drawn) > 20


def test_pin_beyond_all_partitions() -> None:
    answer = spawn("solve", "gpt2-small", "sn10-8-ring", "--pin", "Q=9999")
    assert "Traceback" not in answer.err
    assert answer.code in (USAGE, INFEASIBLE)


# One for each way out of a process (of a usage error, a document, a plan, a search), and what a real stack bounds.
REAL = (
    "unknown option", "system typo", "a degree that no dims give", "SRAM too small", "YAML bomb",
    "deep nesting in JSON",
)  # fmt: skip


@pytest.mark.parametrize("case", [case for case in CASES if case.name in REAL], ids=lambda case: case.name)
def test_no_traceback_reaches_a_terminal(case: Case, tmp_path: Path) -> None:
    assert_refused(spawn(*words_of(case, tmp_path), cwd=tmp_path), case.code, *case.says)


def test_the_message_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.yaml", changed(SYSTEM, chip__tiles=0))
    for words in (("check", path), ("show", path), ("solve", "gpt2-small", path)):
        assert f"dfopt: {path}: 1 problem\n  $.chip.tiles: " in call(*words).err


def test_with_json_errors_still_go_to_stderr() -> None:
    assert_refused(call("solve", "gpt2-small", "sn10-8-ring", "--tp", "3", "--json"), USAGE, "TP 3")
