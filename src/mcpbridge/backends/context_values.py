"""The values behind the contexts of a run: one for several calls, from any thread.

What is put in is copied by way of JSON, so everybody reads what later turns will read. The copy itself is what all
calls side by side have: changes made to it in place are seen by them at once, and are noticed when a call ends.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from mcpbridge.backends.context_shapes import Misfit, Shape
from mcpbridge.errors import ContextRefused

__all__ = ["MOST_BYTES", "Cell", "RunValue", "Shared", "Tell"]

MOST_BYTES = 1024**2
"""Bytes that one context may take as JSON."""

Tell = Callable[[bytes], None]
"""Is given the JSON of what a value became."""

T = TypeVar("T")
V = TypeVar("V")


class Cell:
    """One value and its JSON. Its methods may be called from any thread."""

    def __init__(self, shape: Shape, where: str) -> None:
        """`where`: what errors call it."""
        self.shape, self.where = shape, where
        self.value: Any = UNSET
        self.data = b""
        """JSON of the value as it was last put in; empty: there is none."""
        self._lock = threading.RLock()

    def read(self, data: bytes) -> None:
        """Fill it with what was written down. Raises Misfit."""
        self.value, self.data = self.shape.read(data), data

    def fill(self, value: object) -> None:
        """Fill it at first; nobody is told. UNSET leaves it empty. Raises ContextRefused."""
        if value is not UNSET:
            with self._lock:
                self._put(value, self.shape, None)

    def seen_as(self, shape: Shape) -> Any:
        """The value; of another shape: a copy as that. UNSET: there is none. Raises ContextRefused: it does not fit."""
        with self._lock:
            if self.value is UNSET or shape.kind == self.shape.kind:
                return self.value
            try:
                return shape.read(self.shape.written(self.value))
            except Misfit as error:
                raise ContextRefused(self.where, str(error)) from error

    def put(self, value: object, shape: Shape, tell: Tell | None) -> None:
        """Take a value of a shape in place of the one that is there. Raises ContextRefused."""
        with self._lock:
            self._put(value, shape, tell)

    def change(self, changes: dict[str, object], shape: Shape, tell: Tell | None) -> None:
        """Change fields of the value that is there. Raises ContextRefused."""
        with self._lock:
            try:
                changed = shape.merged(self.seen_as(shape), changes)
            except Misfit as error:
                raise ContextRefused(self.where, str(error)) from error
            self._put(changed, shape, tell)

    def settle(self, tell: Tell | None) -> None:
        """Notice what was changed in place.

        Raises:
            ContextRefused: that does not fit; the value is again what was last put in.
        """
        with self._lock:
            if self.value is UNSET:
                return
            try:
                data = self.shape.written(self.value)
                if data != self.data:
                    self.shape.read(data)
                    self._check_size(data)
            except (Misfit, ContextRefused) as error:
                self.read(self.data)
                raise error if isinstance(error, ContextRefused) else ContextRefused(self.where, str(error)) from error
            if data != self.data:
                self.data = data
                if tell is not None:
                    tell(data)

    def _put(self, value: object, shape: Shape, tell: Tell | None) -> None:
        try:
            data = shape.written(value)
            if shape.kind != self.shape.kind:
                shape.read(data)
                data = self._with(data)
            found = self.shape.read(data)
        except Misfit as error:
            raise ContextRefused(self.where, str(error)) from error
        self._check_size(data)
        self.value, self.data = found, data
        if tell is not None:
            tell(data)

    def _with(self, part: bytes) -> bytes:
        """The JSON of the value with these members among its own."""
        if self.value is UNSET:
            return part
        try:
            whole = _members_of(self.shape.written(self.value))
            return msgspec.json.encode({**whole, **_members_of(part)})
        except msgspec.ValidationError:  # one of them is no object
            return part

    def _check_size(self, data: bytes) -> None:
        if len(data) > MOST_BYTES:
            raise ContextRefused(self.where, f"{len(data):,} bytes are more than the {MOST_BYTES:,} that it may take")


_members_of = msgspec.json.Decoder(dict[str, Raw]).decode


class RunValue(Generic[T]):
    """A value of a run, as one call sees it. From any thread."""

    __slots__ = ("_cell", "_is_over", "_shape", "_tell")

    def __init__(self, cell: Cell, shape: Shape | None = None, tell: Tell | None = None) -> None:
        """`shape`: what it is seen as; left out: as what it is. `tell`: hears of every change."""
        self._cell, self._shape, self._tell = cell, shape or cell.shape, tell
        self._is_over = False

    @property
    def is_set(self) -> bool:
        """There is a value: one was set, an initialiser gave one, or the type has defaults for everything."""
        return self._cell.value is not UNSET

    @property
    def value(self) -> T:
        """What it is now.

        Raises:
            ContextRefused: there is none yet, and its type has no defaults.
        """
        found = self._cell.seen_as(self._shape)
        if found is UNSET:
            raise ContextRefused(self._cell.where, "there is no value yet. Set one first, or give it an initialiser")
        return found

    def set(self, value: T) -> None:
        """Take a copy of this value, for all calls of the run, at once.

        Raises:
            ContextRefused: it does not fit, is too large, or the call is over.
        """
        self._check_open()
        self._cell.put(value, self._shape, self._tell)

    def update(self, /, **changes: Any) -> None:
        """Change some fields and leave the others as they are; no other change comes in between. Raises as `set`."""
        self._check_open()
        self._cell.change(changes, self._shape, self._tell)

    def attach(self, cell: Cell) -> None:
        """From now on it is this cell that it shows, as what that is."""
        self._cell, self._shape = cell, cell.shape

    def end(self) -> None:
        """The call is over: code that it left behind changes nothing any more."""
        self._is_over = True

    @property
    def is_over(self) -> bool:
        """The call has ended: nothing can be set any more."""
        return self._is_over

    def _check_open(self) -> None:
        if self.is_over:
            raise ContextRefused(
                self._cell.where, "the call is over, so this would be lost. Set it while the call runs"
            )


class Shared(RunValue[T]):
    """What all tools of a run have in common."""

    __slots__ = ("_whole",)

    def __init__(
        self,
        cell: Cell,
        shape: Shape | None = None,
        tell: Tell | None = None,
        *,
        whole: "Shared[Any] | None" = None,
    ) -> None:
        """`whole`: what this is a view of. The rest is as for `RunValue`."""
        super().__init__(cell, shape, tell)
        self._whole = whole

    def of(self, kind: type[V]) -> "Shared[V]":
        """The same, seen as another type: as that given to `Bridge.open(shared=...)`, for type checkers, or as a part.

        A part has some of the members: the others stay as they are when it is set. The value of a type other than the
        bridge's is a copy, so it is to be set to be changed.

        Raises:
            ContextRefused: values cannot be checked by that type.
        """
        try:
            shape = Shape(kind)
        except Misfit as error:
            raise ContextRefused(self._cell.where, str(error)) from error
        return Shared(self._cell, shape, self._tell, whole=self._whole or self)

    @property
    def is_over(self) -> bool:
        """See `RunValue`."""
        return self._is_over or (self._whole is not None and self._whole.is_over)
