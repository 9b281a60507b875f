"""Three ways to solve ``G x = b`` of a thermal network; all are exact up to rounding.

`Factorised` is a sparse LU and takes every network. `Cosine` needs sheets whose cells are all alike: with adiabatic
sides the cosine transform (DCT-II) along x and y turns the sheets into nx*ny separate columns, and each column is a
tridiagonal system. `Condensed` joins the two where only the sheets of the die are alike. `solver_of` chooses.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.fft import dctn, idctn
from scipy.sparse.linalg import splu

from dfopt.arrays import Floats
from dfopt.technology.thermal.network import Layered, Network

_DENSE = 2500  # cells under the die: their dense matrix takes 50 MB and some seconds


class Solver(Protocol):
    """Interface of a factorized thermal network."""

    def solve(self, rhs: Floats) -> Floats:
        """Temperature rise of each node, K, for powers in W of shape (nodes,) or (nodes, cases)."""
        ...  # pragma: no cover


class Factorised:
    """Sparse LU factorization of a network, or of its nodes from ``first`` on.

    The matrix is symmetric and diagonally dominant, so the ordering may look at its pattern alone: minimum degree of
    A + A', without pivoting, leaves 2.5 times fewer numbers than the default ordering on a stack of 8 DRAM dies.
    """

    def __init__(self, network: Network, first: int = 0) -> None:
        left, right = network.edges
        links, diagonal = network.conductance, network.ground.copy()
        np.add.at(diagonal, left, links)
        np.add.at(diagonal, right, links)
        inside = np.minimum(left, right) >= first
        left, right, links = left[inside] - first, right[inside] - first, links[inside]
        own = np.arange(network.nodes - first)
        values = np.concatenate((diagonal[first:], -links, -links))
        at = np.concatenate((own, left, right)), np.concatenate((own, right, left))
        matrix = sp.csc_array((values, at), shape=(own.size, own.size))
        symmetric = {"SymmetricMode": True}
        self._lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric)

    def solve(self, rhs: Floats) -> Floats:
        """Temperature rise of each node, K; a refinement step would move a rise of 50 K by 2e-11 K."""
        return np.asarray(self._lu.solve(rhs))


class Cosine:
    """Direct solver: cosine transform in x and y, and a tridiagonal system along the stack for each mode."""

    def __init__(self, layered: Layered) -> None:
        count, ny, nx = layered.shape
        # eigenvalues of the chain of n cells with adiabatic ends: 2 - 2 cos(pi m / n)
        wave_x = 4 * np.sin(np.pi * np.arange(nx) / (2 * nx)) ** 2
        wave_y = 4 * np.sin(np.pi * np.arange(ny) / (2 * ny)) ** 2
        diagonal = layered.x[:, None, None] * wave_x + layered.y[:, None, None] * wave_y[:, None]
        diagonal += layered.ground[:, None, None]
        diagonal[-1] += layered.link
        diagonal[:-1] += layered.up[:, None, None]
        diagonal[1:] += layered.up[:, None, None]
        self._shape, self._up = layered.shape, layered.up
        self._pivot = np.empty_like(diagonal)
        self._pivot[0] = diagonal[0]
        for i in range(1, count):
            self._pivot[i] = diagonal[i] - layered.up[i - 1] ** 2 / self._pivot[i - 1]

    def solve(self, rhs: Floats) -> Floats:
        """Temperature rise of each node, K."""
        return self.backward(self.forward(rhs)).reshape(rhs.shape)

    def forward(self, rhs: Floats) -> Floats:
        """Transform powers (W), shape (nodes,) or (nodes, cases), and eliminate layer by layer.

        Returns waves of shape (cases, sheets, ny, nx), of which those of the last sheet are its temperatures.
        """
        count, ny, nx = self._shape
        waves = np.asarray(dctn(np.moveaxis(rhs.reshape(count, ny, nx, -1), -1, 0), axes=(2, 3), norm="ortho"))
        for i in range(1, count):
            waves[:, i] += waves[:, i - 1] * (self._up[i - 1] / self._pivot[i - 1])
        waves[:, -1] /= self._pivot[-1]
        return waves

    def backward(self, waves: Floats) -> Floats:
        """Back-substitute and transform: temperature rise in K, shape (nodes, cases). It overwrites ``waves``."""
        for i in range(self._shape[0] - 2, -1, -1):
            waves[:, i] += self._up[i] * waves[:, i + 1]
            waves[:, i] /= self._pivot[i]
        rises = idctn(waves, axes=(2, 3), norm="ortho", overwrite_x=True)
        return np.asarray(np.moveaxis(rises, 0, -1).reshape(-1, waves.shape[0]))

    @property
    def last(self) -> Floats:
        """Response of each mode of the last layer, K/W, shape (ny, nx)."""
        return np.asarray(1.0 / self._pivot[-1])


class Condensed:
    """Coupled solver: cosine transform for the die, sparse LU for the package, and a dense coupling matrix.

    With g the link of each cell between them, c the package's temperatures under the die and l those of the last
    sheet of the die: ``c = z + g G l`` and ``l = y + g Q c``. Here z are the temperatures of the package alone, y those
    of the last sheet of the die alone, and G and Q the responses of both to one watt there. Hence ``c = (I - g^2 G
    Q)^-1 (z + g G y)``. Plates are centred on the die, so that three of four columns of G are mirror images.
    """

    def __init__(self, network: Network) -> None:
        layered = network.layered
        assert layered is not None and layered.beyond is not None
        _, ny, nx = layered.shape
        self._cells, self._link = int(np.prod(layered.shape)), layered.link
        self._under = layered.beyond.ravel() - self._cells
        self._die = Cosine(layered)
        self._package = Factorised(network, self._cells)
        self._gG = self._link * self._responses(network.nodes - self._cells, ny, nx)
        # Q is symmetric and diagonal in the waves, so G Q is Q applied to each row of G
        waves = dctn(self._gG.reshape(-1, ny, nx), axes=(1, 2), norm="ortho") * (self._link * self._die.last)
        GQ = idctn(waves, axes=(1, 2), norm="ortho", overwrite_x=True).reshape(self._gG.shape)
        self._share = np.linalg.inv(np.eye(ny * nx) - GQ)

    def _responses(self, nodes: int, ny: int, nx: int) -> Floats:
        """Rise under the die per watt at each node under the die, of the package on its own: a quarter and mirrors."""
        response = np.empty((ny, nx, ny, nx))
        rows, columns = np.arange((ny + 1) // 2), np.arange((nx + 1) // 2)
        for row in rows:
            rhs = np.zeros((nodes, columns.size))
            rhs[self._under[row * nx + columns], columns] = 1.0
            rises = self._package.solve(rhs)[self._under].reshape(ny, nx, -1)
            for column in columns:
                rise = rises[:, :, column]
                response[:, :, row, column] = rise
                response[:, :, row, nx - 1 - column] = rise[:, ::-1]
                response[:, :, ny - 1 - row, column] = rise[::-1]
                response[:, :, ny - 1 - row, nx - 1 - column] = rise[::-1, ::-1]
        return response.reshape(ny * nx, ny * nx)

    def solve(self, rhs: Floats) -> Floats:
        """Temperature rise of each node, K."""
        cases = rhs.reshape(rhs.shape[0], -1)
        own, watts = cases[: self._cells], cases[self._cells :].copy()
        waves = self._die.forward(own)
        shape = waves[:, -1].shape
        alone = idctn(waves[:, -1], axes=(1, 2), norm="ortho").reshape(shape[0], -1).T
        under = self._gG @ alone
        if np.any(watts):
            under += self._package.solve(watts)[self._under]
        under = self._share @ under
        waves[:, -1] += self._link * self._die.last * dctn(under.T.reshape(shape), axes=(1, 2), norm="ortho")
        die = self._die.backward(waves)
        watts[self._under] += self._link * die[-self._under.size :]
        return np.concatenate((die, self._package.solve(watts))).reshape(rhs.shape)


def solver_of(network: Network) -> Solver:
    """The fastest solver for a network."""
    layered = network.layered
    if layered is None or (layered.beyond is not None and layered.beyond.size > _DENSE):
        return Factorised(network)
    return Cosine(layered) if layered.beyond is None else Condensed(network)
