"""A portfolio by CVaR
===================

A portfolio by conditional value at risk: only the worst scenarios are solved for.

The CVaR of a loss is the mean of its worst 5 %. Each scenario is one hinge around the value at
risk: those that are clearly better are flat, those that are clearly worse are lines, and only the
scenarios near the value at risk decide the weights.
"""

import numpy as np
from matplotlib.figure import Figure

import cvxscreen
from cvxscreen import plots

# %%
rng = np.random.default_rng(0)
factors = rng.standard_t(4, (20_000, 3)) @ rng.uniform(0.0, 0.01, (3, 12))
returns = 0.0004 + factors + 0.01 * rng.standard_t(4, (20_000, 12))
problem = cvxscreen.cvar(returns, beta=0.95)
solution = cvxscreen.solve(problem, tol=1e-8)
print(solution)
risk, worst = solution.intercept, solution.value
print(f"value at risk {risk:.2%}, mean of the losses beyond it {worst:.2%}")
print("weights", np.round(solution.w, 3))

# %%
losses = -returns @ solution.w
near = np.sort(np.abs(losses - risk))[solution.rounds[-1].kept]
equal = -returns.mean(axis=1)
print(f"equal weights: {np.sort(equal)[-1000:].mean():.2%} instead")

# %%
figure = Figure(figsize=(7.2, 4.4), layout="constrained")
axes = figure.subplots()
edges = np.linspace(-0.03, 0.06, 91)
axes.hist(np.clip(losses, edges[0], edges[-1]), edges, color="#f8d2a0", edgecolor="#1a1a1a",
          linewidth=0.3, label="losses of 20,000 scenarios")
axes.axvspan(risk - near, risk + near, color="#6d9dc5", alpha=0.6,
             label=f"{solution.rounds[-1].kept:,} nearest: kept")
axes.axvline(risk, color="#1a1a1a", label=f"value at risk, {risk:.2%}")
axes.axvline(worst, color="#c0561b", linestyle="--", label=f"CVaR, {worst:.2%}")
axes.set(yscale="log", xlabel="loss of the portfolio", ylabel="scenarios")
axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
axes.set_title("A portfolio of 12 assets by conditional value at risk")
axes.set_ylim(0.7, 3e5)
axes.legend(frameon=False, loc="upper left")
plots.save(figure, "cvar.png")
