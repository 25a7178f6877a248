"""The demo's server `notes`: texts by name, as files. Its argument is the directory that they are in."""

import sys
from pathlib import Path

from mcpbridge.app.demo.servers.mcp_server import Server, ToolFailed, integer, one_of, text

server = Server("notes", "Notes of a team, as Markdown.")

_NAME = text("The name of the note, without .md.", pattern="^[\\w -]+$")


def _notes() -> list[Path]:
    return sorted(Path(sys.argv[1]).glob("*.md"))


def _note(name: str) -> Path:
    found = {path.stem: path for path in _notes()}
    if name not in found:
        raise ToolFailed(f"there is no note {name!r}; there are: {', '.join(found)}")
    return found[name]


@server.tool("List the names of all notes with their first lines.", reads=True)
def list_notes() -> list[dict[str, str]]:
    """All notes."""
    return [{"name": path.stem, "first_line": path.read_text("utf-8").partition("\n")[0]} for path in _notes()]


@server.tool("Return the whole text of a note.", reads=True, name=_NAME)
def read_note(name: str) -> str:
    """One note."""
    return _note(name).read_text("utf-8")


@server.tool(
    "Search all notes for words, in any case. Returns the lines that have them, with the names of their notes.",
    reads=True,
    words=text("What to search for."),
    limit=integer("How many lines to return at most.", default=20, minimum=1),
)
def search_notes(words: str, limit: int) -> list[str]:
    """Lines that have the words."""
    found = [
        f"{path.stem}: {line}"
        for path in _notes()
        for line in path.read_text("utf-8").splitlines()
        if words.lower() in line.lower()
    ]
    return found[:limit]


@server.tool(
    "Write a note. One of the same name is replaced.",
    name=_NAME,
    content=text("The whole text, as Markdown."),
)
def write_note(name: str, content: str) -> str:
    """A note is written."""
    (Path(sys.argv[1]) / f"{name}.md").write_text(content, "utf-8")
    return f"Wrote {len(content)} characters to {name}."


@server.tool(
    "Add a line to a note, at its beginning or at its end.",
    name=_NAME,
    line=text("The line, without a line end."),
    where=one_of("Where the line is put.", "beginning", "end", default="end"),
)
def add_line(name: str, line: str, where: str) -> str:
    """A line is added."""
    path = _note(name)
    before = path.read_text("utf-8")
    path.write_text(f"{line}\n{before}" if where == "beginning" else f"{before.rstrip()}\n{line}\n", "utf-8")
    return f"Added a line to {name}."


@server.tool("Delete a note for good.", name=_NAME)
def delete_note(name: str) -> str:
    """A note is gone."""
    _note(name).unlink()
    return f"Deleted {name}."


if __name__ == "__main__":
    server.run()
