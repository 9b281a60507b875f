"""Which of the plans that a request leaves free are listed: all, or those that are worth a look before all others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from dfopt.documents.axes import AXES
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
from dfopt.setting.shares import AxisDims


@dataclass(frozen=True)
class PlanListing:
    """Restricts which plans are listed, and may end the listing; by default it allows all plans and any time.

    Attributes
    ----------
    check_time
        Called frequently; it may end a long listing by an exception.
    share_outs
        Whether plans are listed under which axes have these dims, or parts of dims.
    modules
        Whether modules may have given schemes over the second axis; if none are accepted, all are listed.
    plans
        Cache of plans by degrees and dims, shared by all listings of one question: its graphs have most plans in
        common, and a plan object caches facts about itself.
    """

    check_time: Callable[[], None] = lambda: None
    share_outs: Callable[[AxisDims], bool] = lambda shared: True
    modules: Callable[[Modules], bool] = lambda modules: True
    plans: dict[Hashable, Plan] = field(default_factory=dict)

    def shared(self, shared: AxisDims) -> bool:
        """Whether to list plans with these dims of the axes."""
        self.check_time()
        return self.share_outs(shared)

    def on_axes(self, degree: Mapping[str, int], order: AxisDims) -> Plan:
        """The plan with these degrees of the axes, along these dims in order."""
        axes = *degree.items(), *order.items()
        if axes not in self.plans:
            plan = Plan(**degree, **{AXES[axis].dims_key: names for axis, names in order.items()})
            self.plans[axes] = plan.with_extra()
        return self.plans[axes]

    def picked(self, menu: list[Modules | None]) -> list[Modules | None]:
        """Entries of a menu of module schemes under which plans are listed: the accepted ones, or else all."""
        return [each for each in menu if each is None or self.modules(each)] or menu
