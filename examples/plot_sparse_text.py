"""Words and documents together
============================

Doubly sparse text: features and documents screened together along lambda.

With an L1 term most words get weight 0, and with a hinge most documents do not matter. Both are
proven, each helped by the other: a dropped word makes every document's row shorter.
"""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

import cvxscreen
from cvxscreen import plots

# %%
X, y = cvxscreen.datasets.sparse_text_like(1000, 3000, density=0.01)
largest = cvxscreen.lambda_max(cvxscreen.sparse_svm(X, y, 1.0))
lams = largest * np.geomspace(0.98, 0.02, 40)
before = cvxscreen.solve(cvxscreen.sparse_svm(X, y, lams[0]), tol=1e-9)
words, documents = [], []
for lam in lams[1:]:
    problem = cvxscreen.sparse_svm(X, y, lam)
    verdict = cvxscreen.screen(problem, reference=before, bound="joint")
    words.append(verdict.dropped.mean())
    documents.append(1.0 - verdict.undecided.mean())
    before = cvxscreen.solve(problem, tol=1e-9, start=before)
    assert not before.x[verdict.dropped].any()
    print(f"lambda {lam:.2e}: {words[-1]:.1%} of the words and {documents[-1]:.1%} of the "
          f"documents proven before the solve; {np.count_nonzero(before.x)} words used")

# %%
figure = Figure(figsize=(7.2, 4.6), layout="constrained")
axes = figure.subplots()
axes.semilogx(lams[1:], words, "o-", color="#1a1a1a", markersize=4, label="words proven unused")
axes.semilogx(lams[1:], documents, "s--", color="#c0561b", markersize=4,
              label="documents proven decided")
axes.invert_xaxis()
axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
axes.xaxis.set_major_formatter("{x:g}")
axes.xaxis.set_minor_formatter(NullFormatter())
axes.set_ylim(0, 1.02)
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set(xlabel="lambda, falling as the path goes on (logarithmic scale)",
         ylabel="share proven before the solve",
         title="1,000 documents, 3,000 words: proven from the lambda before")
axes.legend(frameon=False, loc="lower left")
plots.save(figure, "sparse_text.png")
