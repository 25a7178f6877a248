"""The configuration file as it is written: on which line a key stands, and what it says with variables unexpanded."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mcpbridge.config import foreign, position
from mcpbridge.config.mistakes import place

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """One file that has been loaded before, so that it can be read."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: str) -> "Source":
        """The file as it is now. One that has gone since is empty."""
        try:
            return cls(Path(path), Path(path).read_text("utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            return cls(Path(path), "")

    @property
    def is_toml(self) -> bool:
        """It is of our own kind; else it is another program's JSON."""
        return self.path.suffix.lower() not in (".json", ".jsonc")

    def where(self, *key: str) -> str:
        """File and line of a key, or of the table that would hold it."""
        if self.is_toml:
            return place(str(self.path), position.toml_line(self.text, key))
        try:
            plain = foreign.plain_json(self.text)
            lines = (position.json_line(plain, [top, *key[1:]]) for top in ("mcpServers", "servers"))
            return place(str(self.path), next(filter(None, lines), None))
        except (ValueError, IndexError, RecursionError):
            return str(self.path)

    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables of the servers as they are written; empty when that cannot be read."""
        try:
            parsed: object = tomllib.loads(self.text) if self.is_toml else json.loads(foreign.plain_json(self.text))
        except (ValueError, RecursionError):
            return {}
        document = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        found: object = document.get("servers") or document.get("mcpServers")
        tables = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return {name: cast("dict[str, Any]", table) for name, table in tables.items() if isinstance(table, dict)}
