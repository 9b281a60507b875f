"""The metrics of scores: fields of a score, columns of studies, rates that go with the time of a step."""

from __future__ import annotations

import dfopt as df
from dfopt.documents.metrics import FORMULAS, METRICS
from dfopt.documents.score import Score
from dfopt.documents.study_columns import COLUMNS
from dfopt.processes.worker import judged_figures


def test_metrics_are_fields_of_a_score_and_columns_of_a_study() -> None:
    assert set(METRICS) | set(FORMULAS) <= set(Score.model_fields)
    assert all(COLUMNS[name] == metric.meaning for name, metric in METRICS.items() if metric.meaning)


def test_a_record_has_the_metrics_that_studies_show() -> None:
    result = df.solve("gpt2-small", "sn10-8-ring", tp=8)
    figures = judged_figures(result.score, result.plan, result.graph, result.system)
    named = {name for name, metric in METRICS.items() if metric.meaning}
    assert {name: figures.get(name) for name in named} == {name: getattr(result.score, name) for name in named}


def test_rates_go_with_the_step_that_a_stack_of_dies_sustains() -> None:
    score = df.solve("gpt2-small", "sn10-8-ring", tp=8).score
    slowed = score.model_copy(update={"physical": _Slowed(2 * score.step_time_s)})
    for name, metric in METRICS.items():
        before, after = getattr(score, name), getattr(slowed.sustained, name)
        share = 2.0 if name == "step_time_s" else 0.5 if metric.rate else 1.0
        assert after == (None if before is None else share * before), name


class _Slowed:
    def __init__(self, step_time_s: float) -> None:
        self.step_time_s = step_time_s
