"""What every compiled loop shares: its decorator, floating-point freedoms, index types.

Importing numba takes a fifth of a second, loading what it has compiled as much again. A process
that solves a small problem or two, in numpy alone, waits for neither: numba is imported when the
first compiled function is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property, lru_cache, update_wrapper
from hashlib import sha256
from pathlib import Path
from threading import RLock
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.extensions import uncollected

SUMS = frozenset({"contract", "reassoc", "nsz"})
"""Freedoms of floating point for loops that only sum: fused, in any order, signs of zero aside.

NaN and infinity stay what they are, so a result that is none is still seen."""


CONTRACT = frozenset({"contract"})
"""Products may be fused with the sum they go to, as processors do; the order of sums is kept."""

def compiled(
    *, fastmath: frozenset[str] = frozenset(), inline: bool = False, allocates: bool = True,
    passed: bool = False, alone: bool = True,
) -> Any:
    """The decorator of every compiled loop: ``numba.njit``, cached on disk, divisions as numpy's.

    Where there is no place to write to, each process compiles for itself.

    A decorated function is an ordinary function of its module: it can be called alone, pickled, and
    called in functions that numba compiles; ``loop.py_func`` is its source uncompiled. It takes
    named records and few arguments; numba keeps one version on disk for each combination of
    argument types. Other threads of Python run meanwhile: what a loop writes to belongs to its
    caller.

    Parameters
    ----------
    fastmath : frozenset of str
        LLVM's freedoms; `SUMS` where only the order of a sum is free.
    inline : bool
        Whether it is written into the loops that call it: a call counts the references of each
        array it is given, which is much beside a few dozen products.
    allocates : bool
        False for a function that makes no array: numba then counts no references to those in its
        records, which costs a loop of many short calls a tenth of its time, and less to compile.
    passed : bool
        Whether it is also passed to another loop, by its type: that takes an entry of its own, a
        tenth of what there is to compile.
    alone : bool
        False for a part of one loop that nobody calls from Python: unpacking its records there is a
        third of what there is to compile.
    """
    options: dict[str, Any] = {
        "fastmath": set(fastmath), "error_model": "numpy", "nogil": True,
        "inline": "always" if inline else "never", "no_cfunc_wrapper": not passed,
        "no_cpython_wrapper": not alone,
        **({} if allocates else {"_nrt": False}),
    }
    return lambda function: CompiledFunction(function, options)


class CompiledFunction:
    """A function that numba compiles, and numba's dispatcher of it from the first use on.

    Parameters
    ----------
    function : function
    options : dict
        Of ``numba.njit``.

    Attributes
    ----------
    py_func : function
        As it is written. Every other attribute that is not here is the dispatcher's.
    """

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func, self._options = function, options

    @cached_property
    def dispatcher(self) -> Any:
        """What numba makes of it; nothing is compiled yet."""
        import_numba()
        from numba import njit
        from numba.core.options import DefaultOptions

        _announce_compiling()
        options = dict(self._options)
        if not hasattr(DefaultOptions, "_nrt"):  # numba's option against counting references
            options.pop("_nrt", None)
        try:
            made = njit(cache=True, **options)(self.py_func)
        except RuntimeError:  # neither beside the source nor at home anything can be written
            return njit(**options)(self.py_func)
        index = _index(made)
        if index is not None:
            # Asked for before the rest is read: records of an earlier version may have other names.
            index._version += _digest(self.py_func) + _words(options)
            index._source_stamp = ""
        return made

    @property
    def loaded(self) -> bool:
        """Whether there is a dispatcher; asking for one of its attributes makes it."""
        return "dispatcher" in self.__dict__

    @property
    def _numba_type_(self) -> Any:
        # By this name numba asks objects for their type: so compiled callers find the dispatcher.
        from numba.core import types

        return types.Dispatcher(self.dispatcher)

    def __call__(self, *args: Any) -> Any:
        return self.dispatcher(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of every object: by `copy`, `pickle`, NumPy
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)


class Announcement:
    """What compiling has cost, and a line on standard error once that is `PATIENCE` CPU seconds.

    Meanwhile no garbage is looked for: numba makes so many objects that this is a tenth of the
    time (`newton` of the compiled path: 4.2 CPU seconds for 4.8, and 18 MB more).

    Attributes
    ----------
    silent : bool
        Whether it has been said, or is not to be.
    seconds : float
        CPU seconds that this process has spent compiling our loops so far.
    """

    PATIENCE = 1.0
    TEXT = "cvxscreen: compiling, once a machine (`cvxscreen warmup` does it in advance)"

    def __init__(self) -> None:
        self.silent, self.seconds = False, 0.0
        self._depth, self._began, self._uncollected = 0, 0.0, ExitStack()

    def on_start(self, event: Any) -> None:
        """A function begins to be compiled, maybe for another one that waits for it."""
        if self._depth or _ours(event):
            if not self._depth:
                self._began = process_time()
                self._uncollected.enter_context(uncollected())
            self._depth += 1
            self._say(self.seconds + process_time() - self._began)

    def on_end(self, event: Any) -> None:
        """A function is compiled; the seconds it took are counted once."""
        if self._depth:
            self._depth -= 1
            spent = process_time() - self._began
            self._say(self.seconds + spent)
            if not self._depth:
                self.seconds += spent
                self._uncollected.close()

    def notify(self, event: Any) -> None:
        """Numba's word: something begins or ends."""
        (self.on_start if event.is_start else self.on_end)(event)

    def _say(self, seconds: float) -> None:
        if seconds >= self.PATIENCE and not self.silent:
            self.silent = True
            if sys.stderr is not None:
                sys.stderr.write(self.TEXT + "\n")


