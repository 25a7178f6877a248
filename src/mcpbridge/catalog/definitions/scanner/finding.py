"""What the scanner found in one definition, as it is shown and kept."""

from collections.abc import Collection

from msgspec import Struct

OTHER_SERVERS_TOOL = "other-servers-tool"
"""The rule that depends on what other servers offer."""


class Finding(Struct, frozen=True, array_like=True):
    """Something suspicious."""

    rule: str
    where: str
    """The member, such as `description` or `inputSchema.properties.path.description`."""
    text: str
    """The words, shortened, with hidden characters shown."""


class Scanned(Struct, frozen=True, array_like=True):
    """What is suspicious in one definition, whatever other servers offer."""

    findings: tuple[Finding, ...] = ()
    mentions: tuple[tuple[str, str], ...] = ()
    """Names that could be those of tools, in texts that steer: the member and the name. A finding where another server
    has such a tool."""

    def beside(self, others: Collection[str]) -> tuple[Finding, ...]:
        """All that is suspicious where other servers have tools of these names."""
        if not others or not self.mentions:
            return self.findings
        named: dict[str, Finding] = {}
        for where, name in self.mentions:
            if name in others:
                named.setdefault(where, Finding(OTHER_SERVERS_TOOL, where, name))
        return (*self.findings, *named.values())
