"""What a block costs beside its relaxed price, for every choice of schemes in it that may matter: its cells.

Kernels of a block are given schemes one by one. Of the partial choices that look alike to everything still to come,
only those stay that no other one beats in time and SRAM. What the rest of the stage sees of a choice are the codes of
tracked groups that reach beyond the block (:mod:`dfopt.joint.couplings`); any other group that does is taken at its
cheapest, as if the block could choose what happens outside.

A kernel whose weight does not fit whole is alone. Where blocks hold tensors in SRAM those with it do not fit either; a
library's kernels do not, so there every kernel that may be too large is looked at by itself.

A time is the largest of some *terms*, each a sum over kernels and groups: which, the overlap assumption says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dfopt.bnb import OutOfTime
from dfopt.joint.choices import (
    ACCESS,
    AGAIN,
    DRAM,
    FIGURES,
    NETWORK,
    OUTPUTS,
    SRAM,
    TOKEN_FIGURE,
    TOKENS,
    Choices,
)
from dfopt.joint.couplings import SETS, Group
from dfopt.joint.relaxed_blocks import Relaxed, by_tokens, terms_of
from dfopt.terms.chip import Chip
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.token_blocks import TokenRows

_MOST = 1_000_000  # partial choices of a block: more take minutes
_MANY = 48  # rows: fewer are not worth thinning on the way


@dataclass(frozen=True, eq=False)
class Cells:
    """Choices within a block that may matter.

    Attributes
    ----------
    terms, sram : float, shape (cells, terms) and (cells,)
        What they add to the relaxed price of a block that holds its weights.
    plain, tokens : float, shape (cells, terms) and (cells, sums)
        What they add to that of one that takes its tokens in blocks, see :class:`~dfopt.joint.relaxed_blocks.Relaxed`.
    token_rows : TokenRows, optional
        What blocks of tokens are cut from, if there may be any.
    start_i : int
        First cell of each interface: cells are sorted by what the outside sees of them.
    groups : tuple of int
        Tracked groups that the outside sees.
    codes_ig : int
        Their code for each interface, ``SETS * (classes + 1)`` higher where their source is elsewhere.
    scheme_ck : dict of int arrays
        Scheme of each relevant kernel of the block.
    """

    terms: Floats
    sram: Floats
    plain: Floats
    tokens: Floats
    token_rows: TokenRows | None
    start_i: Ints
    groups: tuple[int, ...]
    codes_ig: Ints
    scheme_ck: dict[int, Ints]

    def seconds(self, relaxed: Relaxed, chip: Chip) -> Floats:
        """Seconds of blocks under every cell, in the better way; infinite where they fit in none."""
        held = (relaxed.terms[:, None, :] + self.terms[None, :, :]).max(axis=2)
        held = np.where(relaxed.sram[:, None] + self.sram[None, :] <= chip.sram * (1 + 1e-9), held, np.inf)
        if self.token_rows is None:
            return held
        return np.minimum(held, by_tokens(relaxed, self.plain, self.tokens, chip, self.token_rows))

    def least(self, relaxed: Relaxed, chip: Chip) -> Floats:
        """The same for the best cell of every interface."""
        return np.asarray(np.minimum.reduceat(self.seconds(relaxed, chip), self.start_i, axis=1))


def outer_code(group: Group) -> int:
    """What is added to the code of a group where a block reads it and does not make it."""
    return SETS * (group.classes + 1)


_Step = tuple[int, tuple[int, ...], tuple[tuple[int, bool, bytes], ...]]
"""A kernel, the groups that it is the first to touch, and those it is the last to: tracked or not, what is inside."""


@dataclass
class _Partial:
    """Partial choices as rows: figures, codes of groups under way, codes for the outside, schemes.

    ``alone``: SRAM bytes that kernels would need alone, of those that may be too large for it. ``plain``: figures of
    whole choices without what is moved again because a weight is in parts.
    """

    figures: Floats
    codes: dict[int, Ints] = field(default_factory=dict)
    seen: dict[int, Ints] = field(default_factory=dict)
    schemes: dict[int, Ints] = field(default_factory=dict)
    alone: dict[int, Floats] = field(default_factory=dict)
    plain: Floats | None = None

    def copy(self) -> _Partial:
        parts = dict(self.codes), dict(self.seen), dict(self.schemes), dict(self.alone)
        return _Partial(self.figures, *parts, self.plain)

    def take(self, rows: Ints) -> None:
        self.figures = self.figures[rows]
        self.plain = None if self.plain is None else self.plain[rows]
        for part in (self.codes, self.seen, self.schemes):
            for key in part:
                part[key] = part[key][rows]
        self.alone = {k: sram[rows] for k, sram in self.alone.items()}

    def times(self, count: int) -> Ints:
        """Every row with each of some options; the number of the option in each row."""
        rows = len(self.figures)
        if rows * count > _MOST:
            raise OutOfTime
        self.take(np.repeat(np.arange(rows), count))
        return np.tile(np.arange(count), rows)


class CellBook:
    """Works out cells of blocks, each partial choice once for all blocks that begin with the same kernels.

    Parameters
    ----------
    choices : Choices
        The stage.
    heavy : dict of float, optional
        Kernels that some schemes make too large for the SRAM alone while a block with them may fit: what they need
        alone at least.
    """

    def __init__(self, choices: Choices, heavy: dict[int, float] | None = None) -> None:
        self.choices, self.heavy = choices, heavy or {}
        self._known: dict[tuple[object, ...], tuple[int, _Partial]] = {}

    def cells(
        self, inside: Bools, tracked: frozenset[int], *, ample: bool = False, whole: Floats | None = None
    ) -> Cells:
        """The cells of a block.

        Parameters
        ----------
        inside : bool array
            Kernels of the block.
        tracked : set of int
            Groups about which blocks have to agree.
        ample : bool
            Whether the block fits SRAM whatever its schemes are, see :meth:`Choices.most_sram`.
        whole : float array, optional
            Of a block of one kernel whose weight may have to be cut into parts: its relaxed figures with the weight
            in one.
        """
        alone = whole is not None
        at, partial = int(ample) + 2 * int(alone), _Partial(np.zeros((1, FIGURES)))
        for step in self._steps(inside, tracked):
            if (at, step) not in self._known:
                # numbers below 4 are the empty choices, one for each way to look at SRAM
                self._known[at, step] = 4 + len(self._known), self._after(partial, step, inside, ample, alone)
            at, partial = self._known[at, step]
        partial = partial.copy()
        if whole is not None:
            _in_parts(self.choices, int(np.flatnonzero(inside)[0]), partial, whole)
        else:
            partial.plain = partial.figures
            _thin(partial, self.choices.chip)
        return _sorted(partial, self.choices)

    def _steps(self, inside: Bools, tracked: frozenset[int]) -> list[_Step]:
        """Kernels of a block in order, with the groups that each is the first and the last to touch."""
        choices = self.choices
        block = np.flatnonzero(inside & choices.relevant_k)
        block = block[np.argsort(choices.order_k[block])]
        last = {g: k for k in block.tolist() for g in choices.of_k[k]}
        met: set[int] = set()
        found = []
        for k in block.tolist():
            new = [g for g in choices.of_k[k] if g not in met]
            met.update(new)
            # a group that is made elsewhere, and not tracked, is at its smallest, as in the relaxed price
            own = (g for g in new if inside[choices.groups[g].src] or choices.groups[g].toll_r is not None)
            opened = tuple({*own, *(g for g in new if g in tracked)})
            closed = tuple(
                (g, g in tracked, inside[choices.touches_g[g]].tobytes()) for g in choices.of_k[k] if last[g] == k
            )
            found.append((k, opened, closed))
        return found

    def _after(self, before: _Partial, step: _Step, inside: Bools, ample: bool, alone: bool) -> _Partial:
        """Partial choices with one kernel more."""
        (k, opened, closed), choices = step, self.choices
        partial = before.copy()
        figures = choices.figures_kz[k]
        for g in opened:
            partial.codes[g] = np.full(len(partial.figures), choices.groups[g].classes * SETS)
        option = partial.times(len(figures))
        partial.figures = partial.figures + figures[option]
        partial.schemes[k] = option.astype(np.int8)
        if k in self.heavy and not alone:
            partial.alone[k] = self.heavy[k] + figures[option, SRAM]
        for g in choices.of_k[k]:
            if g in partial.codes:
                _look(choices.groups[g], k, option, partial, g)
        for g, tracked, _ in closed:
            if g in partial.codes:
                _close(choices.groups[g], g, inside, tracked, partial, choices.chip)
        for one in list(partial.alone):
            partial.take(np.flatnonzero(partial.alone[one] <= choices.chip.sram * (1 + 1e-12)))
            if not partial.codes.keys() & choices.of_k[one]:  # that is all that it needs
                del partial.alone[one]
        if ample:
            partial.figures[:, SRAM] = 0.0
        if not alone and len(partial.figures) >= _MANY:
            _thin(partial, choices.chip)
        return partial


def _look(group: Group, k: int, option: Ints, partial: _Partial, g: int) -> None:
    """Note what a kernel's scheme says about a group that it makes or reads."""
    code = partial.codes[g]
    if group.src == k:
        code = group.class_z[option] * SETS + code % SETS
    for kernel, _, asks_z in group.readers:
        if kernel == k:
            code = code | asks_z[option]
    partial.codes[g] = code


