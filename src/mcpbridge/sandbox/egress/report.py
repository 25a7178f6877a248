"""What a program in a sandbox reached, and what it was refused: counted, and each refusal logged once."""

from collections.abc import Mapping

from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge.sandbox")

_MOST = 100
"""Different refused addresses that are counted one by one: the program chooses how many there are."""
_REST = "others"
_LONGEST = 200


class EgressReport:
    """The counts of one server, over all its processes."""

    def __init__(self, server: str, key: str = "network") -> None:
        """`key`: the setting with the list, in the sandbox of the server."""
        self._server, self._setting = server, f"servers.{server}.sandbox.{key}"
        self.connections = 0
        """Connections that were made."""
        self._refused: dict[str, int] = {}
        self.last_reason = ""
        """Why the last attempt was refused; empty: none was."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Refused attempts, by `HOST:PORT`, or by the name alone where only that was asked for."""
        return self._refused

    def refuse(self, host: str, port: int | None, why: str) -> None:
        """Count a refusal, and log it if it is the first of this address. `host` comes from the program."""
        self.last_reason = why
        place = _printable(host if port is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        if place not in self._refused and len(self._refused) >= _MOST:
            place = _REST
        self._refused[place] = self._refused.get(place, 0) + 1
        if self._refused[place] == 1:
            log.warning("a connection out of the sandbox was refused", upstream=self._server, to=place, reason=why)

    def how_to_allow(self, host: str, port: int | None) -> str:
        """What to do so that it is let through."""
        entry = f"[{host}]:{port}" if ":" in host else f"{host}:{port if port is not None else 443}"
        return f'to allow it, add "{_printable(entry)}" to `{self._setting}`'


def _printable(text: str) -> str:
    """Text of a program, with nothing in it that does not show."""
    plain = "".join(char if char.isprintable() and char.isascii() else "?" for char in text)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
