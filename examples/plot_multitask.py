"""Tasks together
==============

Multi-task learning: eight small tasks that share a plane, together and each alone.

Every task has few samples in twenty dimensions, and its true weights lie in a plane that all tasks
share. `raso` finds the plane and the weights together.
"""

import numpy as np
from matplotlib.figure import Figure

import cvxscreen
from cvxscreen import plots

# %%
rng = np.random.default_rng(0)
plane = np.linalg.qr(rng.standard_normal((20, 2)))[0]
truth = [plane @ rng.standard_normal(2) for _ in range(8)]

# %%
def draw(n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    data = [(rng.standard_normal((n, 20)), w) for w in truth]
    return [(A, np.sign(A @ w + 0.3 * rng.standard_normal(n))) for A, w in data]

# %%
few, many = draw(40), draw(2000)
problem = cvxscreen.raso(few, h=2, alpha=0.1, beta=0.002)
together = cvxscreen.solve(problem, tol=1e-4)
print(together)
shared = [np.mean(np.sign(A @ u + b) == t) for (A, t), u, b in zip(
    many, together.U.T, together.b, strict=True)]
alone = []
for (A, t), (B, s) in zip(few, many, strict=True):
    found = cvxscreen.solve(cvxscreen.svm(A, t, C=0.1, intercept=True))
    alone.append(np.mean(np.sign(B @ found.w + found.intercept) == s))
print(f"right on new data: {np.mean(shared):.1%} together, {np.mean(alone):.1%} alone")

# %%
figure = Figure(figsize=(7.2, 4.2), layout="constrained")
axes = figure.subplots()
at = np.arange(8)
axes.bar(at - 0.2, alone, 0.4, color="white", edgecolor="black", hatch="...", label="alone")
axes.bar(at + 0.2, shared, 0.4, color="#8c8c8c", edgecolor="black", label="together")
axes.set_ylim(0.5, 1.0)
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set(xlabel="task", ylabel="right on new data", title="Eight tasks with 40 samples each")
axes.legend(frameon=False, ncols=2, loc="upper right")
plots.save(figure, "multitask.png")
