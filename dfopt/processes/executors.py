"""Who solves: the processes of this machine, or a cluster."""

from __future__ import annotations

from dfopt.errors import PlanError
from dfopt.processes.executor import Executor, Processes


def executor_of(jobs: int | None, cluster: str | None, stay: bool = False) -> Executor:
    """Executor for local processes, or for a Dask cluster given by the address of its scheduler.

    Parameters
    ----------
    jobs : int, optional
        Number of local processes; by default one for each core.
    cluster : str, optional
        Address of the scheduler of a Dask cluster.
    stay : bool
        Whether processes stay for the next tasks after the last one.

    Raises
    ------
    PlanError
        If both are given, or if ``jobs`` or ``cluster`` is invalid.

    Examples
    --------
    >>> executor_of(2, None).jobs
    2
    """
    if cluster is None:
        return Processes(jobs, stay=stay)
    if jobs is not None:
        raise PlanError("--jobs is for processes of this machine; with --cluster its workers decide: leave one out")
    from dfopt.processes.cluster import Cluster

    return Cluster(cluster, stay=stay)
