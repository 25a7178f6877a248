"""What the scanner finds in the texts of a server, for its page and those of its tools: as `mcpbridge scan` has it."""

from msgspec import Struct

from mcpbridge.app.console.context import ConsoleContext, in_thread
from mcpbridge.app.doctor.suspicious_texts import RULES_PAGE, Suspicious, texts_of, what_rule_finds


class ShownFinding(Struct, frozen=True):
    """A finding, as pages show it."""

    one: Suspicious
    about: str
    """What its rule finds."""
    tool: str
    """The id of the tool that it is about; empty: it is about none that is listed."""


class ShownFindings(Struct, frozen=True):
    """Those of a server, or of one tool."""

    texts: list[ShownFinding]
    is_of_tool: bool
    page: str = RULES_PAGE
    """Where the rules are described."""


async def scanner_findings(console: ConsoleContext, server: str, tool: str = "") -> ShownFindings:
    """What is suspicious in a server. `tool`: the server's name of one; empty: all, its instructions too."""
    bridge = console.bridge
    bridge.catalog.flush()
    ids = {ref.name: ref.id for ref in bridge.catalog.snapshot.tools.values() if ref.server == server}
    found = await in_thread(lambda: texts_of(bridge, server))
    texts = [
        ShownFinding(one, what_rule_finds(one.rule), ids.get(one.name, "") if one.kind == "tool" else "")
        for one in found
        if not tool or (one.kind, one.name) == ("tool", tool)
    ]
    return ShownFindings(texts, bool(tool))
