"""Saved paths and checkpoints that are cut, altered or lie; writes that fail."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gauntlet.bad import D, X, Y
from gauntlet.files import GOOD, flipped, npz

import cvxscreen as cs
from cvxscreen.cli.commands import main
from cvxscreen.errors import InvalidInput


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("saved") / "path.npz"
    cs.path(cs.svm(X, Y), values=[0.1, 1.0], checkpoint=file)
    return file.read_bytes()


def test_a_path_file_cut_anywhere_is_refused(saved: bytes, tmp_path: Path) -> None:
    file = tmp_path / "path.npz"
    file.write_bytes(saved)
    assert len(cs.load_path(file).points) == 2
    for end in [*range(0, len(saved), 41), len(saved) - 1]:
        file.write_bytes(saved[:end])
        with pytest.raises(InvalidInput, match=r"`file`.*name another file"):
            cs.load_path(file)


def test_a_path_file_altered_anywhere_is_refused_or_the_same(saved: bytes, tmp_path: Path) -> None:
    """A flipped byte is found, or it was one that carries nothing."""
    file = tmp_path / "path.npz"
    file.write_bytes(saved)
    truth = cs.load_path(file)
    refused = 0
    for place in range(0, len(saved), 37):
        file.write_bytes(flipped(saved, place))
        try:
            found = cs.load_path(file)
        except InvalidInput:
            refused += 1
            continue
        for one, other in zip(found.points, truth.points, strict=True):
            assert one.objective == other.objective
            np.testing.assert_array_equal(one.x, other.x)
    assert refused > len(saved) // 80


def altered(saved: bytes) -> Iterator[tuple[str, bytes]]:
    """Path files that are well formed and not what they should be."""
    with np.load(io.BytesIO(saved)) as data:
        arrays = dict(data)
    head = json.loads(str(arrays["head"]))

    def fresh(change: Callable[[Any], Any], **others: Any) -> bytes:
        new = copy.deepcopy(head)
        new = change(new) or new
        kept = {**arrays, "head": np.array(json.dumps(new)), **others}
        return npz(**{k: v for k, v in kept.items() if v is not None})

    for key in ("value", "gap", "status", "kept", "seconds", "before"):
        yield f"no {key}", fresh(lambda h, key=key: h["rows"][0].pop(key) and None)
        for value in (None, "x" if key != "status" else 5, [1], {"zero": "x"}):
            change = {key: value}
            yield f"{key} {value}", fresh(lambda h, c=change: h["rows"][0].update(c))
    yield "another field", fresh(lambda h: h["rows"][0].update(extra=1))
    yield "no rows", fresh(lambda h: h.pop("rows") and None)
    yield "rows of another form", fresh(lambda h: h.update(rows={}))
    yield "rows of numbers", fresh(lambda h: h.update(rows=[1]))
    yield "no terms", fresh(lambda h: h.pop("terms") and None)
    yield "terms of words", fresh(lambda h: h.update(terms="x"))
    yield "a list", fresh(lambda h: [1])
    yield "no head", fresh(lambda h: None, head=None)
    yield "no JSON", fresh(lambda h: None, head=np.array("{"))
    yield "deep JSON", fresh(lambda h: None, head=np.array("[" * 100_000))
    yield "no x", fresh(lambda h: None, x0=None)
    yield "x of words", fresh(lambda h: None, x0=np.array(["a"] * D))
    yield "x with axes", fresh(lambda h: None, x0=np.ones((D, 1)))


def test_a_path_file_of_another_form_is_refused(saved: bytes, tmp_path: Path) -> None:
    file = tmp_path / "path.npz"
    for name, content in altered(saved):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"`file`.*name another file") as refusal:
            cs.load_path(file)
        assert str(file) in str(refusal.value), name
        assert main(["info", str(file), "--quiet"]) == 2


def test_a_checkpoint_that_lies_is_refused(saved: bytes, tmp_path: Path) -> None:
    """Its digest fits, its points do not: solutions and values are certified again."""
    file, problem = tmp_path / "path.npz", cs.svm(X, Y)
    with np.load(io.BytesIO(saved)) as data:
        arrays = dict(data)
    head = json.loads(str(arrays["head"]))

    def written(**changed: Any) -> None:
        rows = copy.deepcopy(head)
        rows["rows"][1].update(changed.pop("row", {}))
        file.write_bytes(npz(**{**arrays, "head": np.array(json.dumps(rows)), **changed}))

    written()
    assert len(cs.path(problem, values=[0.1, 1.0], checkpoint=file).points) == 2
    theta, x = arrays["theta1"], arrays["x1"]
    lies: list[dict[str, Any]] = [
        {"x1": 1.001 * x}, {"x1": np.roll(x, 1)}, {"x1": np.full(D, np.nan)}, {"x1": x[:-1]},
        {"theta1": -theta}, {"theta1": 0.9 * theta}, {"theta1": theta[:-1]},
        {"row": {"objective": 1.001 * head["rows"][1]["objective"]}}, {"row": {"value": 2.0}},
    ]
    for lie in lies:
        written(**lie)
        before = file.read_bytes()
        with pytest.raises(InvalidInput, match=r"`checkpoint`: point 1 of .*name another file"):
            cs.path(problem, values=[0.1, 1.0], checkpoint=file)
        assert file.read_bytes() == before


def test_a_write_that_fails_leaves_the_old_file(
    saved: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved paths, checkpoints and learned metrics: whole or not at all."""
    data, file = tmp_path / "data.npz", tmp_path / "out.npz"
    data.write_bytes(GOOD)
    file.write_bytes(saved)
    found = cs.load_path(file)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        found.save(file)
    for command in (["path", "--C", "1"], ["triplets", "--k", "2", "--lam", "10"]):
        assert main([command[0], str(data), *command[1:], "--out", str(file), "--quiet"]) == 2
    monkeypatch.undo()
    assert file.read_bytes() == saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npz", "out.npz"]
