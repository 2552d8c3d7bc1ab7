"""Progress of long work, shown with tqdm on standard error and only when asked for."""

from __future__ import annotations

from types import TracebackType

from tqdm import tqdm


class Progress:
    """A bar over `total` steps with an estimate of the time left; silent when not `shown`."""

    def __init__(self, total: int | None, text: str, *, shown: bool) -> None:
        self._bar = tqdm(total=total, desc=text, dynamic_ncols=True, leave=False) if shown else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, note: str = "") -> None:
        """One more step is finished; `note` is shown behind the bar."""
        if self._bar is None:
            return
        if note:
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update()
