"""`Tool`: one tool of a program, as bridges take it, with which its calls are made and recognised."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, cast

import msgspec
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.model import TOOLS
from mcpbridge.core.tool_calls_and_results import ToolCall

if TYPE_CHECKING:
    from mcpbridge.engine.wiring.tools import ProgramTool
    from mcpbridge.tools.python.output import Check


Args = TypeVar("Args")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Tool(Generic[Args, R_co]):
    """A tool of a program: `Args` is what calls of it have as arguments, `R` what `CallResult.value` of them is.

    It is what it is for good, runs nothing by itself, and may be given to several bridges.
    """

    def __init__(
        self,
        definition: Mapping[str, Any],
        make: "Callable[[], ProgramTool]",
        *,
        reads: Callable[[Any], Args] | None = None,
        returns: Callable[[Any], R_co] | None = None,
    ) -> None:
        """Of what it shows and who does its work: `make` gives one backend for each bridge.

        `reads`: makes `Args` of JSON values, or raises ArgumentsRefused; None: they are what they are. `returns`: see
        `ToolCall`.
        """
        self._definition, self._make, self._reads, self._returns = definition, make, reads, returns
        self._check: Check | None = None

    @property
    def name(self) -> str:
        """Its name, which clients see unless a server has a tool of this name too."""
        return str(self._definition["name"])

    @property
    def id(self) -> str:
        """`tools/NAME`: what rules name it by, and what means no other tool."""
        return f"{TOOLS}/{self.name}"

    @property
    def definition(self) -> Mapping[str, Any]:
        """As `tools/list` shows it: `name`, `description`, `inputSchema`, `outputSchema`, `annotations`."""
        return self._definition

    def given(self) -> "tuple[str, ProgramTool]":
        """The name and a backend of it, for one bridge."""
        return self.name, self._make()

    def call_with(self, arguments: Args) -> ToolCall[Args, R_co]:
        """A call of it, for `Bridge.call`. The arguments are checked when it is made."""
        return ToolCall(self.id, arguments, returns=self._returns)

    def is_call(self, call: ToolCall[Any, Any]) -> TypeGuard[ToolCall[Args, R_co]]:
        """Whether this call, perhaps a model's, is one of this tool. Its arguments are not looked at: see `parse`."""
        return call.name in (self.name, self.id, f"{TOOLS}__{self.name}")

    def parse(self, call: ToolCall[Any, Any]) -> ToolCall[Args, R_co]:
        """The same call with arguments that fit this tool, as `Args`, and with a result of its type.

        Raises:
            ArgumentsRefused: they do not fit, cannot be read, or the call is of another tool.
        """
        if not self.is_call(call):
            raise ArgumentsRefused(f"The call is one of {call.name}, not of {self.name}")
        if call.problem:
            raise ArgumentsRefused(call.problem)
        arguments = self._checked(call.arguments)
        read = self._reads(arguments) if self._reads is not None else cast("Args", arguments)
        return replace(call, arguments=read, returns=self._returns)

    def returning(self, returns: Callable[[Any], T] | None) -> "Tool[Args, T]":
        """The same tool, whose values are made so."""
        return Tool(self._definition, self._make, reads=self._reads, returns=returns)

    def _checked(self, arguments: object) -> dict[str, Any]:
        from mcpbridge.tools.python.output import Misshapen, check_of, json_of

        if self._check is None:
            self._check = check_of(self._definition["inputSchema"])
        try:
            plain = msgspec.json.decode(json_of(arguments), type=dict[str, Any])
        except (Misshapen, msgspec.DecodeError) as error:
            raise ArgumentsRefused(f"The arguments of {self.name} are no JSON object: {error}") from None
        if fault := self._check(plain):
            raise ArgumentsRefused(f"Invalid arguments of {self.name}: {fault}")
        return plain

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