def _ours(event: Any) -> bool:
    """Whether a function of this package is compiled."""
    loop = getattr(event.data.get("dispatcher"), "py_func", None)
    return str(getattr(loop, "__module__", "")).startswith("cvxscreen.")


ANNOUNCEMENT = Announcement()


@lru_cache(maxsize=1)
def _announce_compiling() -> None:
    """Let numba tell `ANNOUNCEMENT` of everything that it compiles in this process."""
    from numba.core import event

    event.Listener.register(Announcement)
    event.register("numba:compile", ANNOUNCEMENT)


IMPORTING = RLock()
"""Held by the one thread that imports numba."""


@lru_cache(maxsize=1)
def import_numba() -> None:
    """Import numba and what it knows of types, without looking for garbage meanwhile.

    Numba reads the second before it compiles or loads anything; 0.11 s, and with garbage looked for
    as much again (see `uncollected`). A thread that comes meanwhile waits: halfway numba would not
    know the attributes of records, and refuse to compile.
    """
    with IMPORTING:
        first = not_imported()
        with uncollected() if first else nullcontext():
            import numba  # noqa: F401
            from numba.core.registry import cpu_target

            if first:
                cpu_target.target_context.refresh()


def not_imported() -> bool:
    """Whether a `compiled` function that is called now must wait for numba to be imported."""
    return "numba" not in sys.modules


def _index(loop: Any) -> Any:
    """Numba's index of what it keeps on disk of a function; None where there is none."""
    return getattr(getattr(loop, "_cache", None), "_cache_file", None)


def _digest(function: Any) -> str:
    """What the sources hold that are compiled into `function`.

    Numba looks at the function's own file alone. What is compiled holds the functions that it calls
    as well: after an upgrade that changed only these it would go on as before. So the file counts,
    and those of the compiled functions and the records that its module names, and so on.
    """
    modules, found = [function.__module__], {""}
    files = []
    while modules:
        name = modules.pop()
        if name in found or name not in sys.modules:
            continue
        found.add(name)
        files.append(str(getattr(sys.modules[name], "__file__", None) or ""))
        for value in vars(sys.modules[name]).values():
            record = isinstance(value, type) and issubclass(value, tuple)
            if record or isinstance(value, CompiledFunction):
                modules.append(value.__module__)
    whole = sha256()
    for file in sorted(files):
        whole.update(_content(file))
    return whole.hexdigest()


def _words(options: dict[str, Any]) -> str:
    """The options of a compiled function, in an order that does not depend on the process."""
    return repr(sorted((name, sorted(map(str, value)) if isinstance(value, set) else value)
                       for name, value in options.items()))


@lru_cache(maxsize=64)
def _content(file: str) -> bytes:
    """A digest of one source; of a path where nothing can be read."""
    try:
        return sha256(Path(file).read_bytes()).digest()
    except OSError:
        return file.encode()


