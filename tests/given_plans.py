"""The search over plans that a test gives, whatever else a question allows."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.plan import Plan
from dfopt.search.graph_search import GraphSearch
from dfopt.search.state import SearchState
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.terms.bounds import PlanBounds


def searched(setting: Setting, plans: Sequence[Plan], options: Options) -> GraphSearch:
    """What is found and known of some plans; the mappings are in its ``state``."""
    graph = GraphSearch(setting, SearchState(options), plans)
    WorkloadSearch([graph]).run()
    return graph


def least_of(setting: Setting, plans: Sequence[Plan]) -> dict[Plan, float]:
    """Seconds of a step that no mapping under each of some plans beats, by plan."""
    tables = PlanBounds(setting).tables(plans)
    return {plan: low for table in tables for plan, low in zip(table.plans, table.seconds().tolist(), strict=True)}
