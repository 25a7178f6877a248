"""The settings of fetched addresses: exceptions, refusals and ports."""

import re
from ipaddress import ip_network

from pydantic import BaseModel, ConfigDict, field_validator

DEFAULT_PORTS = (80, 443, 8080, 8443)

_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class GuardSettings(BaseModel):
    """Which addresses may be fetched for a model.

    Default: all public addresses. Entries of the lists are hosts (`wiki.example.com`), all hosts of a domain
    (`*.example.com`), addresses (`10.1.2.3`) and networks (`10.1.0.0/16`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    allow: list[str] = []
    """Hosts and networks that may be fetched although they belong to this machine or a private network. Addresses at
    which clouds keep credentials stay refused unless the list has them as an address or a network."""

    deny: list[str] = []
    """Hosts and networks that are never fetched. It overrides `allow` and `only`."""

    only: list[str] = []
    """The only hosts and networks that may be fetched. Empty: no such limit."""

    ports: list[int] = list(DEFAULT_PORTS)
    """Ports that may be fetched from."""

    @field_validator("allow", "deny", "only")
    @classmethod
    def _are_places(cls, value: list[str]) -> list[str]:
        return [_place(entry) for entry in value]

    @field_validator("ports")
    @classmethod
    def _are_ports(cls, value: list[int]) -> list[int]:
        for port in value:
            if not 1 <= port <= 65535:
                raise ValueError(f"{port} is no port: they are 1 to 65535")
        if not value:
            raise ValueError("without a port nothing can be fetched; leave it out for 80, 443, 8080 and 8443")
        return value


def _place(entry: str) -> str:
    """An entry of a list, as it is compared."""
    text = entry.strip().lower().rstrip(".")
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
    if not _HOST.fullmatch(text) or text.rpartition(".")[2].isdigit():
        try:
            return str(ip_network(text))
        except ValueError:
            expected = "a host (example.com), all below one (*.example.com), an address or a network (10.1.0.0/16)"
            hint = "; names with other letters are written as xn--…" if not text.isascii() else ""
            raise ValueError(f"{entry[:80]!r} is not {expected}{hint}") from None
    return text
