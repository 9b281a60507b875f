"""What a recommendation model is built from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.workloads.checks import check_batch

Width = Annotated[int, Field(ge=1, le=10**7)]


class Tables(Part):
    """Embedding tables of equal size.

    Attributes
    ----------
    count : tables, e.g. 26
        Number of embedding tables of this size.
    rows : rows, e.g. 1000000
        Number of rows of each table.
    pooling : rows, e.g. 20
        Number of rows that one sample looks up in each table and adds.

    Examples
    --------
    >>> Tables(count=2, rows=1000, pooling=5).lookups
    10
    """

    count: int = Field(default=1, ge=1, le=10**6)
    rows: int = Field(ge=1, le=10**12)
    pooling: int = Field(default=1, ge=1, le=10**5)

    @property
    def lookups(self) -> int:
        """Rows that one sample looks up in these tables."""
        return self.count * self.pooling


class DlrmParameters(Part):
    """Parameters of a DLRM (recommendation model).

    The MLPs are given by ``dense_features``, ``bottom`` and ``top``, or, if all layers are square, by ``mlp_dim``,
    ``bottom_layers`` and ``top_layers``.

    Attributes
    ----------
    tables : e.g. [{count: 26, rows: 1000000}]
        Embedding tables of the model, in groups of equal tables.
    embedding_dim : elements, e.g. 128
        Elements of one row of every table.
    dense_features : features, e.g. 13
        Dense features of one sample, which enter the bottom MLP. None: ``mlp_dim`` gives the input.
    bottom : features, e.g. [512, 256, 128]
        Widths of the layers of the bottom MLP. None: ``mlp_dim`` and ``bottom_layers`` give them.
    top : features, e.g. [1024, 512, 1]
        Widths of the layers of the top MLP. None: ``mlp_dim`` and ``top_layers`` give them.
    mlp_dim : features, e.g. 1024
        Width of all MLP layers, if they are equal. None: ``bottom`` and ``top`` give the widths.
    bottom_layers : layers, e.g. 4
        Number of layers of the bottom MLP, if all have the width ``mlp_dim``. None: ``bottom`` lists them.
    top_layers : layers, e.g. 4
        Number of layers of the top MLP, if all have the width ``mlp_dim``. None: ``top`` lists them.
    interaction : e.g. dot
        Interaction of the pooled embeddings and the output of the bottom MLP. ``dot``: products of all pairs.
        ``concat``: all features next to each other. ``dcn``: low-rank cross layers. ``none``: unknown, and the top MLP
        takes the width of the bottom MLP.
    dcn_layers : layers, e.g. 3
        Number of cross layers, with ``interaction: dcn``.
    dcn_rank : no unit, e.g. 512
        Rank of the matrix of each cross layer, with ``interaction: dcn``.
    table_optimizer : e.g. rowwise_adagrad
        Optimizer of the tables, whose moments have 4 B each. ``rowwise_adagrad``: one moment per row, as FBGEMM has it.
        ``adagrad``: one per element. ``adam``: two per element. ``sgd``: no moments.
    encoding : e.g. exact
        Kernels of the graph. ``exact``: those of the algorithm itself. ``dfmodel``: the kernels of DFModel's program.
    mode : e.g. training
        Passes that the graph contains. ``forward``: only the forward pass. ``training``: a whole training step.
    stream : e.g. n
        Axis along which kernels stream. ``n``: samples stream through a chip. ``none``: nothing streams, so that tensor
        parallelism may split the samples.
    microbatch : samples, e.g. 4096
        Samples that one replica processes at a time.
    batch : samples, e.g. 65536
        Samples of one step, over all data-parallel replicas. None: one microbatch.
    word_bytes : B, e.g. 2
        Size of one element of all data.

    Examples
    --------
    >>> tables = (Tables(count=3, rows=1000, pooling=2),)
    >>> p = DlrmParameters(tables=tables, embedding_dim=16, dense_features=13, bottom=(32, 16), top=(64, 1))
    >>> p.bottom_widths, p.interaction_width, p.top_widths
    ((13, 32, 16), 22, (22, 64, 1))
    """

    tables: tuple[Tables, ...] = Field(max_length=10000)
    embedding_dim: int = Field(ge=1, le=10**6)
    dense_features: int | None = Field(default=None, ge=1, le=10**7)
    bottom: tuple[Width, ...] | None = Field(default=None, max_length=1000)
    top: tuple[Width, ...] | None = Field(default=None, max_length=1000)
    mlp_dim: int | None = Field(default=None, ge=1, le=10**7)
    bottom_layers: int | None = Field(default=None, ge=1, le=1000)
    top_layers: int | None = Field(default=None, ge=1, le=1000)
    interaction: Literal["dot", "concat", "dcn", "none"] = "dot"
    dcn_layers: int = Field(default=3, ge=1, le=1000)
    dcn_rank: int = Field(default=512, ge=1, le=10**6)
    table_optimizer: Literal["rowwise_adagrad", "adagrad", "adam", "sgd"] = "rowwise_adagrad"
    encoding: Literal["exact", "dfmodel"] = "exact"
    mode: Literal["forward", "training"] = "training"
    stream: Literal["n", "none"] = "n"
    microbatch: int = Field(default=1, ge=1, le=10**9)
    batch: int | None = Field(default=None, ge=1, le=10**12)
    word_bytes: int = Field(default=2, ge=1, le=16)

    @property
    def table_count(self) -> int:
        """Number of tables, which is the number of sparse features."""
        return sum(tables.count for tables in self.tables)

    @property
    def lookups(self) -> int:
        """Rows that one sample looks up in all tables."""
        return sum(tables.lookups for tables in self.tables)

    @property
    def adds(self) -> int:
        """Looked-up rows for each pooled row, rounded up: FLOP per element of pooling."""
        return -(-self.lookups // self.table_count)

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(tables.count * tables.rows for tables in self.tables)

    @property
    def table_bytes(self) -> float:
        """Bytes of all tables."""
        return float(self.rows * self.embedding_dim * self.word_bytes)

    @property
    def looked_up_bytes(self) -> float:
        """Bytes of all rows that an evaluation looks up, before pooling."""
        return float(self.microbatch * self.lookups * self.embedding_dim * self.word_bytes)

    @property
    def table_moments(self) -> int:
        """Number of optimizer moments stored for all tables."""
        each = {"rowwise_adagrad": 1, "adagrad": self.embedding_dim, "adam": 2 * self.embedding_dim, "sgd": 0}
        return each[self.table_optimizer] * self.rows

    @property
    def pooled_width(self) -> int:
        """Elements of the pooled rows of one sample."""
        return self.table_count * self.embedding_dim

    @property
    def bottom_widths(self) -> tuple[int, ...]:
        """Layer widths of the bottom MLP, input first."""
        if self.mlp_dim is not None and self.bottom_layers is not None:
            return (self.mlp_dim,) * (self.bottom_layers + 1)
        return (self.dense_features or 1, *(self.bottom or ()))

    @property
    def interaction_width(self) -> int:
        """Number of features that the interaction passes to the top MLP.

        ``dot`` gives the bottom MLP's output and one product for every pair of the features, of which there is
        one per table and that output (Naumov et al., section 2.1.3).
        """
        dense, features = self.bottom_widths[-1], self.table_count + 1
        if self.interaction == "dot":
            return dense + features * (features - 1) // 2
        return dense if self.interaction == "none" else dense + self.pooled_width

    @property
    def top_widths(self) -> tuple[int, ...]:
        """Layer widths of the top MLP, input first."""
        if self.mlp_dim is not None and self.top_layers is not None:
            return (self.interaction_width, *(self.mlp_dim,) * self.top_layers)
        return (self.interaction_width, *(self.top or ()))

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
