"""Plant faults into copies of the package, one at a time, and show that the tests kill every one.

    python tests/safety/laboratory/mutations.py                    # all of them
    python tests/safety/laboratory/mutations.py --only radius      # of one kind, or so named
    python tests/safety/laboratory/mutations.py --jobs 2 --out table.md

Each fault is a line of `faults`: a text that occurs exactly once in its module, what takes its
place, and the tests that should notice. A fault those tests let live meets the wider set before it
counts as a survivor. The exit status is 1 if any fault survives, if a planted text is no longer
found, or if the tests fail without a fault.

Every fault is run in a process of its own, forked from one that holds the libraries (not the
package), over a fresh copy of the checkout; kernels that a fault does not touch keep their cache.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 900
"""Seconds after which a run is given up; that proves nothing, so it counts as a survivor."""
WIDER = (
    "tests/bounds/test_bounds.py", "tests/bounds/test_named_bounds.py",
    "tests/bounds/test_regions.py",
    "tests/bounds/test_intercept.py", "tests/safety/test_safety.py", "tests/core/test_losses.py",
    "tests/core/test_duality.py", "tests/certificates/test_certificate.py",
    "tests/designs/test_rounding.py",
    "tests/screening/test_reduction.py", "tests/solvers/test_loop.py", "tests/paths/test_path.py",
    "tests/screening/test_ranges.py",
    "tests/safety/test_metric_safety.py", "tests/bounds/test_features_and_samples.py",
    "tests/cvxpy_plugin",
)


class Outcome(NamedTuple):
    """How the tests met one fault."""

    fault: Fault
    verdict: str
    test: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.verdict == "killed"


def planted(text: str, fault: Fault) -> str:
    """The source with the fault in it.

    Raises
    ------
    ValueError
        Unless the old text occurs exactly once and the new one differs from it.
    """
    found = text.count(fault.old)
    if found != 1 or fault.new == fault.old:
        raise ValueError(f"{fault.name}: its old text occurs {found} times in {fault.module}")
    return text.replace(fault.old, fault.new)


def check(root: Path = ROOT) -> list[str]:
    """What is wrong with the table itself; empty if every fault can be planted.

    Those of a module that do not meet in one place are planted together, and read once.
    """
    wrong, modules = [], {fault.module for fault in FAULTS}
    source = {name: (root / "cvxscreen" / name).read_text("utf-8") for name in sorted(modules)}
    tests = {test.partition("::")[0] for fault in FAULTS for test in fault.tests}
    said = {name: (root / name).read_text("utf-8") for name in sorted(tests)}
    for module, text in source.items():
        together = text
        for fault in FAULTS:
            if fault.module != module:
                continue
            try:
                alone = planted(text, fault)
                if together.count(fault.old) == 1:
                    together = together.replace(fault.old, fault.new)
                else:
                    ast.parse(alone, module)
            except (SyntaxError, ValueError) as error:
                wrong.append(str(error))
            for test in fault.tests:
                path, _, name = test.partition("::")
                if f"def {name}(" not in said[path]:
                    wrong.append(f"{fault.name}: there is no {test}")
        try:
            ast.parse(together, module)
        except SyntaxError as error:
            wrong.append(f"{module}, all of its faults planted: {error}")
    return wrong


def copied(source: Path, place: Path) -> None:
    """Copy what the tests need; times are kept, so that compiled kernels need not be made again."""
    for name in ("cvxscreen", "tests"):
        shutil.copytree(source / name, place / name)
    shutil.copytree(source / "docs", place / "docs")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(source / name, place / name)


def forget_callers(place: Path, module: str) -> None:
    """Remove compiled loops that may hold `module`'s: numba watches a loop's own file only."""
    name = "cvxscreen." + module.removesuffix(".py").replace("/", ".")
    for source in (place / "cvxscreen").rglob("*.py"):
        if name in source.read_text("utf-8"):
            for kept in (source.parent / "__pycache__").glob(f"{source.stem}.*.nb[ic]"):
                kept.unlink()


def preload() -> None:
    """Import what every run needs, but nothing of the package."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MPLBACKEND="Agg")
    for name in ("cvxpy", "hypothesis", "mpmath", "numba", "scipy.sparse", "sklearn.base"):
        __import__(name)
    if "cvxscreen" in sys.modules:
        raise RuntimeError("the package is loaded already: its faults would not be met")


