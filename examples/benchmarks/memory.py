"""Peak memory of a solve beyond its data, model by model, and of importing the package.

    python examples/benchmarks/memory.py

Each size is solved in a process of its own, after a small solve that loads libraries and kernels.
The peak is Linux's VmHWM, reset just before the call; what is printed is that peak less the memory
in use then, and the same in units of the model: passes over dual vectors (8 n bytes), copies of
the data. CPU seconds of `import`, best of five, follow.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODELS = {
    "svm, dense rows": (
        "X, y = cs.datasets.two_gaussians(n, d, seed=0)",
        "cs.solve(cs.svm(X, y, C=0.1))",
        "8 * n * d", ((100_000, 20), (400_000, 20), (100_000, 100)),
    ),
    "svm, CSR rows": (
        "X = sp.random(n, 5000, d / 5000, 'csr', random_state=0); y = np.where(X[:, :50].sum(1) > "
        "0.5, 1.0, -1.0)",
        "cs.solve(cs.svm(X, y))",
        "12 * X.nnz", ((20_000, 40), (80_000, 40), (20_000, 160)),
    ),
    "path of 20 values, compiled": (
        "X, y = cs.datasets.two_gaussians(n, d, seed=0)",
        "cs.path(cs.svm(X, y), values=np.geomspace(1e-2, 1, 20))",
        "8 * n * d", ((25_000, 20), (100_000, 20), (100_000, 5)),
    ),
    "kernel svm, cache of 64 MiB": (
        "X, y = cs.datasets.two_gaussians(n, d, seed=0)",
        "cs.solve(cs.svm(X, y, C=0.1, kernel='rbf', cache_bytes=2**26), tol=1e-3)",
        "8 * n * d", ((3_000, 10), (12_000, 10)),
    ),
    "sparse_svm, dense rows": (
        "X, y = cs.datasets.two_gaussians(n, d, seed=0)",
        "cs.solve(cs.sparse_svm(X, y, 0.01))",
        "8 * n * d", ((100_000, 20), (400_000, 20), (100_000, 100)),
    ),
    "rtlm, k = 10 (100 n triplets)": (
        "r = np.random.default_rng(0); y = r.integers(0, 3, n); "
        "X = r.standard_normal((n, d)) + 2 * np.eye(3, d)[y]",
        "p = cs.rtlm(X, cs.triplets(X, y, k=10), 1.0); "
        "cs.solve(p.with_(lam=0.1 * cs.lambda_max(p)))",
        "8 * 100 * n", ((2_000, 10), (8_000, 10), (2_000, 40)),
    ),
    "rtlm, all triplets": (
        "r = np.random.default_rng(0); y = r.integers(0, 3, n); "
        "X = r.standard_normal((n, d)) + 2 * np.eye(3, d)[y]",
        "p = cs.rtlm(X, cs.triplets(X, y, k='all'), 1.0); "
        "cs.solve(p.with_(lam=0.1 * cs.lambda_max(p)))",
        "n * n", ((600, 10), (1_200, 10)),
    ),
    "raso, 10 tasks": (
        "r = np.random.default_rng(0); "
        "T = [(A := r.standard_normal((n // 10, d)), np.where(A[:, 0] > 0, 1.0, -1.0)) for _ in "
        "range(10)]",
        "cs.solve(cs.raso(T, h=2, alpha=0.1, beta=0.01), tol=1e-4)",
        "8 * n * d", ((20_000, 20), (80_000, 20)),
    ),
    "CVXPY, method='screen'": (
        "import cvxpy as cp; X, y = cs.datasets.two_gaussians(n, d, seed=0); w = cp.Variable(d); "
        "l = cp.sum(cp.pos(1 - cp.multiply(y, X @ w))); "
        "p = cp.Problem(cp.Minimize(cp.sum_squares(w) + l))",
        "p.solve(method='screen')",
        "8 * n * d", ((50_000, 20), (200_000, 20)),
    ),
}

CHILD = """
import sys
import numpy as np, scipy.sparse as sp
import cvxscreen as cs

def status(name):
    [line] = [line for line in open("/proc/self/status") if line.startswith(name)]
    return 1024 * int(line.split()[1])

def work(n, d, measured):
    {data}
    before = status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    {solve}
    return before, status("VmHWM"), {size}

work({small}, {d}, False)
before, peak, size = work({n}, {d}, True)
print(peak - before, size)
"""


def measured(name: str, n: int, d: int) -> tuple[int, int]:
    """Bytes at the peak beyond the data, and the bytes of the model's unit."""
    data, solve, size, _ = MODELS[name]
    program = CHILD.format(
        data=data.replace("; ", "\n    "), solve=solve, size=size, n=n, d=d, small=200
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    peak, unit = (int(float(word)) for word in done.stdout.split())
    return peak, unit


def import_seconds(statement: str) -> float:
    """CPU seconds of `statement` in a fresh interpreter, best of five."""
    program = f"import time\nt = time.process_time()\n{statement}\nprint(time.process_time() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    return min(float(run.stdout) for run in runs)


if __name__ == "__main__":
    print(f"{'model':32} {'n':>8} {'d':>5} {'peak MB':>8} {'units':>6} {'of':>14} {'8 n':>6}")
    for model, (_, _, unit_name, sizes) in MODELS.items():
        for n, d in sizes:
            peak, unit = measured(model, n, d)
            print(
                f"{model:32} {n:8,} {d:5} {peak / 1e6:8.1f} {peak / unit:6.1f} {unit_name:>14} "
                f"{peak / (8 * n):6.1f}", flush=True,
            )
    for statement in (
        "import numpy", "import scipy.sparse, scipy.linalg", "import cvxscreen",
        "from cvxscreen import svm", "from cvxscreen import svm, solve, path",
        "import cvxpy", "import cvxscreen, cvxpy", "from cvxscreen import *",
    ):
        print(f"{statement:40} {import_seconds(statement):6.3f} s")
