"""Models as the command hands them on: linear models in files and their predictions, metrics.

Coefficients are those of the data as they are in the file, whatever was standardised before.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.files import written_whole
from cvxscreen._support.validation import file_path
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.files import Table, kind_of, read_table
from cvxscreen.models.metric import factor_of, metric_of, rtlm, triplets
from cvxscreen.paths.path import Path as SolutionPath
from cvxscreen.paths.path import path
from cvxscreen.solvers.lambda_max import lambda_max

Array = NDArray[np.float64]

FORMATS = (".csv", ".json")


@dataclass(frozen=True)
class Fitted:
    """Coefficients for every value of C.

    Attributes
    ----------
    loss : str
    features : tuple of str
        "x1", "x2", ... where the file gave no names.
    named : bool
        Whether the file gave names.
    classes : tuple of str
        The one at -1 and the one at +1; empty for regression.
    C : tuple of float
    coefficients : tuple of tuple of float
        One row a value of C.
    intercepts, relative_gaps : tuple of float
    best_C : float or None
        Chosen by cross-validation.
    """

    loss: str
    features: tuple[str, ...]
    named: bool
    classes: tuple[str, ...]
    C: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]
    intercepts: tuple[float, ...]
    relative_gaps: tuple[float, ...]
    best_C: float | None = None

    def save(self, file: Path) -> None:
        """Write JSON (all of it) or CSV (a line a feature and a column a value of C)."""
        text = json.dumps({"cvxscreen": "linear model", **asdict(self)}, indent=1) + "\n"
        if file.suffix.lower() == ".csv":
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(["feature", *(f"C={C:.6g}" for C in self.C)])
            for j, name in enumerate(self.features):
                writer.writerow([name, *(repr(row[j]) for row in self.coefficients)])
            writer.writerow(["(intercept)", *map(repr, self.intercepts)])
            text = lines.getvalue()
        with written_whole(file) as stream:
            stream.write(text.encode("utf-8"))

    def predict(self, X: Any, C: float | None) -> tuple[Array, NDArray[Any], float]:
        """Scores ``<w, x> + b``, what they predict, and the value of C of the model."""
        chosen = self.C[-1] if self.best_C is None else self.best_C
        wanted = chosen if C is None else C
        at = int(np.argmin(np.abs(np.log(np.array(self.C)) - np.log(wanted))))
        if not np.isclose(self.C[at], wanted, rtol=1e-5):
            known = ", ".join(f"{value:.6g}" for value in self.C)
            raise InvalidInput(f"`--C` is {wanted:g}; the model has {known}.")
        scores = np.asarray(X @ np.array(self.coefficients[at])) + self.intercepts[at]
        if not self.classes:
            return scores, scores, self.C[at]
        return scores, np.array(self.classes)[(scores > 0).astype(int)], self.C[at]


def fitted(
    found: SolutionPath, problem: Problem, table: Table, loss: str, classes: tuple[str, ...],
    shift: Array, scale: Array, best_C: float | None,
) -> Fitted:
    """The models of a path over data ``(X - shift) / scale``, for X itself."""
    d = len(scale)
    points = [point for point in found.points if point.x.size]
    w = np.array([point.x[:d] / scale for point in points]).reshape(len(points), d)
    b = np.zeros(len(points))
    if problem.d > d:  # an unpenalised intercept
        b = np.array([point.x[-1] - problem.design.offset(point.x) for point in points])
    b = b - w @ shift
    names = table.features or tuple(f"x{j + 1}" for j in range(d))
    return Fitted(
        loss, names, bool(table.features), classes, tuple(float(p.value) for p in points),
        tuple(map(tuple, w.tolist())), tuple(b.tolist()),
        tuple(float(p.relative_gap) for p in points), best_C,
    )


def load_fitted(file: Path) -> Fitted:
    """What `Fitted.save` wrote as JSON.

    Raises
    ------
    InvalidInput
        If the file is missing or holds something else.
    """
    try:
        held = json.loads(file.read_text("utf-8"))
        if held.pop("cvxscreen") != "linear model":
            raise ValueError
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in held.items()
        }
        found = Fitted(**tuples)
        shape = np.array(found.coefficients, dtype=float).shape
        if shape != (len(found.C), len(found.features)):
            raise ValueError
    except OSError as error:
        raise InvalidInput(f"`MODEL`: {str(file)!r} cannot be read ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"`MODEL`: {str(file)!r} holds no model; name a .json that `path --coef` wrote."
        ) from None
    return found


def rows_for(model: Fitted, data: str, target: str | None) -> Any:
    """The features of a data file in the order of the model.

    Raises
    ------
    InvalidInput
        If a feature is missing, or there are more or fewer.
    """
    d = len(model.features)
    columns = kind_of(Path(data)) in (".csv", ".tsv", ".parquet") and target is None
    X = read_table(data, target, model.features if columns else None).X
    if X.shape[1] < d and not isinstance(X, np.ndarray):  # svmlight leaves out columns of zeros
        X.resize((X.shape[0], d))
    if X.shape[1] != d:
        raise InvalidInput(f"`DATA`: {Path(data).name} has {X.shape[1]} features, the model {d}.")
    return X



SHARE = 0.01
"""Of the largest lambda that matters, where none is given."""


@dataclass(frozen=True, eq=False)
class LearnedMetrics:
    """One metric for each lambda.

    Attributes
    ----------
    problem : Problem
    path : cvxscreen.Path
    scale : array, shape (d,)
        What every feature was divided by before; distances of raw data are those of ``x / scale``.
    """

    problem: Problem
    path: SolutionPath
    scale: Array

    def save(self, file: Path) -> None:
        """Write ``lam``, ``metric``, ``components`` (of the last lambda), ``scale``, the gaps.

        Whole or not at all.
        """
        points = self.path.points
        with written_whole(file_path("file", file)) as stream:
            np.savez(
                stream,
                lam=self.path.values,
                metric=np.array([metric_of(self.problem, point.x) for point in points]),
                components=factor_of(self.problem, points[-1].x),
                scale=self.scale,
                relative_gap=np.array([point.relative_gap for point in points]),
            )

    def __str__(self) -> str:
        return self.path.table()


def learn_metrics(
    X: Any,
    y: ArrayLike,
    k: str,
    values: Array | None,
    *,
    gamma: float,
    diagonal: bool,
    standardise: bool,
    tol: float,
) -> LearnedMetrics:
    """Metrics along `values` of lambda; a hundredth of the largest that matters when None.

    Raises
    ------
    InvalidInput
        For a `k` that is neither a number nor "all", or data without triplets.
    """
    if not (k == "all" or k.isdecimal()):
        raise InvalidInput(f"`--k` is {k!r}; a number of neighbours or 'all' is needed.")
    points = Rows(X).dense()
    scale = np.ones(points.shape[1])
    if standardise:
        spread = points.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
    points = points / scale
    chosen = triplets(points, y, "all" if k == "all" else int(k))
    problem = rtlm(points, chosen, 1.0, gamma=gamma, diagonal=diagonal)
    if values is None:
        largest = lambda_max(problem)
        values = np.array([SHARE * largest if 0.0 < largest < np.inf else 1.0])
    return LearnedMetrics(problem, path(problem, over="lam", values=values, tol=tol), scale)
