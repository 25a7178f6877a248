"""What the tools of a server say of themselves, read from their definitions when somebody asks.

A catalog of thousands of tools would take megabytes decoded, and they are needed only while an index is made. So the
definitions stay as bytes, which the catalog has anyway, and whoever wants texts gets new ones each time.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, overload

import msgspec

from mcpbridge.catalog.search.ranker import ToolText
from mcpbridge.catalog.snapshot import ToolRef


class PublishedTools(Sequence[ToolText]):
    """The texts of a server's tools, each made when it is asked for."""

    __slots__ = ("definitions", "server")

    def __init__(self, server: str, tools: Iterable[tuple[ToolRef, tuple[str, ...]]]) -> None:
        """The tools, with the tags that each has by the configuration."""
        self.server = server
        self.definitions = tuple((ref.id, tags, ref.published) for ref, tags in tools)
        """Id, tags and definition of each: all that the texts are made of."""

    def __len__(self) -> int:
        return len(self.definitions)

    @overload
    def __getitem__(self, at: int) -> ToolText: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ToolText]: ...
    def __getitem__(self, at: int | slice) -> ToolText | Sequence[ToolText]:
        if isinstance(at, slice):
            return [_text(self.server, *one) for one in self.definitions[at]]
        return _text(self.server, *self.definitions[at])


class Label(NamedTuple):
    """What a tool is called."""

    id: str
    name: str
    tags: tuple[str, ...]


def labels_of(tools: Sequence[ToolText]) -> list[Label]:
    """What tools are called, without a look at their definitions."""
    if isinstance(tools, PublishedTools):
        return [Label(id_, _name(tools.server, id_), tags) for id_, tags, _ in tools.definitions]
    return [Label(tool.id, tool.name, tool.tags) for tool in tools]


def text_of(ref: ToolRef, tags: tuple[str, ...]) -> ToolText:
    """What one tool says of itself."""
    return _text(ref.server, ref.id, tags, ref.published)


class _Definition(msgspec.Struct):
    name: str = ""
    title: Any = None
    description: Any = None
    inputSchema: Any = None  # noqa: N815 - as in the protocol


_decode = msgspec.json.Decoder(_Definition).decode


def _name(server: str, id_: str) -> str:
    return id_.removeprefix(f"{server}/")


def _text(server: str, id_: str, tags: tuple[str, ...], published: bytes) -> ToolText:
    try:
        said = _decode(published)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        said = _Definition()
    return ToolText(
        id_,
        server,
        _name(server, id_),
        said.title if isinstance(said.title, str) else "",
        said.description if isinstance(said.description, str) else "",
        said.inputSchema if isinstance(said.inputSchema, dict) else None,  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - JSON
        tags,
    )