def child(place: Path, tests: Sequence[str], pipe: Any) -> None:
    """Run `tests` in the copy at `place`; sends pytest's status and the first test that failed."""
    import pytest

    class Watch:
        failed = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed and not self.failed:
                self.failed = f"collection of {report.nodeid}"

    os.chdir(place)
    with (place / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ["PYTHONPATH"] = str(place)
    os.environ.pop("PYTEST_ADDOPTS", None)  # meant for the run that asked for this one
    sys.path.insert(0, str(place))
    signal.alarm(LIMIT)
    watch = Watch()
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider"]
    status = int(pytest.main([*options, *tests], plugins=[watch]))
    used = Path(sys.modules["cvxscreen"].__file__ or "").resolve()
    if not used.is_relative_to(place.resolve()):
        status, watch.failed = 99, f"the copy was not used, but {used}"
    pipe.send((status, watch.failed))
    pipe.close()
    os._exit(0)


def run(place: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's status and the first failure of a forked run; 98 for one that did not end well."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(place, tests, there))
    process.start()
    there.close()
    try:
        found: tuple[int, str] = here.recv()
        process.join()
    except EOFError:
        process.join()
        ended = process.exitcode != -signal.SIGALRM
        found = (98, "the process crashed" if ended else "the tests did not end")
    return found


def judged(fault: Fault, source: Path, wider: bool = True) -> Outcome:
    """Plant one fault into a copy of `source` and see."""
    began, verdict, test = monotonic(), "SURVIVED", ""
    with tempfile.TemporaryDirectory(prefix="cvxscreen-fault-") as folder:
        place = Path(folder)
        copied(source, place)
        target = place / "cvxscreen" / fault.module
        target.write_text(planted(target.read_text("utf-8"), fault), "utf-8")
        forget_callers(place, fault.module)
        for tests in (fault.tests, WIDER)[: 1 + wider]:
            status, test = run(place, tests)
            if status == 1:
                verdict = "killed" if tests is fault.tests else "killed late"
                break
            if status != 0:
                verdict = "BROKEN"
                break
    late = verdict == "killed late"
    return Outcome(fault, "killed" if late else verdict, test + " (wider set)" * late,
                   monotonic() - began)


def table(outcomes: Sequence[Outcome]) -> str:
    """All outcomes as a Markdown table."""
    rows = ["| fault | kind | module | killed by | s |", "|---|---|---|---|---|"]
    for fault, verdict, test, seconds in outcomes:
        by = test.removeprefix("tests/") if verdict == "killed" else f"**{verdict}** {test}"
        rows.append(f"| {fault.name} | {fault.kind} | {fault.module} | {by} | {seconds:.0f} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a kind, a module, or part of a name")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    parser.add_argument("--skip-baseline", action="store_true",
                        help="do not first run the tests without a fault")
    parser.add_argument("--narrow", action="store_true", help="do not go on to the wider tests")
    asked = parser.parse_args(arguments)
    wrong = check()
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    chosen = [f for f in FAULTS if asked.only in (f.kind, f.module) or asked.only in f.name]
    preload()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="cvxscreen-plain-") as folder:
        source = Path(folder)
        copied(ROOT, source)
        if not asked.skip_baseline:  # it also compiles what all the others share
            status, failed = run(source, sorted({test for f in chosen for test in f.tests}))
            if status != 0:
                print(f"without any fault the tests fail: {failed}", file=sys.stderr)
                return 1
        with ThreadPoolExecutor(max(asked.jobs, 1)) as pool:
            for done in pool.map(lambda fault: judged(fault, source, not asked.narrow), chosen):
                outcomes.append(done)
                print(f"{done.verdict:8} {done.seconds:5.0f} s  {done.fault.name}: {done.test}",
                      flush=True)
    text = table(outcomes)
    print(f"\n{text}")
    killed = sum(done.killed for done in outcomes)
    summary = f"{killed} of {len(outcomes)} planted faults killed"
    print(f"\n{summary}")
    if asked.out:
        asked.out.write_text(f"{text}\n\n{summary}\n", "utf-8")
    return 0 if outcomes and killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
