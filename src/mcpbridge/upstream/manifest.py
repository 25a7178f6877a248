"""What servers offered last, on disk: they are listed before they run (DESIGN, section 4).

One file a server, named after the fingerprint of how it is started, so that another command or environment is another
server. Files are written whole and renamed; one that cannot be read is as good as none.
"""

from pathlib import Path

from mcpbridge.upstream.settings import ServerSettings

__all__ = ["Manifest"]


class Manifest:
    """The files of one directory."""

    def __init__(self, directory: Path) -> None:
        """`directory` is made when there is something to keep."""
        self._directory = directory

    def fingerprint(self, name: str, settings: ServerSettings) -> str:
        """What the file of a server is named after."""
        raise NotImplementedError
