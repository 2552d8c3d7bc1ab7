"""What a warm start alone proves, as shares of the terms; worked out only if somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping


class Shares(Mapping[str, float]):
    """Shares of the terms per kind of piece, worked out when they are first asked for."""

    def __init__(self, prove: Callable[[], Mapping[str, float]]) -> None:
        self._prove: Callable[[], Mapping[str, float]] | None = prove
        self._known: dict[str, float] = {}

    def _shares(self) -> dict[str, float]:
        if self._prove is not None:
            self._known, self._prove = dict(self._prove()), None
        return self._known

    def __getitem__(self, kind: str) -> float:
        return self._shares()[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shares())

    def __len__(self) -> int:
        return len(self._shares())

    def __repr__(self) -> str:
        return repr(self._shares())
