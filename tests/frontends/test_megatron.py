"""Files of arguments and launch scripts of Megatron-LM, as people have them: what is read, noted and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import dfopt as df
from dfopt.frontends.megatron.launch_files import words_of
from dfopt.frontends.megatron.script import Script, unknown_in
from dfopt.frontends.megatron.training_run import TrainingRun, load_run

GOLDEN = Path(__file__).parents[1] / "golden/megatron"
SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32"
RUN = f"{SIZES} --micro-batch-size 1 --global-batch-size 8 --bf16"


def imported(tmp_path: Path, text: str, name: str = "run.args") -> TrainingRun:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_run(tmp_path / name)


def refused(tmp_path: Path, text: str, name: str = "run.args") -> dict[str, str]:
    """Issues by option."""
    with pytest.raises(df.DocumentError) as error:
        imported(tmp_path, text, name)
    return {issue.where.removeprefix("$."): f"{issue.message} ({issue.remedy})" for issue in error.value.issues}


def noted(run: TrainingRun, beginning: str) -> list[str]:
    return [note for note in run.notes if note.startswith(beginning)]


def test_a_misspelt_option_is_refused_with_near_names(tmp_path: Path) -> None:
    issues = refused(tmp_path, f"{RUN} --tensor-model-paralel-size 8 --zero-stage 3 --is-hybrid-model --optimizer sgd")
    assert (
        "found an option that is not known (did you mean 'tensor-model-parallel-size'"
        in (issues["tensor-model-paralel-size"])
    )
    assert set(issues) == {"tensor-model-paralel-size", "zero-stage", "is-hybrid-model", "optimizer"}
    assert "layers of Mamba" in issues["is-hybrid-model"]


def test_a_misspelt_option_is_named_beside_the_one_that_is_missing(tmp_path: Path) -> None:
    issues = refused(tmp_path, RUN.replace("num-layers", "num-layer"))
    assert set(issues) == {"num-layer", "num-layers"}


def test_options_that_cost_nothing_and_those_that_are_not_priced_are_named(tmp_path: Path) -> None:
    run = imported(
        tmp_path, f"{RUN} --lr 1e-4 --no-rope-fusion --moe-layer-freq 1 --optimizer adam --data-path 1 a 2 b"
    )
    assert noted(run, "not priced") == ["not priced: --no-rope-fusion (rotary position in several kernels)"]
    assert run.notes[-1] == "without effect on what a step costs: --lr, --data-path"
    assert set(refused(tmp_path, f"{RUN} --mock-data 3 --lr")) == {"mock-data", "lr"}


@pytest.mark.parametrize(
    ("more", "ffn"),
    [
        ("--swiglu", 3392),  # int(4 x 1280 x 2 / 3 / 64) x 64
        ("--swiglu --ffn-hidden-size 100", 100),
        ("--quick-geglu", 5120),
        ("", 5120),
        ("--swiglu --num-experts 4 --moe-ffn-hidden-size 96", 96),
        ("--swiglu --num-experts 4", 3392),
    ],
)
def test_features_inside_a_feed_forward(more: str, ffn: int, tmp_path: Path) -> None:
    parameters = imported(tmp_path, f"{RUN} {more}".replace("--hidden-size 64", "--hidden-size 1280")).recipe[
        "parameters"
    ]
    assert parameters["ffn"] == ffn
    assert parameters.get("gated_mlp", False) == ("glu" in more)


@pytest.mark.parametrize(
    ("more", "scores", "hidden"),
    [
        ("", True, True),
        ("--attention-dropout 0", False, True),
        ("--hidden-dropout 0.0", True, False),
        ("--attention-dropout 0.0 --hidden-dropout 0", False, False),
    ],
)
def test_masks_of_dropout_are_kept(more: str, scores: bool, hidden: bool, tmp_path: Path) -> None:
    """Of each score a byte, and what is left in two; of hidden features a byte, behind attention and feed-forward."""
    run = imported(tmp_path, f"{RUN} --swiglu --attention-backend unfused {more}")
    kept = {k.name: k.mask_bytes for k in run.graph.kernels if k.mask_bytes}
    assert set(kept) == {*(["Scores_Dropout"] if scores else []), *(["Add_1", "Add_2"] if hidden else [])}
    assert set(kept.values()) <= {1.0}


def test_a_run_that_was_out_of_memory_is() -> None:
    """By hand, per layer of 4 x 1024 tokens: scores keep 2 bytes behind softmax, 2 + 1 behind dropout."""
    run = load_run(GOLDEN / "gpt2_large.args")
    system = df.load_system("v100-16")
    dram = system.chip.dram.model_copy(update={"capacity": 31.74 * 2**30})
    alone = (system.network[0].model_copy(update={"size": 1}),)
    chip = system.chip.model_copy(update={"dram": dram})
    system = system.model_copy(update={"chip": chip, "network": alone})
    with pytest.raises(df.DfoptError, match=r"holds at least 34\.65 GB per chip"):
        df.optimize(run.graph, system, assumptions=df.Assumptions(), sensitivity=False, **run.options())


def test_a_script_says_what_its_arguments_say() -> None:
    script, arguments = load_run(GOLDEN / "gpt2_large.sh"), load_run(GOLDEN / "gpt2_large.args")
    assert script.graph == arguments.graph
    assert (script.pins, script.fixed) == (arguments.pins, arguments.fixed)
    assert noted(script, "defaults") == ["defaults that the script has: GPUS_PER_NODE=1"]
    assert noted(script, "the script starts 1 ranks")


def test_mixtral_is_read_with_a_note() -> None:
    run = load_run(GOLDEN / "mixtral_8x7b.args")
    assert noted(run, "--sequence-parallel is turned off")
    assert run.pins.on_axes == {"tp": 1, "pp": 4, "mp": 8}
    assert noted(run, "not priced") == ["not priced: --no-masked-softmax-fusion (softmax in several kernels)"]


def test_recompute_activations_is_selective(tmp_path: Path) -> None:
    older, newer = (
        imported(tmp_path, f"{RUN} --attention-backend unfused {option}")
        for option in ("--recompute-activations", "--recompute-granularity selective")
    )
    assert older == newer and older.graph.variant == "recompute: attention"


@pytest.mark.parametrize(("more", "weights", "cast"), [("", "bf16", "fp8"), (" --fp8-param-gather", "fp8", None)])
def test_products_in_8_bits_take_weights_that_are_cast(more: str, weights: str, cast: str, tmp_path: Path) -> None:
    run = imported(tmp_path, f"{RUN} --fp8-format hybrid --use-distributed-optimizer{more}")
    types = run.graph.dtypes
    assert types is not None and (types.weights, types.weight_operands, types.ends) == (weights, cast, "bf16")
    assert bool(noted(run, "weights are kept in bf16 and cast")) == (cast is not None)


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        ("--vocab-size 50257 --tensor-model-parallel-size 4", 50688),  # 99 x 128 x 4
        ("--vocab-size 50257", 50304),
        ("--vocab-size 50257 --make-vocab-size-divisible-by 1", 50257),
        ("--vocab-size 50257 --padded-vocab-size 51200", 51200),
    ],
)
def test_a_vocabulary_is_padded_for_tensor_parallel_chips(more: str, rows: int, tmp_path: Path) -> None:
    run = imported(tmp_path, f"{RUN} {more}")
    assert run.recipe["parameters"]["vocab"] == rows
    assert bool(noted(run, "vocabulary of 50257 padded")) == (rows != 50257)


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ("--pipeline-model-parallel-size 3", "num-layers"),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4",
         "num-virtual-stages-per-pipeline-rank"),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication",
         "pipeline-model-parallel-size"),
        ("--tensor-model-parallel-size 8", "num-attention-heads"),
        ("--ffn-hidden-size 33 --tensor-model-parallel-size 2", "ffn-hidden-size"),
        ("--group-query-attention --num-query-groups 4 --num-attention-heads 12 --tensor-model-parallel-size 3",
         "num-query-groups"),
        ("--context-parallel-size 32", "seq-length"),
        ("--max-position-embeddings 16", "max-position-embeddings"),
        ("--num-experts 4 --tensor-model-parallel-size 2", "num-experts"),
    ],
)  # fmt: skip
def test_what_megatron_refuses_is_refused(more: str, option: str, tmp_path: Path) -> None:
    sizes = RUN.replace(
        "--num-attention-heads 4 ", "" if "--num-attention-heads" in more else "--num-attention-heads 4 "
    )
    assert option in refused(tmp_path, f"{sizes} {more}")


SCRIPT = f"torchrun --nproc_per_node=8 --nnodes 2 pretrain_gpt.py {RUN}"


@pytest.mark.parametrize(
    ("script", "where", "message"),
    [
        (f"{SCRIPT} --tensor-model-parallel-size $1", "tensor-model-parallel-size", "found $1, which only a shell"),
        (f"TP=$(nproc); {SCRIPT} --tensor-model-parallel-size $TP", "tensor-model-parallel-size", "found $(nproc)"),
        (f"for i in 1 2; do TP=$i; done; {SCRIPT} --tensor-model-parallel-size $((TP*2))", "tensor-model-parallel-size",
         "found $((TP*2))"),
        (f"{SCRIPT} --lr 1 $EXTRA", "", "found $EXTRA, expected an option"),
        (f"{SCRIPT}; {SCRIPT}", "", "found 2 Python programs"),
        ("echo hello", "", "found 0 Python programs"),
        (f'A="{SCRIPT}', "", "cannot be read as shell words"),
    ],
)  # fmt: skip
def test_what_a_script_leaves_to_the_shell_is_refused_by_name(
    script: str, where: str, message: str, tmp_path: Path
) -> None:
    issues = refused(tmp_path, script, "run.sh")
    assert message in issues[where or "$"], issues


def test_what_only_a_shell_knows_is_free_where_it_costs_nothing(tmp_path: Path) -> None:
    run = imported(
        tmp_path, f'{SCRIPT} --save "$1/out" --load ${{OLD}} --tensor-model-parallel-size ${{TP:-2}} "$@"', "a.sh"
    )
    assert run.pins.on_axes["tp"] == 2
    assert noted(run, "defaults") == ["defaults that the script has: TP=2, @=nothing"]
    assert noted(run, "the script starts 16 ranks")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=(1 'b c'); A+=(d); python x.py ${A[@]} \"${A[@]}\" ${A[1]}", "1|b|c|d|1|b c|d|b|c"),
        ("N=3; python x.py $(( (N + 2) * 2 / 3 % 2 )) $((N)) '$N' \"$N\" \\$N a#b # end", "1|3|$N|3|$N|a#b"),
        ("A=x\nif [ $A != x ]; then B=1\nelif [[ $A == x ]]; then B=2\nelse B=3; fi\npython x.py $B", "2"),
        ("A=0; [ $A -gt 0 ] && B=1; if [ 2 -le 3 ]; then C=4; fi; python x.py ${B:-5} $C", "?|4"),
        ("mpirun -n 2 bash -c \"python x.py 1 \\\n 2 > log 2>&1\"", "1|2"),
        ("cat <<EOF > f\nit's python x.py 9\nEOF\nE=' a  b '; eval \"python x.py $E\"", "a|b"),
    ],
)  # fmt: skip
def test_a_script_is_followed(text: str, words: str) -> None:
    script = Script()
    script.run(text)
    (command,) = script.commands
    assert "|".join("?" if unknown_in(word) else word for word in command.words) == words


def test_arithmetic_computes_and_calls_nothing() -> None:
    script = Script()
    script.run("python x.py $((9**9**9**9)) $((__import__('os'))) $((1/0)) $((08))")
    assert all(unknown_in(word) for word in script.commands[0].words)


def test_a_file_of_arguments_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "run").write_text(f"# first\n\n  {RUN} \\\n --split 1,$X")
    assert words_of(tmp_path / "run")[0]["split"] == "1,$X"
