"""A deep learning recommendation model (DLRM): embedding tables, two MLPs, and what combines their features.

The model is that of Naumov et al. (arXiv 1906.00091): dense features pass a bottom MLP, every sparse feature looks
up rows of its table and adds them up (pooling), an interaction combines both, and a top MLP gives the prediction.
The MLPs are data-parallel. The tables are spread over all chips, tensor-parallel ones and copies alike, so the
pooled rows of a microbatch reach its copy by an all-to-all, and their gradients go back by another.

``microbatch`` counts the samples that one copy works on at a time; samples are the ``n`` axis of every kernel.

What is counted: a table row is read once per lookup, and when training read and written again by its update; dense
features are read from DRAM, which also holds the optimizer's state of the tables. What is not: biases, reading row
indices, and the traffic of that state.

``encoding: dfmodel`` draws the 60 kernels of DFModel's program instead: MLP layers of one width only, with lookups
and exchanges riding on the last bottom layer, and rows exchanged before they are pooled.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Graph
from dfopt.workloads.checks import NOTHING_FROM_DRAM, check_batch
from dfopt.workloads.dlrm_kernels import Sizes, draw, draw_dfmodel, trained, trained_dfmodel

__all__ = ["DlrmParameters", "Parameters", "Tables", "build", "parameter_count"]


class Tables(Part):
    """Embedding tables of one size.

    Examples
    --------
    >>> Tables(count=2, rows=1000, pooling=5).lookups
    10
    """

    count: int = Field(default=1, ge=1, le=10**6, description="tables of this size")
    rows: int = Field(ge=1, le=10**12, description="rows of one table")
    pooling: int = Field(default=1, ge=1, le=10**5, description="rows that one sample looks up in a table and adds up")

    @property
    def lookups(self) -> int:
        """Rows that one sample reads of these tables."""
        return self.count * self.pooling


class DlrmParameters(Part):
    """What a DLRM is built from.

    The MLPs are given by ``dense_features``, ``bottom`` and ``top``, or, if all layers are square, by ``mlp_dim``,
    ``bottom_layers`` and ``top_layers``.

    Examples
    --------
    >>> tables = (Tables(count=3, rows=1000, pooling=2),)
    >>> p = DlrmParameters(tables=tables, embedding_dim=16, dense_features=13, bottom=(32, 16), top=(64, 1))
    >>> p.bottom_widths, p.interaction_width, p.top_widths
    ((13, 32, 16), 22, (22, 64, 1))
    """

    tables: tuple[Tables, ...] = Field(max_length=10000, description="embedding tables")
    embedding_dim: int = Field(ge=1, le=10**6, description="elements of a row, in all tables")
    dense_features: int | None = Field(default=None, ge=1, le=10**7, description="dense features of a sample")
    bottom: tuple[int, ...] | None = Field(default=None, max_length=1000, description="bottom layer widths")
    top: tuple[int, ...] | None = Field(default=None, max_length=1000, description="top layer widths")
    mlp_dim: int | None = Field(default=None, ge=1, le=10**7, description="width of every layer, and its input's")
    bottom_layers: int | None = Field(default=None, ge=1, le=1000, description="layers of width mlp_dim")
    top_layers: int | None = Field(default=None, ge=1, le=1000, description="layers of width mlp_dim")
    interaction: Literal["dot", "concat", "dcn", "none"] = Field(
        default="dot",
        description="dot: products of all pairs of features; concat: features side by side; dcn: low-rank cross layers"
        " on them; none: unknown, the top MLP takes as many features as the bottom one gives",
    )
    dcn_layers: int = Field(default=3, ge=1, le=1000, description="cross layers of interaction dcn")
    dcn_rank: int = Field(default=512, ge=1, le=10**6, description="rank of a cross layer's matrix")
    table_optimizer: Literal["rowwise_adagrad", "adagrad", "adam", "sgd"] = Field(
        default="rowwise_adagrad",
        description="what trains the tables; it holds moments of 4 B: one per row (as FBGEMM, the library of embedding"
        " tables, has it), one or two per element, or none",
    )
    encoding: Literal["exact", "dfmodel"] = Field(default="exact", description="what is computed, or DFModel's kernels")
    mode: Literal["forward", "training"] = Field(
        default="training", description="forward pass only, or a training step"
    )
    stream: Literal["n", "none"] = Field(
        default="n", description="n: samples stream through a chip; none: tensor parallelism may split them"
    )
    microbatch: int = Field(default=1, ge=1, le=10**9, description="samples that one copy works on at a time")
    batch: int | None = Field(
        default=None, ge=1, le=10**12, description="samples in one step, over all copies; one microbatch if left out"
    )
    word_bytes: int = Field(default=2, ge=1, le=16, description="bytes per element")

    @property
    def table_count(self) -> int:
        """Tables, which is sparse features of a sample."""
        return sum(tables.count for tables in self.tables)

    @property
    def lookups(self) -> int:
        """Rows that one sample reads of all tables."""
        return sum(tables.lookups for tables in self.tables)

    @property
    def table_moments(self) -> int:
        """Numbers that the optimizer holds for all tables."""
        each = {"rowwise_adagrad": 1, "adagrad": self.embedding_dim, "adam": 2 * self.embedding_dim, "sgd": 0}
        return each[self.table_optimizer] * sum(tables.count * tables.rows for tables in self.tables)

    @property
    def pooled_width(self) -> int:
        """Elements of a sample's pooled rows."""
        return self.table_count * self.embedding_dim

    @property
    def bottom_widths(self) -> tuple[int, ...]:
        """Widths along the bottom MLP, its input first."""
        if self.mlp_dim is not None and self.bottom_layers is not None:
            return (self.mlp_dim,) * (self.bottom_layers + 1)
        return (self.dense_features or 1, *(self.bottom or ()))

    @property
    def interaction_width(self) -> int:
        """Features that the interaction hands to the top MLP.

        ``dot`` gives the bottom MLP's output and one product for every pair of the features, of which there is
        one per table and that output (Naumov et al., section 2.1.3).
        """
        dense, features = self.bottom_widths[-1], self.table_count + 1
        if self.interaction == "dot":
            return dense + features * (features - 1) // 2
        return dense if self.interaction == "none" else dense + self.pooled_width

    @property
    def top_widths(self) -> tuple[int, ...]:
        """Widths along the top MLP, its input first."""
        if self.mlp_dim is not None and self.top_layers is not None:
            return (self.interaction_width, *(self.mlp_dim,) * self.top_layers)
        return (self.interaction_width, *(self.top or ()))

    @property
    def samples(self) -> int:
        """Samples in one step."""
        return self.microbatch if self.batch is None else self.batch

    @model_validator(mode="after")
    def _mlps_are_given_once(self) -> Self:
        lists = {key: getattr(self, key) for key in ("dense_features", "bottom", "top")}
        square = {key: getattr(self, key) for key in ("mlp_dim", "bottom_layers", "top_layers")}
        given = [key for key, value in (lists | square).items() if value is not None]
        if set(given) not in (set(lists), set(square)):
            raise problem(
                f"found {', '.join(given) or 'no sizes of the MLPs'}, expected dense_features, bottom and top, or"
                " mlp_dim, bottom_layers and top_layers",
                "give one of the two sets, and all of it",
                f"$.{given[0]}" if given else "$",
            )
        # Checked here, because a minimal length of the field would be a second error beside one bad entry.
        for key in ("tables", "bottom", "top"):
            if getattr(self, key) is not None and not getattr(self, key):
                raise problem("found an empty list, expected at least one entry", "add one", f"$.{key}")
        for key in ("bottom", "top"):
            for position, width in enumerate(lists[key] or ()):
                if not 1 <= width <= 10**7:
                    raise problem(
                        f"found {width}, expected a width from 1 to 10000000", "correct it", f"$.{key}[{position}]"
                    )
        return self

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        dense = self.bottom_widths[-1]
        if self.interaction == "dot" and dense != self.embedding_dim:
            raise problem(
                f"found {dense} features behind the bottom MLP, but its dot products are with rows of"
                f" {self.embedding_dim}",
                "let the bottom MLP end in embedding_dim, or choose interaction: concat",
                "$.bottom" if self.bottom is not None else "$.mlp_dim",
            )
        if self.encoding == "dfmodel" and (self.interaction != "none" or self.mlp_dim is None):
            raise problem(
                "DFModel's encoding has square layers and no interaction",
                "give mlp_dim, bottom_layers and top_layers with interaction: none, or choose encoding: exact",
                "$.encoding",
            )
        check_batch(self.batch, self.microbatch)
        return self


