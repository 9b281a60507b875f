"""DRAM channels like those of another stack, at another rate and with other energies."""

from __future__ import annotations

from dfopt.documents.stack_dram import DramEnergies, DramStack


def like_rate(like: DramStack, channels: int, peak: float, energy: float, flowing: float) -> DramStack:
    """DRAM with channels like those of another stack, scaled to ``peak`` B/s in total.

    Timings of column commands scale with the clock of the connections; those inside a bank stay.

    Parameters
    ----------
    like
        The DRAM whose timings and proportions of energies they have.
    channels
        Number of channels.
    peak
        Total bandwidth of all channels, B/s.
    energy
        J for a byte that is read in order, from the bank to the logic die.
    flowing
        W of one channel that flow all the time, refresh included.
    """
    clock = channels * like.burst / like.timings.tBL / peak
    timings, old = like.timings, like.energies
    column = {name: getattr(timings, name) * clock for name in ("tCK", "tBL", "tCCD_S", "tCCD_L")}
    read = old.activate / like.row + old.read_burst / like.burst + old.io
    flows = old.background + old.refresh / timings.tREFI
    energies = old.model_copy(
        update={
            # of a stack that says no energies the interface has all of it, and the background
            **_scaled(old, ("activate", "read_burst", "write_burst", "io"), energy, read, "io"),
            **_scaled(old, ("background", "refresh"), flowing, flows, "background"),
        }
    )
    return like.model_copy(
        update={"channels": channels, "timings": timings.model_copy(update=column), "energies": energies}
    )


def _scaled(old: DramEnergies, names: tuple[str, ...], wanted: float, sum_: float, only: str) -> dict[str, float]:
    """Energies in proportion, such that their sum is what is wanted."""
    return {name: getattr(old, name) * wanted / sum_ for name in names} if sum_ > 0 else {only: wanted}
