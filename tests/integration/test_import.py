"""What ``import cvxscreen`` loads (nothing), and that CVXPY knows its method all the same."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
from importlib import import_module
from pathlib import Path

import children
import pytest

import cvxscreen
from cvxscreen._support.compiled import Announcement

ROOT = Path(__file__).resolve().parents[2]
LISTS = "[[1.0, 2.0], [2.0, 1.0]], [1.0, -1.0]"
PROBLEM = """
w = cp.Variable(2)
prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(cp.pos(1 - X @ w))))
prob.solve(method="screen", always=True)
assert prob.solver_stats.extra_stats["cvxscreen"].recognised
"""


def run(program: str) -> str:
    """What `program` prints in an interpreter of its own, which must be silent otherwise.

    But for the line that says, where nothing has been compiled yet, what takes so long.
    """
    done = children.run(program)
    assert done.returncode == 0, done.stderr
    assert done.stderr.replace(f"{Announcement.TEXT}\n", "") == ""
    return done.stdout


def loaded_by(program: str) -> set[str]:
    """The libraries that `program` loads, itself included."""
    tail = "\nimport json, sys\nprint(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    return set(json.loads(run(program + tail)))


def test_a_fresh_interpreter_imports_the_package_under_test() -> None:
    assert run("import cvxscreen\nprint(cvxscreen.__file__)") == f"{cvxscreen.__file__}\n"


def test_import_loads_no_library() -> None:
    heavy = {"cvxpy", "dask", "matplotlib", "numba", "numpy", "scipy", "sklearn", "tqdm"}
    assert not heavy & loaded_by("import cvxscreen")


def test_own_problems_are_solved_without_cvxpy() -> None:
    solved = f"import cvxscreen\ncvxscreen.solve(cvxscreen.svm({LISTS})).certificate.ok"
    path = f"{solved}\ncvxscreen.path(cvxscreen.svm({LISTS}), values=[1.0], solver='newton')"
    assert not {"cvxpy", "dask", "matplotlib", "sklearn"} & loaded_by(path)


FIRST = """
import sys
import numpy as np, cvxpy as cp, cvxscreen
def solve(n, always):
    X, y = cvxscreen.datasets.two_gaussians(n, 5, seed=1)
    w, b = cp.Variable(5), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss))
    prob.solve(method="screen", always=always)
    assert prob.solver_stats.extra_stats["cvxscreen"].recognised == (always or n >= 1000)
    print(*sys.modules)
for n, always in ((100, False), (300, False), (300, True), (4000, False)):
    solve(n, always)
"""


def test_the_first_problems_of_a_process_wait_for_no_numba() -> None:
    """Recognised or not, by the method for few terms or by the loop: numpy alone.

    Nor for what only other problems need, or, where CVXPY solves it plainly, for anything.
    """
    plugin = "cvxscreen.cvxpy_plugin"
    others = {f"{plugin}.{name}" for name in ("budgets", "composite", "cvxpy_solver")}
    others |= {"cvxscreen.multitask", "numba", "tqdm", "sklearn", "dask", "matplotlib"}
    recognising = {f"{plugin}.plugin", f"{plugin}.recognise", "cvxscreen.solvers"}
    *plain, small, large = (set(line.split()) for line in run(FIRST).splitlines())
    for loaded in plain:
        assert not (others | recognising) & loaded
    assert recognising <= small
    assert not others & large


LOADED_AFTER = """
import os, sys
import cvxscreen
X, y = cvxscreen.datasets.two_gaussians(3000, 5, seed=1)
problem, solved = cvxscreen.svm(X, y), 0
class Told:  # who asks for numba: all that is wanted to know
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            print(solved, flush=True)
            os._exit(0)
sys.meta_path.insert(0, Told())
while True:
    solved += cvxscreen.solve(problem).certificate.ok
"""


def test_what_is_compiled_is_loaded_once_many_problems_were_solved_without() -> None:
    """After the same problem in every run: what is counted is no time."""
    first, second = run(LOADED_AFTER), run(LOADED_AFTER)
    assert 5 < int(first) == int(second) < 50


COMPILED = """
import sys
from cvxscreen import *
import cvxscreen.cli, cvxscreen.estimators
own = [module for name, module in sys.modules.items() if name.split(".")[0] == "cvxscreen"]
assert len(own) > 100
for module in own:
    for name, value in vars(module).items():
        if type(value).__name__ == "CompiledFunction" and value.loaded:
            print(module.__name__, name)
