"""Riemannian gradient descent on Tensor Trains of fixed rank (Exponential Machines)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyadic.formats import trains
from polyadic.formats.network import NetworkCores
from polyadic.formats.trains import Point, Train
from polyadic.kernels.cp import GUARD
from polyadic.kernels.losses import weighted_losses
from polyadic.local import LocalFeatures
from polyadic.solvers.base import Problem, Report, Solution
from polyadic.solvers.course import Course, Schedule

_TALL = 128
_CHUNK = 4096

class DenseColumn:
    def __init__(self, phi):
        self.phi = phi
    def meet(self, core):
        return self.phi @ core
    def spread(self, ahead, behind, dim):
        return self.phi.T @ (ahead.T[:, :, None] * behind)

class SparseColumn:
    def __init__(self, index, value, constant):
        self.index, self.value, self.constant = index, value, constant
    def meet(self, core):
        out = sum(core[:, i] * v[:, None] for i, v in zip(self.index.T, self.value.T))
        return out + self.constant * core[:, :1]
    def spread(self, ahead, behind, dim):
        outer = ahead.T[:, :, None] * behind
        index = self.index.T.ravel()
        order = np.argsort(index, kind="stable")
        index = index[order]
        starts = np.flatnonzero(np.diff(index, prepend=-1))
        values = (self.value.T.ravel())[order]
        picked = outer[:, order % len(self.index)] * values[:, None]
        out = np.zeros((len(outer), dim, outer.shape[2]))
        out[:, index[starts]] = np.add.reduceat(picked, starts, axis=1)
        out[:, 0] += self.constant * outer.sum(1)
        return out

class Features:
    def __init__(self, local, emphasis=None):
        self.local = local
        layout, self.dims = local.layout, local.dims
        height = GUARD + int(np.sum(self.dims))
        self.shrink = np.ones(height)
        if emphasis is not None:
            self.shrink[GUARD:] = 1.0 / np.concatenate(emphasis)
        self.short = layout.dense | (self.dims <= _TALL)
        ends = np.cumsum(np.where(self.short, self.dims, 0))
        self.start = ends - np.where(self.short, self.dims, 0)
        self.width = int(ends[-1])
        self.place = np.zeros(height, np.int64)
        for n in np.flatnonzero(self.short):
            f = layout.first[n]
            self.place[f:f+self.dims[n]] = self.start[n] + np.arange(self.dims[n])
        widths = np.diff(layout.slots)
        some = self.short & ~layout.dense
        self.turns = []
        for k in range(int(widths[some].max(initial=0))):
            self.turns.append(layout.slots[:-1][some & (widths > k)] + k)
    def columns(self, rows):
        layout = self.local.layout
        index = self.local.index[rows]
        value = self.local.value[rows] * self.shrink[index]
        phi = np.zeros((len(index), self.width))
        every = np.arange(len(index))[:, None]
        for slots in self.turns:
            phi[every, self.place[index[:, slots]]] += value[:, slots]
        out = []
        for n, dim in enumerate(self.dims):
            own = slice(layout.slots[n], layout.slots[n+1])
            first = layout.first[n]
            constant = self.shrink[first] if layout.constant[n] else 0.0
            if self.short[n]:
                mine = phi[:, self.start[n]:self.start[n]+dim]
                if layout.dense[n]:
                    mine[:, int(layout.constant[n]):] = value[:, own]
                if layout.constant[n]:
                    mine[:, 0] = constant
                out.append(DenseColumn(mine))
            else:
                out.append(SparseColumn(index[:, own] - first, value[:, own], constant))
        return out

def _forward(ahead, met):
    """(b, r) and (r, b, q) -> (b, q)"""
    return np.einsum("br,rbq->bq", ahead, met)
def _backward(met, behind):
    return np.einsum("rbq,bq->br", met, behind)

@dataclass(frozen=True)
class Riemannian(Schedule):
    device: str = "cpu"
    mode: str = "gn"
    metric: float = 1.0
    jacobi: float = 0.0
    def solve(self, problem, cores, free, rng, report=None, state=None):
        return RiemannianCourse(self, problem, cores).run(rng, report)

class RiemannianCourse(Course):
    def __init__(self, solver, problem, cores):
        super().__init__(solver, problem, cores)
        self.emphasis = [solver.metric ** d.astype(float) for d in problem.degrees]
        if problem.order is not None:
            self.emphasis = problem.order.emphasis
        if solver.jacobi:
            l = problem.local
            m2 = np.bincount(l.index.ravel(), weights=l.value.ravel().astype(float)**2, minlength=GUARD+l.dims.sum())/len(l)
            for f,c in zip(l.layout.first,l.layout.constant):
                if c: m2[f]=1
            self.emphasis = [np.sqrt(m2[f:f+d]+solver.jacobi) for f,d in zip(l.layout.first,l.dims)]
        self.point = Point(trains.from_cores(cores, self.emphasis))
        self.features = Features(problem.local, self.emphasis)
        self.y = np.ascontiguousarray(problem.y, float)
        self.weight = problem.weight/problem.weight.mean()
        self.up = self.down = 0.0
        self.steps = 0
    def train(self, rates, rng):
        order = rng.permutation(len(self.problem.local))
        total = 0.0
        for j, rate in enumerate(rates):
            total += self._step(order[j*self.batch:(j+1)*self.batch], float(rate))
        return total/len(order)
    def _step(self, rows, rate):
        columns = self.features.columns(rows)
        u, v = self.point.left, self.point.right
        ahead = [np.ones((len(rows), 1))]
        for c, core in zip(columns, u):
            ahead.append(_forward(ahead[-1], c.meet(core)))
        raw = ahead[-1] @ u[-1][:, :, 0] + self.problem.intercept
        slope = np.empty_like(raw)
        loss = self.problem.loss
        value = weighted_losses(loss.code, loss.shape, self.y, self.weight, rows, 0, raw, slope)
        slope /= len(rows)
        columns.append(DenseColumn(slope))
        behind = np.ones((len(rows), 1))
        mets, moves = [None]*len(columns), []
        for n in range(len(columns)-1, -1, -1):
            moves.append(columns[n].spread(ahead[n], behind, u[n].shape[1]))
            if n:
                mets[n] = columns[n].meet(v[n])
                behind = _backward(mets[n], behind)
        moves = self.point.gauged(moves[::-1])
        if self.problem.order is not None:
            moves[-1] = moves[-1] + 2*self.problem.order.alpha*u[-1]
        # change of raw
        x = np.einsum
        state = _forward(ahead[0], columns[0].meet(moves[0]))
        for n in range(1, len(columns)-1):
            state = _forward(state, mets[n]) + _forward(ahead[n], columns[n].meet(moves[n]))
        df = state @ v[-1][:, :, 0] + ahead[-1] @ moves[-1][:, :, 0]
        g2 = trains.squared_norm(moves)
        w = self.weight[rows][:, None]
        if self.plan.mode == "gn":
            up, down = g2, 2*float((w*df*df).sum())/len(rows)
            if self.problem.order is not None:
                down += 2*self.problem.order.alpha*g2
        else:
            up, down = 1.0, float((w*df*df).sum())/len(rows)
        keep = min(0.98, 1 - 1/(self.steps+1)); self.steps += 1
        self.up += (1-keep)*(up-self.up); self.down += (1-keep)*(down-self.down)
        t = rate * (self.up/self.down if self.plan.mode=="gn" else 1/np.sqrt(self.down))
        self.t=t
        self.point = self.point.retract([-t*m for m in moves])
        return value
    def averaged(self, out):
        return self.point
    def predict(self, point, local):
        f = Features(local, self.emphasis)
        out = np.empty((len(local), self.problem.n_outputs))
        for s in range(0, len(local), _CHUNK):
            rows = np.arange(s, min(s+_CHUNK, len(local)))
            a = np.ones((len(rows),1))
            for c, core in zip(f.columns(rows), point.right):
                a = _forward(a, c.meet(core))
            out[rows] = a @ point.right[-1][:,:,0]
        return out + self.problem.intercept
    def unpack(self, point):
        return trains.to_cores(point.right, self.cores, self.emphasis)
