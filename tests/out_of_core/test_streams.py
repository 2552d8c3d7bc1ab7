"""Passes over chunks: the tree of the reduction, the engine of this process, and the sources."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import Blocks, LocalEngine, Mapped, Tree, opened


@pytest.mark.parametrize(
    ("leaves", "shape"),
    [
        (1, "0"), (2, "(01)"), (3, "((01)2)"), (5, "(((01)(23))4)"), (6, "(((01)(23))(45))"),
        (7, "(((01)(23))((45)6))"),
    ],
)
def test_tree_has_one_shape_whatever_arrives_first(leaves: int, shape: str) -> None:
    rng = np.random.default_rng(0)
    for order in [range(leaves), reversed(range(leaves)), rng.permutation(leaves)]:
        tree = Tree(leaves, lambda left, right: f"({left}{right})")
        for k in order:
            tree.put(int(k), str(k))
        assert tree.result() == shape


@dataclass(frozen=True)
class Sum:
    """Column sums weighted by a column; float32 so that the order of the sums shows."""

    def __call__(self, block: Any, start: int, weight: Any) -> Any:
        return (block * weight[:, None]).sum(axis=0, dtype=np.float32)

    def merge(self, left: Any, right: Any) -> Any:
        return left + right


def test_workers_do_not_change_a_bit() -> None:
    X = np.random.default_rng(1).standard_normal((997, 3)).astype(np.float32)
    weight = np.linspace(0.0, 1.0, 997, dtype=np.float32)
    source = Blocks(tuple(X[k : k + 31] for k in range(0, 997, 31)))
    results = [LocalEngine(workers).run(Sum(), source, (weight,)) for workers in (1, 2, 4)]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    np.testing.assert_allclose(results[0], weight @ X, rtol=1e-4, atol=1e-4)


class Failing(Sum):
    """Refuses one chunk."""

    def __call__(self, block: Any, start: int, weight: Any) -> Any:
        if start == 31:
            raise InvalidInput("rows 31 to 61 hold NaN")
        return super().__call__(block, start, weight)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_of_a_task_is_raised(workers: int) -> None:
    source = Blocks(tuple(np.ones((31, 2)) for _ in range(9)))
    with pytest.raises(InvalidInput, match="rows 31 to 61"):
        LocalEngine(workers).run(Failing(), source, (np.ones(279),))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_gather_takes_rows_in_order(kind: Any) -> None:
    X = np.arange(60.0).reshape(20, 3)
    source = Blocks(tuple(kind(X[k : k + 4]) for k in range(0, 20, 4)))
    for rows in ([0, 3, 4, 9, 19], [6], [], list(range(20))):
        found = LocalEngine().gather(source, np.array(rows, dtype=int))
        found = found.toarray() if sp.issparse(found) else found
        assert np.array_equal(found, X[rows])


def test_a_map_travels_as_a_file_name(tmp_path: Path) -> None:
    X = np.random.default_rng(2).standard_normal((5000, 40))
    np.save(tmp_path / "X.npy", X)
    whole = np.load(tmp_path / "X.npy", mmap_mode="r")
    for view, wanted in [(whole, X), (whole[17:4000], X[17:4000]), (whole[3::2], X[3::2])]:
        source = Mapped(view, chunk_bytes=100_000)
        sent = pickle.dumps(source)
        assert len(sent) < 1000
        again = pickle.loads(sent)
        assert again.bounds == source.bounds
        blocks = [again.load(k) for k in range(len(again.bounds) - 1)]
        assert len(blocks) > 3
        assert np.array_equal(np.concatenate(blocks), wanted)


def test_what_counts_as_chunks(tmp_path: Path) -> None:
    X = np.ones((8, 2))
    np.save(tmp_path / "X.npy", X)
    assert opened(X) is None
    assert opened(sp.csr_matrix(X)) is None
    found = opened(np.load(tmp_path / "X.npy", mmap_mode="r"))
    assert found is not None
    assert isinstance(found[0], Mapped)
    engine = LocalEngine(2)
    assert opened((Blocks((X,)), engine)) == (Blocks((X,)), engine)


@pytest.mark.parametrize(
    "blocks", [(), (np.ones((2, 3)), np.ones((2, 4))), (np.ones((2, 3)), sp.csr_matrix((2, 3))),
               (np.ones((0, 3)),), (np.ones(3),)],
)
def test_blocks_must_fit_together(blocks: Any) -> None:
    with pytest.raises(InvalidInput, match="`X`"):
        Blocks(blocks)
