"""Multi-task data for tests and benchmarks: tasks whose weights share a subspace."""

from __future__ import annotations

import numpy as np


def shared_tasks(m, d, n, h, *, noise=0.3, spread=0.3, seed=0, sizes=None):
    """``m`` classification tasks: weights in an h-dimensional subspace, plus a little each."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((d, h)))
    tasks = []
    for k in range(m):
        w = basis @ rng.standard_normal(h) + spread * rng.standard_normal(d) / np.sqrt(d)
        X = rng.standard_normal((n if sizes is None else sizes[k], d))
        score = X @ w + 0.2 + noise * rng.standard_normal(len(X))
        tasks.append((X, np.where(score > 0, 1.0, -1.0)))
    return tasks