@lru_cache(maxsize=64)
def on_disk(loop: Any) -> bool:
    """Whether an earlier process has left compiled code of a `compiled` function for this one."""
    if not hasattr(loop, "stats"):  # interpreted: nothing is compiled
        return True
    index = _index(loop)
    if index is None:  # there is no place to keep it
        return False
    try:
        return bool(index._load_index())
    except OSError:
        return False


def waited(loop: Any) -> float:
    """CPU seconds that earlier processes have spent without compiled code of `loop`, as noted."""
    try:
        return float(_notes(loop).read_text("ascii"))
    except (OSError, ValueError):  # nothing noted, nowhere to, or half-written
        return 0.0


def note_waiting(loop: Any, seconds: float) -> None:
    """Let later processes know of so many seconds, where there is a place to keep them."""
    with suppress(OSError):
        _notes(loop).write_text(f"{seconds:.3f}", "ascii")


def _notes(loop: Any) -> Path:
    """Beside what numba keeps of `loop` on disk; no file where it keeps nothing."""
    place = getattr(_index(loop), "_index_path", None)
    if place is None:
        raise FileNotFoundError
    return Path(place).with_suffix(".waited")


def at_hand(loop: Any) -> bool:
    """Whether nobody need wait for a compiler: this or an earlier process compiled `loop`."""
    return on_disk(loop) or bool(loop.signatures)  # the last takes 0.1 ms


class CompileClock:
    """CPU seconds that have been spent without code that could be compiled.

    The rule of renting and buying: compile once as much time has been spent the slow way as
    compiling takes. Whatever comes, that is at most twice the least time in hindsight.

    Parameters
    ----------
    price : float
        CPU seconds that compiling takes.
    loop : compiled function, optional
        With it, what this process has spent is noted for later ones: programs that each wait a
        little are to have compiled code, too, after a few runs.
    """

    def __init__(self, price: float, loop: Any = None) -> None:
        self.price, self.spent, self.pays, self.loop = price, 0.0, False, loop
        self._unsaid = 0.0

    @cached_property
    def before(self) -> float:
        """What earlier processes have spent."""
        return 0.0 if self.loop is None else waited(self.loop)

    @contextmanager
    def rent(self, coming: int = 0) -> Iterator[None]:
        """Count what is done within, but for what is compiled meanwhile: that is bought, not rent.

        So many more of the kind are known to be `coming`: compiling is due at once, and ``pays``
        in the call that they belong to, where these alone would cost its price.
        """
        began = process_time() - ANNOUNCEMENT.seconds
        try:
            yield
        finally:
            each = process_time() - ANNOUNCEMENT.seconds - began
            self.spent += each
            self._note(each)
            self.pays = coming * each >= self.price
            if self.pays:
                self.spent = max(self.spent, self.price)

    def _note(self, seconds: float) -> None:
        self._unsaid += seconds
        if self._unsaid < WORTH_A_NOTE or not_imported():  # numba knows where, and is not awaited
            return
        if self.loop is not None:
            note_waiting(self.loop, self.before + self.spent)
            self._unsaid = 0.0

    @property
    def due(self) -> bool:
        """Whether enough has been spent without the loop that compiling it pays."""
        if self.spent >= self.price:
            return True
        return not not_imported() and self.before + self.spent >= self.price

    @property
    def loaded_or_due(self) -> bool:
        """Whether its `loop` is to be taken without importing numba for it before it is due."""
        return self.spent >= self.price or (not not_imported() and self.bought)

    @property
    def bought(self) -> bool:
        """Whether its `loop` is compiled, by whatever process, or is to be now."""
        return self.due or at_hand(self.loop)


WORTH_A_NOTE = 0.05
"""CPU seconds from which on they are written down, which takes less than a thousandth of them."""


def unsigned(*indices: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """The same index arrays, as unsigned numbers; none is negative.

    Of a signed index compiled code asks whether it counts from the end: half of a loop's time.
    """
    return tuple(array.view(f"u{array.dtype.itemsize}") for array in indices)


def read_only(*columns: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The same numbers, not to be written to, and vectors in one piece, whatever the arrays are.

    Numba compiles a loop anew for an array that may be written to, and for one in pieces; what a
    loop only reads is any of these: a column that is kept, rows of one, one number n times, a file.
    """
    for column in columns:
        whole = np.ascontiguousarray(column) if column.ndim == 1 else column
        if whole.flags.writeable:
            whole = whole.view()
            whole.flags.writeable = False
        yield whole
