"""What both sides add
===================

How much features and samples screened together add to either alone, over lambda and the gap.

The rows of maps are what can be decided: words without weight, documents beyond the margin, and
documents that are wrong by more than the bend of the loss (Fig. 2 of Shibagaki et al. 2016).
"""

import numpy as np

import cvxscreen
from cvxscreen import plots

GAPS = 10.0 ** -np.arange(1, 7)


def share(found: np.ndarray, there_is: np.ndarray) -> float:
    return float((found & there_is).sum() / there_is.sum()) if there_is.any() else np.nan


def measured(problem: cvxscreen.Problem) -> tuple[np.ndarray, list[int]]:
    """Rates (gap, row, alone/added/kept) at one lambda, and what there is to decide."""
    best = cvxscreen.solve(problem, tol=1e-10)
    there = cvxscreen.screen(problem, reference=best, bound="joint")
    rows = (there.dropped, there.zero, there.linear)
    rates, iterate = [], None
    for gap in GAPS:
        iterate = cvxscreen.solve(problem, tol=gap, mode="safe", solver="sdca", bounds=(),
                                  start=iterate)
        words = cvxscreen.screen(problem, reference=iterate, bound="dual").dropped
        alone = cvxscreen.screen(problem, reference=iterate, bound="midpoint")
        both = cvxscreen.screen(problem, reference=iterate, bound="joint")
        first = [share(words, rows[0]), share(alone.zero, rows[1]), share(alone.linear, rows[2])]
        added = [share(a & ~b, r) for a, b, r in zip(
            (both.dropped, both.zero, both.linear), (words, alone.zero, alone.linear), rows,
            strict=True)]
        kept = [share(both.needed_features, ~rows[0]),
                share(both.needed_terms, ~(rows[1] | rows[2])), 0.0]
        rates.append([first, added, kept])
    return np.array(rates), [int(r.sum()) for r in rows]

# %%
X, y = cvxscreen.datasets.sparse_text_like(1000, 3000, density=0.01)
base = cvxscreen.sparse_svm(X, y, 1.0)
lams = cvxscreen.lambda_max(base) * np.geomspace(0.9, 0.01, 12)
columns = [measured(base.with_(lam=float(lam))) for lam in lams]
for lam, (_, there) in zip(lams, columns, strict=True):
    print(f"lambda {lam:.2e}: {there[0]} words unused, {there[1]} documents at 0, "
          f"{there[2]} at the bound")
rates = np.array([column[0] for column in columns])  # lambda, gap, kind, row
names = ("unused words", "documents at 0", "documents at the bound")
maps = {
    name: (rates[:, :, 0, row].T, rates[:, :, 1, row].T,
           rates[:, :, 2, row].T if row < 2 else None)
    for row, name in enumerate(names)
}
counts = {name: [column[1][row] for column in columns] for row, name in enumerate(names)}
figure = plots.both_sides(lams, GAPS, maps, counts,
                          title="1,000 documents, 3,000 words: proven by iterates of SDCA")
plots.save(figure, "both_sides.png")
