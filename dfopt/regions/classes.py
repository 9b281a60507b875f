"""Plans that read alike: a layer costs a chip the same under all of them, whatever the options of its kernels are.

Suffixes: i plan, k kernel of the graph or kind of layer, o option of all kernels, v vector of options, c column of
amounts, h what a layer holds, a arc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import Clock
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import StageTables
from dfopt.regions.arcs import Arcs, lots
from dfopt.regions.cuts import Cuts
from dfopt.regions.factors import OF_SECONDS
from dfopt.regions.numbering import Numbering
from dfopt.regions.passes import least_passes, seconds_of
from dfopt.regions.plan_group import PlanGroup
from dfopt.setting.reads import memoized
from dfopt.solving.passes import least_of_stages
from dfopt.terms.blocks import IN_PARTS, BlockPrices, Blocks
from dfopt.terms.bounds.cut_stages import CutStages
from dfopt.terms.bounds.holding import Holding
from dfopt.terms.bounds.moving import Moving
from dfopt.terms.bounds.passes import PassRule, PassSeconds
from dfopt.terms.bounds.steps import StepBounds
from dfopt.terms.bounds.transfers import OptionFigures, Transfers
from dfopt.terms.chip import ChipModel
from dfopt.terms.incidence import Open, counts
from dfopt.terms.rules import HELD
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.table import Domain, Table
from dfopt.terms.token_blocks import token_rows

if TYPE_CHECKING:
    from dfopt.regions.piece_prices import PassPieces

_KEPT = 48
"""Sets of blocks whose incidences are kept: those of the regions that were looked at last."""


@dataclass(frozen=True, eq=False)
class PlanClass(PlanGroup):
    """A class of plans that share one table of charges, with the same number of tiles.

    Attributes
    ----------
    arcs_k : tuple of Arcs
        Lattice of each kind of layer.
    numbering_k : tuple of Numbering
        Numbers of partitions of each kind of layer.
    cuts : Cuts, optional
        Possible cuts into pipeline stages, for an unrolled graph if all plans have several stages.
    """

    arcs_k: tuple[Arcs, ...]
    numbering_k: tuple[Numbering, ...]
    cuts: Cuts | None = None

    @property
    def steps(self) -> StepBounds:
        """Bounds on the step under each plan of the class."""
        return self.table_of_plans.steps

    @cached_property
    def cut_stages(self) -> CutStages:
        """Times and memory of the pipeline stages between any two cuts."""
        assert self.cuts is not None
        return CutStages(self.steps, self.layer, self.cuts.set_uk)

    @property
    def holding(self) -> Holding:
        """Memory model: what stages store under each plan."""
        return self.table_of_plans.holding

    @property
    def moving(self) -> Moving:
        """Traffic of slower memories in addition to that of layers."""
        return self.table_of_plans.moving

    @memoized
    def alone(self, plan: int) -> PlanClass:
        """The class restricted to one plan."""
        return replace(self, table_of_plans=self.table_of_plans.of_some([plan]))

    @property
    def complete(self) -> bool:
        """Whether the lattices list every block that a mapping may use."""
        return all(arcs.complete for arcs in self.arcs_k)

    @property
    def table(self) -> Table:
        """Table of all charges of the layer."""
        return self.menu.priced(self.tiles)[1]

    @cached_property
    def table_of_blocks(self) -> Table:
        """The charges that decide lower bounds of blocks, for any set of blocks."""
        return self.table.of_resources(frozenset({*OF_SECONDS, *IN_PARTS, "legal"}))

    @cached_property
    def kind_k(self) -> Ints:
        """Kind of layer of every kernel: int array, shape (kernels,)."""
        return self.table_of_plans.kind_k

    @property
    def kinds(self) -> int:
        """Number of kinds of layers."""
        return len(self.arcs_k)

    # -- blocks -------------------------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> Callable[[Arcs, ChipModel], Blocks]:
        """Function that builds the blocks of some arcs with the charges of the layer; it caches the latest ones."""
        table, latency_l, rows = self.table, self.layer.latency_l, token_rows(self.layer)
        return lru_cache(_KEPT)(lambda arcs, chip: Blocks(table, chip, arcs.member_bk, latency_l, rows, arcs.counting))

    def least_prices(self, arcs: Arcs, amount_vc: Floats) -> Floats:
        """Lower bound on the seconds of every block with these charge amounts or more; infinite where it never fits.

        Float array, shape (vectors, blocks).
        """
        return seconds_of(self.least_block_prices(arcs, amount_vc))

    def least_paths(self, arcs: Arcs, amount_vc: Floats) -> Floats:
        """Lower bound on the seconds of a layer with these charge amounts or more: shape (vectors,).

        Some vectors at a time, as prices of all blocks under all vectors may take gigabytes.
        """
        some = (amount_vc[part] for part in lots(len(amount_vc), len(arcs.member_bk)))
        return np.concatenate([arcs.distances(self.least_prices(arcs, lot_vc))[:, -1] for lot_vc in some])

    def prices(self, arcs: Arcs, amount_vc: Floats) -> Floats:
        """Seconds of every block, infinite where it does not fit the chip: shape (vectors, blocks)."""
        return seconds_of(self.block_prices(arcs, amount_vc))

    def block_prices(self, arcs: Arcs, amount_vc: Floats) -> BlockPrices:
        """Prices of every block under given amounts of charges, with the seconds of each resource."""
        return self.blocks(arcs, self.chip).prices(amount_vc)

    def least_block_prices(self, arcs: Arcs, amount_vc: Floats) -> BlockPrices:
        """Lower bounds on block prices with these amounts or more, each resource in the way that takes least of it."""
        return self.blocks(arcs, self.chip.rising).least(amount_vc)

    @property
    def by_layers(self) -> bool:
        """Whether the step depends on layer seconds alone, or every layer has only one path."""
        if self.plans[0].two_batch_overlap:
            return False
        return self.by_pass is None or all(arcs.only_path for arcs in self.arcs_k)

    @cached_property
    def by_pass(self) -> PassRule | None:
        """How blocks count in the two passes of a layer; None where a step does not distinguish passes."""
        hides, moves = self.steps.messages.hides, self.moving.any
        return PassRule(self.setting, hides, moves) if hides or moves else None

    def least_passes(
        self, arcs_k: Sequence[Arcs], priced_k: Sequence[BlockPrices], domain: Domain
    ) -> PassSeconds | None:
        """Lower bounds on the passes of every kind of layer, s, for one vector; None where passes make no difference.

        Parameters
        ----------
        arcs_k, priced_k : sequences of Arcs and BlockPrices
            Blocks that are left, and their prices at least.
        domain : Domain
            Options that are left.
        """
        if (rule := self.by_pass) is None:
            return None
        of_kinds = [
            least_passes(rule, [arcs], [priced]) if arcs.complete else self._unlisted_passes(kind, domain)
            for kind, (arcs, priced) in enumerate(zip(arcs_k, priced_k, strict=True))
        ]
        return PassSeconds(*map(np.concatenate, zip(*of_kinds, strict=True)))

    def _unlisted_passes(self, kind: int, domain: Domain) -> PassSeconds:
        """The same of one kind of layer, whatever its blocks are."""
        try:
            tables = self.stage(kind, domain)
        except Infeasible:  # no member of a region fits, which its other bounds show
            return PassSeconds(*np.zeros((6, 1, 1, 1)))
        return least_of_stages([(tables, self.numbering_k[kind].limits)], self.instance(0))

    # -- what a layer holds and sends ---------------------------------------------------------------------------------

    @cached_property
    def _held_columns(self) -> list[tuple[int, Ints, Ints]]:
        """Kernels whose options decide what is held, by place in HELD, and the column of amounts of each."""
        held_columns = []
        for h, name in enumerate(HELD):
            if name in self.table.of_resource:
                places, columns = self.table.of_resource[name]
                kernels = [kernel for c in places.tolist() for kernel in self.table.charges[c].scope]
                held_columns.append((h, np.array(kernels), columns[:, 0]))
        return held_columns

    def held(self, amount_vc: Floats) -> Floats:
        """What a layer stores, from charge amounts: shape (HELD, kinds, 1, vectors); the same under all plans."""
        held_hkgv = np.zeros((len(HELD), self.kinds, 1, len(amount_vc)))
        for h, kernels, columns in self._held_columns:
            for kind in range(self.kinds):
                held_hkgv[h, kind, 0] = amount_vc[:, columns[self.kind_k[kernels] == kind]].sum(axis=1)
        return held_hkgv

    def sent_by_option(self, kernel: int) -> Floats | None:
        """Seconds of messages of a kernel in an unrolled graph to other stages, by option: shape (options, any)."""
        if self.cuts is None:
            return None
        first, size = int(self.first_k[kernel]), self.table.sizes_k[kernel]
        return self.cut_stages.sent_by_option(kernel, self.menu.figures.output_o[first : first + size])

    def held_by_kernel(self, amount_vc: Floats) -> Floats:
        """What every kernel stores, from charge amounts: shape (vectors, HELD, kernels)."""
        held_vhk = np.zeros((len(amount_vc), len(HELD), len(self.kind_k)))
        for h, kernels, columns in self._held_columns:
            np.add.at(held_vhk[:, h].T, kernels, amount_vc[:, columns].T)
        return held_vhk

    @cached_property
    def held_ho(self) -> Floats:
        """What a layer stores under each option of the menu: float array, shape (HELD, options)."""
        return np.array([np.concatenate(self.table.of_options(name)) for name in HELD])

    @cached_property
    def kind_o(self) -> Ints:
        """Kind of layer of the kernel of each menu option: int array, shape (options,)."""
        return np.repeat(self.kind_k, self.table.sizes_k)

    @property
    def first_k(self) -> Ints:
        """Index of the first menu option of each kernel: int array, shape (kernels,)."""
        return self.menu.figures.first_k

    def room(self, amount_vc: Floats, slack: float = 0.0) -> Floats:
        """Bytes left for tensors waiting between partitions: shape (kinds, plans, vectors); :meth:`Holding.room`."""
        return self.holding.room(self.held(amount_vc), slack)

    @cached_property
    def sharing_ko(self) -> tuple[Bools, ...] | None:
        """By kernel, the options whose chips share the rows of a tile; at least one kernel must use one of them.

        Only options that share rows need tiles of that size. None: the number of tiles suits all options.
        """
        if self.tiles in tile_counts(self.setting.graph, self.setting.assumptions):
            return None
        return self.layer.shares_rows_ko

    def are_tiled_so(self, option_vk: Ints) -> Bools:
        """Whether this number of tiles is right for each vector of options: bool array, shape (vectors,)."""
        if self.sharing_ko is None:
            return np.ones(len(option_vk), dtype=bool)
        return np.asarray(np.any([of_k[option_vk[:, k]] for k, of_k in enumerate(self.sharing_ko)], axis=0))

    def stage(self, kind: int, domain: Domain) -> StageTables:
        """The stage tables of a kind of layer, with every figure at its least over the remaining options.

        With one option left for each kernel the figures are exact; with more they are lower bounds.

        Raises
        ------
        Infeasible
            If a kernel does not fit the chip, even alone.
        """
        return self.stage_of(np.flatnonzero(self.kind_k == kind).astype(np.int64), domain)

    def illegal(self, amount_vc: Floats) -> Floats:
        """Infinite for vectors whose options exclude each other, else 0: float array, shape (vectors,)."""
        return self.table.totals(amount_vc, "legal")

    def passes(self, kind: int, clock: Clock) -> tuple[PassPieces, ...]:
        """The passes of a kind of layer that share no block, each cut into pieces; empty where pieces do not add up."""
        from dfopt.fusion.pieces import TooWide, pieces_of  # not for those who never ask
        from dfopt.regions.piece_prices import PassPieces

        if kind not in self._passes:
            members, limits = np.flatnonzero(self.kind_k == kind).astype(np.int64), self.numbering_k[kind].limits
            try:
                stage = self.stage(kind, self.domain)
                counted = limits.are_counted(stage.kernels, stage.sharded.forward_k)
                parts = [] if counted else pieces_of(stage, limits, clock)
            except (TooWide, Infeasible):
                parts = []
            self._passes[kind] = tuple(PassPieces(members[few], len(self.kind_k), pieces) for few, pieces in parts)
        return self._passes[kind]

    @cached_property
    def _passes(self) -> dict[int, tuple[PassPieces, ...]]:
        return {}

    @property
    def monotone(self) -> bool:
        """Whether the step never falls when any seconds or bytes of a layer grow, under every plan.

        Where slower memories move anything, a block that takes its tokens in blocks may be faster and yet have its
        layer wait longer, as it reads its weights again.
        """
        rule, in_blocks = self.by_pass, token_rows(self.layer) is not None
        waits = rule is not None and (rule.waits_count or (rule.moves and in_blocks))
        return self.steps.exposed.monotone and not waits

    def beside_of(self, option_vk: Ints, amount_vc: Floats) -> Transfers:
        """Seconds of transfers in addition to the layers, under given options of all kernels, without passes."""
        return self._beside_layers(self.figures_of(option_vk), amount_vc)

    def least_beside(self, domain: Domain, least_c: Floats) -> Transfers:
        """Lower bound on the seconds of transfers in addition to the layers, over remaining options, without passes."""
        return self._beside_layers(self.least_figures(domain), least_c[None])

    def _beside_layers(self, of: OptionFigures, amount_vc: Floats) -> Transfers:
        messages = self.steps.messages.of(of)
        return messages._replace(moving=self.moving.seconds(self.held(amount_vc))) if self.moving.any else messages

    def least_figures(self, domain: Domain) -> OptionFigures:
        """Lower bounds on what kernels send and exchange, over the remaining options, as one vector."""
        figures = self.menu.figures
        o_k = [first + np.array(left) for first, left in zip(self.first_k.tolist(), domain, strict=True)]
        used = figures.output_o, figures.gradient_o, figures.weight_o
        output_vk, gradient_vk, weight_vk = np.array([[[figure_o[o].min() for o in o_k]] for figure_o in used])
        return OptionFigures(output_vk, gradient_vk, weight_vk, least=True)

    def figures_of(self, option_vk: Ints) -> OptionFigures:
        """Output shares and bytes of gradients and weights of kernels under given options."""
        figures, o_vk = self.menu.figures, option_vk + self.first_k
        return OptionFigures(figures.output_o[o_vk], figures.gradient_o[o_vk], figures.weight_o[o_vk], least=False)

    # -- what waits between partitions --------------------------------------------------------------------------------

    @cached_property
    def _waiting(self) -> tuple[Ints, tuple[Open, ...]]:
        """Columns of what may wait, and the tensors."""
        if "waiting_bytes" not in self.table.of_resource:
            return np.zeros(0, dtype=np.int64), ()
        places, columns = self.table.of_resource["waiting_bytes"]
        incidences = [self.table.charges[c].incidence for c in places.tolist()]
        return columns[:, 0], tuple(each for each in incidences if isinstance(each, Open))

    def waiting(self, arcs: Arcs, amount_c: Floats) -> Floats:
        """Bytes that wait in DRAM while the block of each arc runs: float array, shape (arcs,).

        These are tensors of earlier blocks that have a reader to come, and outputs of the block for later ones:
        :class:`Open`.
        """
        before_j, made_b = self._waiting_parts(arcs, amount_c)
        return np.asarray(before_j.take(arcs.before_a) + made_b.take(arcs.block_a))

    def most_waiting(self, arcs: Arcs, amount_c: Floats) -> float:
        """Upper bound on the bytes that wait at any arc; cheaper than :meth:`waiting`."""
        return float(sum(part.max() for part in self._waiting_parts(arcs, amount_c)))

    def _waiting_parts(self, arcs: Arcs, amount_c: Floats) -> tuple[Floats, Floats]:
        """Bytes that wait behind each down-set, and those that each block makes for others."""
        columns, tensors = self._waiting
        both = arcs.counting_of_sets, arcs.counting
        [before_j], [made_b] = (counting.block_totals(tensors, amount_c[columns][None]) for counting in both)
        return before_j, made_b

    def least_waiting(self, kind: int, least_c: Floats) -> float:
        """Lower bound on the peak of bytes waiting between the partitions of a kind of layer, over all partitionings.

        Infinite: no blocks fit the chip. 0 where not all of them are listed. ``least_c``: amounts of all charges.
        """
        arcs = self.arcs_k[kind]
        if not arcs.complete:
            return 0.0
        fits_b = np.isfinite(self.least_prices(arcs, least_c[None])[0])
        return arcs.least_peak(np.where(fits_b[arcs.block_a], self.waiting(arcs, least_c), np.inf))

    def waiting_inside(self, arcs: Arcs, amount_c: Floats, inside_k: Bools) -> Floats:
        """Bytes that wait at each arc of one pipeline stage: outputs wait until its end, inputs from its beginning.

        ``arcs``: lattice of the stage's kernels; ``amount_c``: amounts of all charges; ``inside_k``: its mask.
        """
        columns, tensors = self._waiting
        if not tensors:
            return np.zeros(len(arcs.before_a))
        outside_t = ~inside_k[[each.source for each in tensors]]
        before_jt = counts(tensors, arcs.set_jk) + outside_t * counts(tensors, arcs.set_jk | ~inside_k)
        waiting_at = before_jt[arcs.before_a] + counts(tensors, arcs.member_bk[arcs.block_a])
        return np.asarray(waiting_at @ amount_c[columns])
