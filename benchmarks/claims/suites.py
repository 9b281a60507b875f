"""Claims about language models that tests show: which ones, by their place, under how many examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from claims.programs import tested
from claims.rows import HERE, Asked, Row, run, shown


class Suite(NamedTuple):
    """A claim, the tests that show it, and what they hold it to."""

    claim: str
    tests: tuple[str, ...]
    limit: str


GOLDEN = [
    Suite(
        "nothing broken, documents",
        (
            "tests/workloads/test_load_graph.py",
            "tests/workloads/test_transformer.py",
            "tests/workloads/test_backward.py::test_training_graphs_are_as_they_have_always_been",
            "tests/documents/test_base.py",
            "tests/machines/test_zoo.py",
        ),
        "no failure: graphs of the zoo and of before, 1e-12",
    ),
    Suite(
        "nothing broken, results",
        (
            "tests/frontends/test_dfmodel.py",
            "tests/frontends/test_dfmodel_workloads.py",
            "tests/search/test_earlier_results.py",
            "tests/benchmarks/test_figures.py",
        ),
        "no failure: cases of DFModel 1e-6, results of before 1e-9, stored figures",
    ),
]
PHASES = [
    Suite(
        "decode is a draft of none",
        (
            "tests/documents/test_phase.py::test_decode_is_the_verification_of_nothing",
            "tests/workloads/test_layer_stack.py::test_decode_is_the_verification_of_no_draft",
        ),
        "no failure, the same graph",
    ),
    Suite(
        "a mix of one segment is that segment", ("tests/workloads/test_mixed_phases.py",), "no failure, the same graph"
    ),
    Suite(
        "chunks are the prompt",
        (
            "tests/documents/test_phase.py::test_chunks_of_a_prompt_are_the_prompt",
            "tests/workloads/test_decoder_phases.py::test_chunks_of_a_prompt_compute_what_the_prompt_does",
            "tests/workloads/test_layer_stack.py::test_chunks_of_a_prompt_compute_what_the_prompt_does",
        ),
        "no failure, FLOP and pairs of tokens",
    ),
    Suite(
        "a hit of all but one token is a decode step",
        (
            "tests/documents/test_phase.py::test_a_hit_of_all_but_one_token_is_a_decode_step",
            "tests/workloads/test_decoder_phases.py::test_a_hit_of_all_but_one_token_is_a_decode_step",
        ),
        "no failure, the same kernels",
    ),
    Suite(
        "sections are their layers one by one",
        (
            "tests/search/test_unroll.py",
            "tests/workloads/test_layer_stack.py::test_sections_are_the_same_layers_drawn_one_by_one",
            "tests/workloads/test_layer_stack.py::test_kinds_take_the_time_of_their_layers",
            "tests/workloads/test_fold.py::test_a_folded_graph_takes_the_time_of_the_drawn_one",
        ),
        "no failure, 1e-9",
    ),
]
SHARDINGS = [
    Suite(
        "second axis: equal to brute force, judge agrees",
        ("tests/joint/test_modules.py", "tests/joint/test_modules_training.py", "tests/setting/test_context.py"),
        "no failure, 1e-6; more capacity, bandwidth or link never hurts",
    ),
    Suite(
        "more of a resource never hurts",
        ("tests/search/test_optimize_properties.py::test_more_of_a_resource_never_hurts_by_the_sensitivities",),
        "no failure",
    ),
]
SHORTCUTS = Suite("defects of other tools", ("tests/search/test_shortcuts.py",), "no failure, a test for each")
ONNX = [
    Suite("ONNX, models by hand", ("tests/frontends/test_onnx.py",), "no failure: FLOP within 1 %"),
    Suite("ONNX, faults", ("tests/frontends/test_onnx_broken.py",), "no failure: one clear error each"),
]
BAD_INPUT = Suite("bad input", ("tests/cli/test_bad_input.py",), "no failure: one clear error each")
SUITES = [*GOLDEN, *PHASES, *SHARDINGS, SHORTCUTS, *ONNX, BAD_INPUT]
START = [  # words of the command line, and the seconds that they may take
    (["solve", "gpt3-175b", "sn10-8-torus"], 10.0),
    (["--help"], 0.4),
]


def _held(suite: Suite, **environment: str) -> Row:
    return tested(suite.claim, ["-m", "pytest", *suite.tests], suite.limit, **environment)


def nothing_broken(asked: Asked) -> Iterator[Row]:
    """Golden cases and the graphs of the zoo, the main job of the README, and how long help takes."""
    for suite in GOLDEN:
        yield _held(suite)
    for words, most in START:
        done = [run(["-m", "dfopt", *words]) for _ in range(3)]
        least = min(one.seconds for one in done)
        met = least <= most and all(one.code == 0 for one in done)
        yield Row("time, from start to end", f"`dfopt {' '.join(words)}`", f"{least:.2f} s", f"{most:g} s", met)


def phases(asked: Asked) -> Iterator[Row]:
    """Phases of serving that are others in disguise, and layers drawn once or one by one."""
    for suite in PHASES:
        yield _held(suite)


def shardings(asked: Asked) -> Iterator[Row]:
    """Random machines and layers whose kernels are shared out over two axes, against brute force."""
    for suite in SHARDINGS:
        yield _held(suite, HYPOTHESIS_PROFILE="nightly", NIGHTLY_EXAMPLES=str(asked.examples))


def shortcuts(asked: Asked) -> Iterator[Row]:
    """What tools for serving get wrong, a test for each."""
    yield _held(SHORTCUTS)


def onnx(asked: Asked) -> Iterator[Row]:
    """ONNX models that are counted by hand, and broken ones."""
    for suite in ONNX:
        yield _held(suite)


def speed(asked: Asked) -> Iterator[Row]:
    """Every model of the zoo on eight GPUs, sixteen RDUs and sixteen TPUs, proven or refused."""
    words = [str(HERE / "zoo.py")]
    done = run(words)
    # what ended it before its summary is the last line of an error
    seen = "; ".join([*done.out.splitlines()[-3:], *done.err.splitlines()[-1:]]) or done.last
    yield Row("time, zoo", shown(words), seen, "99 % proven or refused, median 2 s", done.code == 0)