assert "numba" not in sys.modules
"""


def test_even_everything_compiles_nothing() -> None:
    assert run(COMPILED) == ""


DATA = "import numpy as np\nX = np.array([[1.0, 2.0], [-2.0, 1.0], [0.5, 0.5]])\n"


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param("import cvxpy as cp, cvxscreen", marks=pytest.mark.long),
        "import cvxscreen, cvxpy as cp",
        pytest.param("from cvxscreen import svm\nimport cvxpy as cp", marks=pytest.mark.long),
        pytest.param("from cvxscreen import *\nimport cvxpy as cp", marks=pytest.mark.long),
    ],
)
def test_method_is_registered_in_every_order(imports: str) -> None:
    run(imports + "\n" + DATA + PROBLEM + NOBODY_WATCHES)


NOBODY_WATCHES = """
import sys
assert not [f for f in sys.meta_path if type(f).__module__.startswith("cvxscreen")]
assert not type(cp.__loader__).__module__.startswith("cvxscreen")
assert cp.__spec__.loader is cp.__loader__
"""

SMALL_CVXPY = """
import scipy
class Problem:
    METHODS = {}
    @classmethod
    def register_solve(cls, name, function):
        cls.METHODS[name] = function
"""
"""A package of this name that is imported in no time, for what does not depend on its content."""


@pytest.mark.parametrize("imports", [
    "import cvxpy as cp, cvxscreen",
    "import cvxscreen, cvxpy as cp",
    "import cvxscreen.errors\nimport cvxpy.atoms\nimport cvxpy as cp",
    "import importlib.util, cvxscreen\n"
    "assert importlib.util.find_spec('cvxpy').loader.is_package('cvxpy')\nimport cvxpy as cp",
    """
import sys, cvxscreen
sys.modules["scipy"] = None  # the import fails, and can be tried again
try:
    import cvxpy
except ImportError:
    del sys.modules["scipy"]
else:
    raise SystemExit("it did not fail")
import cvxpy as cp
""",
])
def test_whatever_comes_first_the_method_is_registered_once(imports: str, tmp_path: Path) -> None:
    (tmp_path / "cvxpy").mkdir()
    (tmp_path / "cvxpy" / "__init__.py").write_text(SMALL_CVXPY)
    (tmp_path / "cvxpy" / "atoms.py").write_text("")
    first = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    run(f"{first}{imports}\nassert list(cp.Problem.METHODS) == ['screen']{NOBODY_WATCHES}")


def test_two_threads_may_import_both_at_once() -> None:
    run("""
import threading
both = threading.Barrier(2)
def load(name):
    both.wait()
    __import__(name)
threads = [threading.Thread(target=load, args=(name,)) for name in ("cvxpy", "cvxscreen")]
for thread in threads: thread.start()
for thread in threads: thread.join()
import cvxpy
assert "screen" in cvxpy.Problem.REGISTERED_SOLVE_METHODS
""")


def test_records_unpickle_where_nothing_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "solution.pickle"
    file.write_bytes(pickle.dumps(cvxscreen.solve(cvxscreen.svm(*ast.literal_eval(LISTS)))))
    read = f"import pickle\ns = pickle.load(open({str(file)!r}, 'rb'))\nprint(s.certificate.ok)"
    assert run(read) == "True\n"


def test_public_names_live_where_the_stub_says() -> None:
    """The stub is what type checkers read and what the package loads its names by."""
    tree = ast.parse(Path(cvxscreen.__file__).with_suffix(".pyi").read_text("utf-8"))
    homes = {
        alias.name: node.module
        for node in tree.body if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(homes) == set(cvxscreen.__all__)
    for name, home in homes.items():
        module = import_module(f"cvxscreen.{home or name}")
        assert getattr(cvxscreen, name) is (vars(module)[name] if home else module)


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """An import of ``cvxscreen.path`` would hide the function of that name."""
    files = {file.stem for file in (ROOT / "cvxscreen").iterdir()}
    functions = {n for n in cvxscreen.__all__ if not inspect.ismodule(getattr(cvxscreen, n))}
    assert not files & functions


def test_unknown_names_are_refused_and_known_ones_listed() -> None:
    with pytest.raises(AttributeError, match="attribute svn"):
        cvxscreen.svn  # noqa: B018
    assert set(cvxscreen.__all__) <= set(dir(cvxscreen))
    with pytest.raises(ImportError):
        exec("from cvxscreen import svn")