Parameters = DlrmParameters


def parameter_count(parameters: DlrmParameters) -> int:
    """Parameters of the model: all rows of all tables, and the matrices of MLPs and cross layers, without biases.

    Examples
    --------
    >>> tables = (Tables(count=3, rows=1000),)
    >>> sizes = {"embedding_dim": 16, "dense_features": 13, "bottom": (32, 16), "top": (64, 1)}
    >>> parameter_count(DlrmParameters(tables=tables, **sizes)) - 3 * 1000 * 16
    2400
    """
    p = parameters
    rows = sum(tables.count * tables.rows for tables in p.tables)
    mlps = sum(a * b for widths in (p.bottom_widths, p.top_widths) for a, b in pairwise(widths))
    crossing = 2 * p.dcn_layers * p.dcn_rank * p.interaction_width if p.interaction == "dcn" else 0
    return rows * p.embedding_dim + mlps + crossing


def build(name: str = "dlrm", description: str = "", source: str = "", **parameters: Any) -> Graph:
    """A recommendation model as a graph.

    Parameters
    ----------
    name, description, source
        As in `Graph`.
    **parameters
        Fields of `DlrmParameters`.

    Returns
    -------
    Graph
        Forward, two kernels per MLP layer, one for the lookups and a few for the interaction; training adds up to
        three per MLP layer, and the way back through the others. ``encoding: dfmodel`` has three kernels per layer.

    Raises
    ------
    pydantic.ValidationError
        For a parameter that is unknown, missing or out of range.

    Examples
    --------
    >>> sizes = {"embedding_dim": 16, "dense_features": 13, "bottom": (32, 16), "top": (64, 1), "microbatch": 8}
    >>> graph = build(tables=(Tables(count=3, rows=1000, pooling=2),), **sizes)
    >>> lookup = graph.kernels[graph.index()["Lookup"]]
    >>> lookup.dram_bytes, lookup.resident_bytes, lookup.communications[0].bytes
    (1536.0, 96000.0, 768.0)
    """
    p = DlrmParameters(**parameters)
    sizes = Sizes(
        samples=p.microbatch,
        word=p.word_bytes,
        dim=p.embedding_dim,
        tables=p.table_count,
        lookups=p.lookups,
        rows=sum(tables.count * tables.rows for tables in p.tables),
        bottom=p.bottom_widths,
        top=p.top_widths,
        interaction=p.interaction,
        dcn_layers=p.dcn_layers,
        dcn_rank=p.dcn_rank,
        stream=p.stream,
    )
    kernels, tensors = draw_dfmodel(sizes) if p.encoding == "dfmodel" else draw(sizes)
    held = {"resident_optimizer_bytes": 4.0 * p.table_moments}
    kernels = tuple(one.model_copy(update=held) if one.resident_bytes else one for one in kernels)
    graph = Graph(
        name=name,
        description=description,
        source=source,
        word_bytes=p.word_bytes,
        microbatch=p.microbatch,
        batch=p.samples,
        kernels=kernels,
        tensors=tensors,
        **(NOTHING_FROM_DRAM if p.encoding == "dfmodel" else {}),
    )
    if p.mode == "forward":
        return graph
    return trained_dfmodel(graph) if p.encoding == "dfmodel" else trained(graph, sizes)