def _close(group: Group, g: int, inside: Bools, tracked: bool, partial: _Partial, chip: Chip) -> None:
    """Charge a group once nothing more in the block touches it."""
    source, away = bool(inside[group.src]), group.read_outside(inside)
    code = partial.codes.pop(g)
    if (
        group.toll_r is not None and not source and not tracked
    ):  # made elsewhere, in whichever way is best for this block
        asked = code % SETS
        partial.figures[:, NETWORK] += group.seconds_ca[:, asked].min(axis=0) - _toll(group, inside)
        return
    if not source and group.classes > 1:
        option = partial.times(group.classes)
        code = np.repeat(code, group.classes) % SETS + option * SETS
    elif not source:
        code = code % SETS
    cls, asked = code // SETS, code % SETS
    more = group.full * (group.share_c - group.share_c.min())[cls]
    _move(group, more, inside, partial.figures, chip)
    for k in partial.alone.keys() & group.kernels():
        figures = np.zeros_like(partial.figures)
        _move(group, more, np.arange(len(inside)) == k, figures, chip)
        partial.alone[k] = partial.alone[k] + figures[:, SRAM]
    asked = group.asked_ca[cls, asked]
    if group.toll_r is not None:
        partial.figures[:, NETWORK] += group.seconds_ca[cls, asked] - _toll(group, inside)
        asked = np.zeros_like(asked)
    elif source and away and tracked:  # a choice for every set of layouts that those outside may rely on
        promises = np.array(group.unions(inside))
        option = partial.times(len(promises))
        cls, asked = np.repeat(cls, len(promises)), np.repeat(asked, len(promises))
        asked = group.asked_ca[cls, asked | promises[option]]
    if group.toll_r is None and source and away and not tracked:
        relied = group.unions(inside)
        partial.figures[:, NETWORK] += np.min([group.seconds_ca[cls, asked | one] for one in relied], axis=0)
    elif group.toll_r is None and source:
        partial.figures[:, NETWORK] += group.seconds_ca[cls, asked]
    if tracked and (away or not source):
        partial.seen[g] = cls * SETS + asked + (0 if source else outer_code(group))


