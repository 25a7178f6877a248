"""What a refusal says about how to get in: the `WWW-Authenticate` header (RFC 6750, RFC 9728); pure."""

import re

from msgspec import Struct
from msgspec.structs import replace

_BEARER = re.compile(r"(?:^|[\s,])bearer(?:\s+|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'[\s,]*([A-Za-z0-9_.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_LONGEST = 8192
"""Characters of a header that are read; no server has reason to say more."""
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")


class Challenge(Struct, frozen=True):
    """What a server asks for."""

    error: str = ""
    """`invalid_token`, `insufficient_scope`, or what else it says; empty when it says nothing."""
    scope: str = ""
    """The rights that the request needs; words with blanks between."""
    resource_metadata: str = ""
    """Where it describes itself (RFC 9728)."""

    @classmethod
    def parse(cls, header: str) -> "Challenge":
        """The Bearer challenge among those in the header; an empty one when there is none."""
        header = header[:_LONGEST]
        begin = _BEARER.search(header)
        if begin is None:
            return cls()
        parameters: dict[str, str] = {}
        place = begin.end()
        while (match := _PARAMETER.match(header, place)) is not None:
            name, quoted, plain = match.groups()
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            parameters.setdefault(name.lower(), value)
            place = match.end()
        scope = " ".join(parameters.get("scope", "").split())
        return cls(
            parameters.get("error", ""),
            scope if _SCOPES.fullmatch(scope) else "",
            parameters.get("resource_metadata", ""),
        )

    def with_more(self, scope: str) -> "Challenge":
        """The same, with more rights asked for on top of those there were; as it is when `scope` is empty."""
        if not scope:
            return self
        return replace(self, error="insufficient_scope", scope=join_scopes(self.scope, scope))

    def header(self, scope: str) -> str:
        """The challenge again, asking for `scope`."""
        parts = [f'scope="{scope}"'] if scope else []
        if self.resource_metadata and '"' not in self.resource_metadata:
            parts.append(f'resource_metadata="{self.resource_metadata}"')
        return "Bearer " + ", ".join(parts)


def join_scopes(*lists: str) -> str:
    """All the words of several scope strings, each once, in order."""
    return " ".join(dict.fromkeys(word for scopes in lists for word in scopes.split()))
