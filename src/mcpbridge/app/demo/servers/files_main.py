"""The demo's server `files`: the files of one directory, which is its argument."""

import sys
from pathlib import Path
from typing import Any

from mcpbridge.app.demo.servers.mcp_server import Server, ToolFailed, integer, text

server = Server("files", "Files of one directory. Paths are relative to it.")

_PATH = text("The path of the file, relative to the directory that is served.")


def _inside(path: str) -> Path:
    """The file of this path; one outside of the directory fails the call."""
    root = Path(sys.argv[1]).resolve()
    found = (root / path).resolve()
    if not found.is_relative_to(root):
        raise ToolFailed(f"{path} is outside of the directory that is served")
    return found


def _about(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {"name": path.name, "kind": "directory" if path.is_dir() else "file", "bytes": stat.st_size}


@server.tool(
    "List what is in a directory, with kinds and sizes.",
    reads=True,
    path=text("The path of the directory; left out, the one that is served.", default="."),
)
def list_directory(path: str) -> list[dict[str, Any]]:
    """Entries of a directory."""
    return [_about(one) for one in sorted(_inside(path).iterdir())]


@server.tool(
    "Read a text file. Reads all of it, or its first lines.",
    reads=True,
    path=_PATH,
    lines=integer("How many lines to read; 0 reads all.", default=0, minimum=0),
)
def read_file(path: str, lines: int) -> str:
    """Text of a file."""
    content = _inside(path).read_text("utf-8")
    return "\n".join(content.splitlines()[:lines]) if lines else content


@server.tool(
    "Write a text file. Directories that are missing are made, a file of the same path is replaced.",
    path=_PATH,
    content=text("What the file is to contain."),
)
def write_file(path: str, content: str) -> str:
    """A file is written."""
    file = _inside(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, "utf-8")
    return f"Wrote {len(content.encode())} bytes to {path}."


@server.tool(
    "Search the names of files by a pattern, in all directories below.",
    reads=True,
    pattern=text("A pattern such as *.json."),
)
def search_files(pattern: str) -> list[str]:
    """Paths that fit."""
    root = _inside(".")
    return sorted(str(path.relative_to(root)) for path in root.rglob(pattern))


@server.tool("Tell the kind and the size of a file.", reads=True, path=_PATH)
def file_info(path: str) -> dict[str, Any]:
    """Facts about a file."""
    return _about(_inside(path))


if __name__ == "__main__":
    server.run()
