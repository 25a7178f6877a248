"""What a run of the demo is played with: a configuration, and the calls of each scene.

The scenes are the same for every cast. `own_cast.py` has the servers that the package brings; `examples/show.py` the
ones of the repository's `servers.toml`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpbridge.app.demo.servers.orders_data import Order


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a client makes: the tool by the name that the bridge lists it under."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def server(self) -> str:
        """The server that has the tool."""
        return self.tool.partition("__")[0]


@dataclass(frozen=True, slots=True)
class Cast:
    """The servers of a run, and what each scene calls on them."""

    config: Path
    """The `servers.toml` that the bridge serves."""
    environment: Mapping[str, str]
    """Variables that the configuration refers to."""
    orders: Sequence[Order]
    """What `large` returns, to check answers against."""

    request: str
    """Words that a model would search with; the tool of `found_call` should come first."""
    found_call: ToolCall
    answer: Callable[[str], str]
    """The answer in the text of a result of `found_call`; empty: it is not there."""

    large: ToolCall
    """Returns all `orders`, as JSON of more than 100,000 characters."""
    take: Callable[[object], ToolCall]
    """The call by which another tool takes a text, here a reference to a kept result."""
    written_file: Path
    """The file that this call writes."""

    mended: ToolCall
    """Its arguments do not fit, but can be meant in one way only."""
    refused: ToolCall
    """Its arguments do not fit; a person has to put them right."""
    fix: str
    """What the refusal says that fits."""

    approved: ToolCall
    """Needs a yes, as the configuration says."""
    has_happened: Callable[[], bool]
    """Whether `approved` has been done, as the world outside of the bridge has it."""

    slow: ToolCall
    """Takes a second or more and reports its progress."""
    killed: ToolCall
    """Its server is killed meanwhile; not that of `slow`."""

    remark: str = ""
    """What a person should know of this cast, such as that servers are missing."""
