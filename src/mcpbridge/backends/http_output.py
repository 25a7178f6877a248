"""What the structured results of an HTTP tool must look like, and whether they do."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.backends.outputs import check_of, wrapped
from mcpbridge.logs import get_logger
from mcpbridge.wire.frame import encode

__all__ = ["Output"]

log = get_logger("mcpbridge.backends")


class Output:
    """One output schema, compiled at the first result."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """A `schema` of anything but an object is one of what stands in `result`: structured content is an object."""
        self.schema = wrapped(schema)
        self._is_wrapped = self.schema.keys() != {"type", *schema}
        self._check: Callable[[object], str] | None = None

    def structured(self, value: Raw) -> Raw:
        """The structured content that stands for a JSON value."""
        return Raw(encode({"result": value})) if self._is_wrapped else value

    def fault(self, structured: Raw) -> str:
        """What is wrong with structured content; empty: nothing, or nobody can tell."""
        if self._check is None:
            try:
                self._check = check_of(self.schema)
            except ValueError as error:
                log.warning("results cannot be checked against an output schema", error=str(error))
                self._check = lambda _: ""
        if bytes(memoryview(structured)[:1]) != b"{":
            return "it is no object"
        try:
            return self._check(msgspec.json.decode(structured))
        except msgspec.DecodeError as error:  # such as a number that is too large for a float
            return str(error)