def _toll(group: Group, inside: Bools) -> float:
    """What the relaxed price of a block holds of a group that its readers pay for."""
    assert group.toll_r is not None
    here = [toll for (kernel, _, _), toll in zip(group.readers, group.toll_r, strict=True) if inside[kernel]]
    return float(max(here, default=0.0))


def _move(group: Group, more: Floats, inside: Bools, figures: Floats, chip: Chip) -> None:
    """DRAM and SRAM bytes for what a class is larger than the smallest."""
    here = [(kernel, depth) for kernel, depth, _ in group.readers if inside[kernel]]
    source, tile = bool(inside[group.src]), group.tile * more
    figures[:, ACCESS] += (source + len({kernel for kernel, _ in here})) * more / chip.sram_bandwidth
    if group.carried:
        ends = source + len(here)
        figures[:, DRAM] += ends * more
        figures[:, SRAM] += 2.0 * ends * tile
        figures[:, AGAIN] += len(here) * more
        _pay_by_tokens(group, more, inside, figures)
        return
    crosses = group.read_outside(inside) if source else True
    figures[:, DRAM] += crosses * group.moved * more
    figures[:, SRAM] += 2.0 * crosses * tile
    if source and here:
        figures[:, SRAM] += max(depth for _, depth in here) * tile
    if source:
        figures[:, OUTPUTS] += 2.0 * tile
    figures[:, AGAIN] += (bool(here) + (source and chip.writes_again)) * more
    _pay_by_tokens(group, more, inside, figures)


