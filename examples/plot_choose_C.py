"""Choosing C
==========

C by cross-validation: one screened path a fold, in scikit-learn's own clothes.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cvxscreen import plots
from cvxscreen.estimators import ScreenedSVCCV

# %%
X, y = load_breast_cancer(return_X_y=True)
search = ScreenedSVCCV(np.geomspace(1e-3, 10, 20), cv=5)
model = make_pipeline(StandardScaler(), search).fit(X, y)
mean, spread = search.scores_.mean(axis=0), search.scores_.std(axis=0)
gaps = search.path_gaps_
print(f"best C {search.C_:.3g}, accuracy on the data left out {mean.max():.2%}, on all of it "
      f"{model.score(X, y):.2%}; {gaps.size} certified solves, largest gap {gaps.max():.1e}")

# %%
figure = Figure(figsize=(7.2, 4.2), layout="constrained")
axes = figure.subplots()
axes.fill_between(search.Cs_, mean - spread, mean + spread, color="#d0d0d0",
                  label="standard deviation over the folds")
axes.semilogx(search.Cs_, mean, "o-", color="#1a1a1a", markersize=4, label="mean accuracy")
axes.axvline(search.C_, color="#c0561b", linestyle="--", label=f"chosen: C = {search.C_:.3g}")
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set(xlabel="C (logarithmic scale)", ylabel="accuracy on the fold left out",
         title="Breast cancer: five-fold cross-validation of a hinge SVM")
axes.legend(frameon=False, loc="lower right")
plots.save(figure, "choose_C.png")
