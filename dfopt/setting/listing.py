"""Which of the plans that a request leaves free are listed: all, or those that are worth a look before all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dfopt.documents.modules import Modules
from dfopt.setting.shares import Shared

__all__ = ["Listing"]


@dataclass(frozen=True)
class Listing:
    """A part of the plans, and what may end their listing; by default all, in any time.

    Attributes
    ----------
    check_time
        Called again and again, so that it may end what takes too long by an exception.
    share_outs
        Whether plans are listed under which axes have these dims, or parts of dims.
    modules
        Whether modules have such schemes over the second axis; where none are accepted, all are.
    """

    check_time: Callable[[], None] = lambda: None
    share_outs: Callable[[Shared], bool] = lambda shared: True
    modules: Callable[[Modules], bool] = lambda modules: True

    def shared(self, shared: Shared) -> bool:
        """Whether plans are listed with the dims of their axes."""
        self.check_time()
        return self.share_outs(shared)

    def picked(self, menu: list[Modules | None]) -> list[Modules | None]:
        """Those of some schemes of all modules under which plans are listed."""
        return [each for each in menu if each is None or self.modules(each)] or menu