def _pay_by_tokens(group: Group, more: Floats, inside: Bools, figures: Floats) -> None:
    """What a block pays for it if it takes its tokens in blocks."""
    for resource, paid in group.paid_by_tokens(inside):
        figures[:, TOKEN_FIGURE[resource]] += paid * more


def _in_parts(choices: Choices, k: int, partial: _Partial, whole: Floats) -> None:
    """A kernel alone whose weight does not fit beside its buffers is run in parts, see `stage_tables`."""
    chip = choices.chip
    partial.plain = partial.figures
    figures = partial.figures = partial.figures.copy()
    stationary = choices.stationary_kz[k][partial.schemes[k]]
    sram = whole[SRAM] + figures[:, SRAM]
    cut = stationary + whole[OUTPUTS] + figures[:, OUTPUTS]
    buffers = sram - cut
    cuttable = (stationary > 0) & chip.cuts_weights
    short = (sram > chip.sram * (1 + 1e-12)) & (cuttable | (not chip.library))
    hopeless = short & (~cuttable | (buffers >= chip.sram))
    room = np.where(short & ~hopeless, chip.sram - buffers, 1.0)
    parts = np.where(short & ~hopeless, np.ceil(cut / room - 1e-12), 1.0)
    if chip.reads_again:
        figures[:, DRAM] += (parts - 1) * (whole[AGAIN] + figures[:, AGAIN])
    figures[:, SRAM] += np.where(parts > 1, cut / parts - cut, 0.0)
    if choices.token_rows is None:
        partial.take(np.flatnonzero(~hopeless))
    else:  # they may fit in blocks of tokens
        figures[hopeless, SRAM] = np.inf


def code_of(parts: Iterator[Ints], rows: int) -> Ints:
    """One number for each combination of codes."""
    found = np.zeros(rows, dtype=np.int64)
    for code in parts:
        most = int(code.max(initial=0)) + 1
        found = found * most + code
        if found.max(initial=0) > 1 << 40:
            found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found


def _thin(partial: _Partial, chip: Chip) -> None:
    """Drop rows that another one with the same codes beats in every term and in SRAM.

    Each round compares with one champion per combination of codes, under another order: some that are beaten may stay.
    """
    if len(partial.figures) < 2:
        return
    codes = code_of(iter((*partial.codes.values(), *partial.seen.values())), len(partial.figures))
    sram = np.stack([*partial.alone.values(), partial.figures[:, SRAM]], axis=1)
    marks = np.concatenate([terms_of(partial.figures, chip), partial.figures[:, TOKENS], sram], axis=1)
    keep = np.arange(len(codes))
    for first in (None, *range(marks.shape[1])):
        sorting = marks[keep].sum(axis=1) if first is None else marks[keep, first]
        order = np.lexsort((marks[keep, -1], marks[keep].sum(axis=1), sorting, codes[keep]))
        rows = keep[order]
        starts = np.append(True, codes[rows][1:] != codes[rows][:-1])
        champion = rows[starts][np.cumsum(starts) - 1]
        beaten = (marks[champion] <= marks[rows]).all(axis=1) & (champion != rows)
        keep = np.sort(rows[~beaten])
        if len(keep) == starts.sum():
            break
    if len(keep) < len(codes):
        partial.take(keep)


def _sorted(partial: _Partial, choices: Choices) -> Cells:
    """Rows by what the outside sees of them."""
    assert partial.plain is not None  # choices of a whole block have it
    groups = tuple(partial.seen)
    rows = len(partial.figures)
    code = code_of(iter(partial.seen.values()), rows)
    order = np.argsort(code, kind="stable")
    partial.take(order)
    start = np.flatnonzero(np.append(True, np.diff(code[order]) != 0)) if rows else np.zeros(0, dtype=np.int64)
    codes = [partial.seen[g][start] for g in groups]
    return Cells(
        terms=terms_of(partial.figures, choices.chip),
        sram=partial.figures[:, SRAM],
        plain=terms_of(partial.plain, choices.chip),
        tokens=partial.plain[:, TOKENS],
        token_rows=choices.token_rows,
        start_i=start.astype(np.int64),
        groups=groups,
        codes_ig=np.stack(codes, axis=1) if groups else np.zeros((len(start), 0), dtype=np.int64),
        scheme_ck=partial.schemes,
    )
