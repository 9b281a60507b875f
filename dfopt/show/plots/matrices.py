"""The paper's matrices of a mapping: which partition each kernel runs in, and where each tensor is meanwhile."""

from __future__ import annotations

from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.show.matrix_tables import MARKS, marks_of
from dfopt.show.plots.style import GREY, PALETTE, Axes, about, axes, drawn, head, short

_COLOURS = {"A": "black", "B": "green", "H": "orange", "D": "sky", "L": GREY}
_MOST = 80  # rows; of more, each is less than a line of letters high


@drawn
def matrices(result: Result, ax: Axes | None = None, stage: int = 0) -> Axes:
    """Plot the assignment matrices of a stage: rows are kernels and tensors, columns are partitions.

    A kernel has the letter A in its partition. A tensor has B, H, D or L, see the legend.

    Parameters
    ----------
    result
        The result.
    ax : Axes, optional
        Axes to draw in; by default those of a new figure.
    stage : int
        Number of the pipeline stage.

    Raises
    ------
    PlanError
        If the mapping has no such stage.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.matrices(result).get_xlabel()
    'partition'
    """
    from matplotlib.patches import Patch

    by_stage = {each.stage: each for each in result.matrices}
    if stage not in by_stage:
        raise PlanError(f"matrices: found stage {stage}, expected one of {', '.join(map(str, sorted(by_stage)))}")
    marks = marks_of(by_stage[stage], result.graph)
    rows = [*marks.kernels, *marks.tensors]
    left_out, rows = len(rows) - _MOST, rows[:_MOST]
    names = [short([name]) for name, _ in rows]
    colours = {letter: PALETTE.get(colour, colour) for letter, colour in _COLOURS.items()}
    ax = axes(ax, 2.0 + 0.065 * max(map(len, names)) + 0.22 * marks.partitions, 1.2 + 0.2 * max(3, len(rows)))
    for row, (_, letters) in enumerate(rows):
        for p, letter in enumerate(letters):
            if letter in colours:
                ax.barh([row], [0.9], left=[p - 0.45], height=0.9, color=colours[letter])
                dark = letter == "A"
                ax.text(p, row, letter, ha="center", va="center", fontsize=7, color="white" if dark else "black")
    ax.axhline(len(marks.kernels) - 0.5, color="black", linewidth=0.8)
    ax.set_yticks(range(len(rows)), names)
    ax.set(xlim=(-0.6, marks.partitions - 0.4), ylim=(len(rows) - 0.4, -0.6), xlabel="partition")
    step = max(1, marks.partitions // 20)
    ax.set_xticks(range(0, marks.partitions, step))
    title = f"Kernels and tensors in partitions: the matrices A, B, D, L, H of DFModel, stage {stage}\n{about(result)}"
    if left_out > 0:
        title += f"\n{left_out} tensors more are left out; dfopt show RESULT --matrices lists all"
    head(
        ax, title, [Patch(facecolor=colours[letter], label=f"{letter}: {meaning}") for letter, meaning in MARKS.items()]
    )
    return ax
