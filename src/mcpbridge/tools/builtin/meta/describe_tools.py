"""`describe_tools`: all that there is to know for calling some tools.

A tool that the caller may not call is unknown, as one that does not exist.
"""

from typing import TYPE_CHECKING, Any, cast

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.search.visible_tools import Look
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.tools.builtin.builtin import UNTREATED
from mcpbridge.tools.builtin.meta.definitions import DESCRIBE_TOOLS, Refused, arguments_of, text_result

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.catalog.search.find import ReadDefinition


_MOST = 50
"""Tools of one call."""
_TOKENS = 4000


class DescribeTools:
    """The tool."""

    definition, treatment = DESCRIBE_TOOLS, UNTREATED

    def __init__(self, look: Look, *, tokens: int = _TOKENS, has_programs: bool = False) -> None:
        """`look`: what a caller may find. `tokens`: of an answer, about. `has_programs`: there is `run_code`."""
        self._look, self._tokens, self._has_programs = look, tokens, has_programs

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        from mcpbridge.catalog.search.answers import described
        from mcpbridge.catalog.search.find import read_definition

        try:
            names = _names(arguments_of(call.params, {"names": ("names", "name", "tools", "tool")}).get("names"))
        except Refused as error:
            return text_result(str(error), is_error=True)
        visible = await self._look(call)
        found: dict[str, Any] = {}
        unknown: dict[str, list[str]] = {}
        for name in names:
            try:
                tool = visible.find(name)
                found.setdefault(tool.wire, read_definition(tool))
            except UnknownName as error:
                unknown[name] = error.candidates
        stub_of = _stub if self._has_programs else None
        text = described(list(found.values()), unknown, tokens=self._tokens, stub_of=stub_of)
        return text_result(text, is_error=not found)


def _stub(one: "ReadDefinition") -> str:
    from mcpbridge.catalog.signatures.python_stubs import Callee, stub

    return stub(Callee(one.tool.wire, one.description, one.text.schema, one.output))


def _names(value: object) -> list[str]:
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    values = cast("list[object]", value) if isinstance(value, list) else []
    names = [name.strip() for name in values if isinstance(name, str) and name.strip()]
    if not names or len(names) != len(values) or len(names) > _MOST:
        raise Refused(f"names: a list of at most {_MOST} names of tools, such as those that find_tools answers with")
    return list(dict.fromkeys(names))
