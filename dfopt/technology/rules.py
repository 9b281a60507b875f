"""Which habits of DeepFlow a chip is derived with, and which are corrected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DerivationRules:
    """Conventions of the derivation; each True corrects one habit of DeepFlow (nanocad-lab/DeepFlow, 566c192).

    Controllers of SRAM have a power per link there that is read and not used: no rule of ours uses it either.

    Parameters
    ----------
    core_v_max
        Cores stop at the highest voltage of their technology.
    fewer_units_at_v_min
        Whether too little power at the lowest voltage means fewer units, as in the paper, and not a slower clock.
    links_at_v_min
        Links that are short of power stay at their lowest voltage, as every other circuit does.
    sram_ports
        SRAM has no more bandwidth than its banks' ports at the clock of the cores.
    leakage
        Leakage of the cores that are built is taken from their power.
    crossbars_where_shared
        Only levels that clusters share have links from each bank to each cluster.
    shares_within_budgets
        Shares of a budget sum to at most 1.
    peak_by_type
        Peak rates in every type that the technology has.
    whole_units
        The number of compute units is an integer. Designs with stated sizes have a real number, so that every mm2
        counts.
    """

    core_v_max: bool = True
    fewer_units_at_v_min: bool = True
    links_at_v_min: bool = True
    sram_ports: bool = True
    leakage: bool = True
    crossbars_where_shared: bool = True
    shares_within_budgets: bool = True
    peak_by_type: bool = True
    whole_units: bool = True


DEFAULT = DerivationRules()
REAL_UNITS = DerivationRules(whole_units=False)
DEEPFLOW = DerivationRules(
    core_v_max=False,
    fewer_units_at_v_min=False,
    links_at_v_min=False,
    sram_ports=False,
    leakage=False,
    crossbars_where_shared=False,
    shares_within_budgets=False,
    peak_by_type=False,
)
PROFILES = {"default": DEFAULT, "deepflow": DEEPFLOW}
