"""What a function promises by its annotations, where no schema that clients see says it.

`-> list[int]` is kept to as an output schema is, and what an `Iterator[Step]` yields as an event schema is. Clients are
told neither, and results that keep to them look as they would without: only what breaks them is an error of the tool.
What fits is JSON that the type can be made of (which is how `CallResult.value` is made), or that it is written as; it
stays as the function gave it.
"""

import inspect
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, get_args

import msgspec

from mcpbridge.backends.outputs import Check, Promise, check_of, json_of
from mcpbridge.backends.parameters import Schemas, result_hint, yielded_hint
from mcpbridge.backends.typed_dicts import is_union, readable

__all__ = ["event_promise_of", "promise_of"]

_ANYTHING = (Any, object, inspect.Signature.empty)
_NOTHING = (None, NoneType)
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
_NO_NUMBER = re.compile(rb"-?Infinity|NaN")


def promise_of(hint: Any, function: Callable[..., Any] | None = None) -> Promise | None:
    """What tells whether a value keeps to the annotation of a function's result; None: that says nothing, or no JSON.

    A generator without a result (`Generator[str, None, None]`) promises nothing: its last event is its result.
    """
    found = result_hint(hint, function)
    if found in _ANYTHING or (found in _NOTHING and hint not in _NOTHING):
        return None
    return _promise(found)


def event_promise_of(hint: Any, function: Callable[..., Any] | None = None) -> Check | None:
    """The check of what a function with this annotation yields; None: any value, or texts, which are not looked at."""
    found = yielded_hint(hint, function)
    if found in (*_ANYTHING, *_NOTHING, str):
        return None
    return _promise(found)


def _promise(hint: Any) -> "_Promise | None":
    from pydantic import TypeAdapter

    try:
        return _Promise(hint, TypeAdapter[Any](readable(hint if hint is not None else NoneType)))
    except Exception:  # noqa: BLE001 - types bring code of their own; of what no schema can be made, none is promised
        return None


class _Promise:
    """Of one type. Meets `Promise` and `Check`."""

    def __init__(self, hint: Any, adapter: Any) -> None:
        self._adapter = adapter
        self._admits_any_text = hint is str or (is_union(hint) and str in get_args(hint))
        name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
        self._shown = _MODULE.sub("", name)[:100]
        self._written: Check | None = None

    def __call__(self, value: object, data: bytes | None = None) -> str:
        from pydantic import ValidationError

        if self._admits_any_text and isinstance(value, str):
            return ""
        try:
            if isinstance(value, bytes | bytearray):
                self._adapter.validate_python(bytes(value), strict=True)
                return ""
            data = json_of(value) if data is None else data
            self._adapter.validate_json(data)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[0]
            at = ".".join(map(str, found["loc"]))
            fault = f"expected {self._shown}{f', at {at}' if at else ''}: {found['msg'][:300]}"
            return "" if data is not None and self._is_written_so(value, data) else fault
        return ""

    def _is_written_so(self, value: object, data: bytes) -> bool:
        """It is the JSON of such a value, though none can be made of it: with aliases for output, or a NaN."""
        from pydantic import ValidationError
        from pydantic_core import to_json

        if self._written is None:
            self._written = _writing_of(self._adapter)
        if not self._written(msgspec.json.decode(data)):
            return True
        if b"null" not in data:
            return False
        exact = to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")
        if exact == data or _NO_NUMBER.sub(b"null", exact) != data:
            return False
        try:
            self._adapter.validate_json(exact)
        except ValidationError:
            return False
        return True


def _writing_of(adapter: Any) -> Check:
    """The check of how values are written."""
    try:
        return check_of(adapter.json_schema(mode="serialization", schema_generator=Schemas))
    except Exception:  # noqa: BLE001 - types bring code of their own
        return lambda _: "it has no schema"
