"""`file-read`: a text file, or some of its lines; images as images."""

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.files.access import READS, FileTool, FileToolError, Stop, count, given, texts
from mcpbridge.tools.builtin.files.text import ENCODINGS, Page, encoding_of, image_type, kind_of_binary, page, unified

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.sandbox.files.names import Parts
    from mcpbridge.sandbox.files.paths import Opened, Root


NAME = "file-read"
DIGITS = 16
"""Of the SHA-256 that is shown with a file: enough to see whether it was changed."""

LARGEST_IMAGE = 4 * 1024**2
"""Bytes of an image that is shown."""

_WITHIN = bytes(range(0x80, 0xC0))
"""Bytes within a character of UTF-8."""

_DEFINITION: dict[str, Any] = {
    "name": NAME,
    "title": "Read a file",
    "description": (
        "Read a text file, whole or some of its lines; images are shown. Says which lines there are beyond those shown."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "as file-list shows it"},
            "offset": {"type": "integer", "description": "first line, from 1; -50: the last 50 lines"},
            "limit": {"type": "integer", "minimum": 1, "description": "lines"},
            "encoding": {"type": "string", "enum": list(ENCODINGS), "description": "only if the guess is wrong"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "annotations": {
        "title": "Read a file",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    },
}


class _Wanted(Struct):
    path: str
    offset: int = 1
    limit: int = 0
    encoding: str = ""


class FileRead(FileTool):
    """The tool."""

    definition, treatment = _DEFINITION, READS

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        wanted = given(call, _Wanted)
        return await self._files.answer(NAME, wanted.path, lambda stop: self._read(wanted, stop))

    def _read(self, wanted: _Wanted, stop: Stop) -> Body:
        found = self._files.find(wanted.path)
        if found is None:
            raise FileToolError("That is the list of roots: file-list shows it.")
        root, parts = found
        try:
            with root.opened(parts) as opened:
                return self._answer(wanted, opened, stop)
        except IsADirectoryError:
            raise FileToolError(f"'{root.path_of(parts)}' is a directory: file-list shows what is in it.") from None
        except FileNotFoundError:
            raise FileToolError(_not_there(root, parts)) from None

    def _answer(self, wanted: _Wanted, opened: "Opened", stop: Stop) -> Body:
        size, most = opened.status.st_size, self._files.settings.max_file
        is_whole = size <= most
        start = (size - most) // 4 * 4 if wanted.offset < 0 and not is_whole else 0  # between characters of UTF-16
        data = opened.read(most, start)
        stop.look()
        head = opened.read(64) if start else data
        if not wanted.encoding and not encoding_of(head):
            return _binary(head, data if is_whole else b"", size)
        text, encoding = unified(data.lstrip(_WITHIN) if start else data, wanted.encoding or encoding_of(head))
        if start:  # its first line began before
            text = text[text.find(b"\n") + 1 :]
        stop.look()
        offset = wanted.offset or 1
        shown = page(text, offset, max(0, wanted.limit), self._files.settings.max_read)
        digest = sha256(data).hexdigest()[:DIGITS] if is_whole else ""
        return texts(shown.text, _note(shown, size, encoding, digest, "" if is_whole else "end" if start else "begin"))


def _note(page: Page, size: int, encoding: str, digest: str, piece: str) -> str:
    """What stands beside the text: where in the file it is, and how to go on."""
    if not size:
        return "[the file is empty]"
    said: list[str] = []
    total = f"{page.total:,}" if not piece else "more"
    if piece == "end" and page.last >= page.first:
        said.append(f"the last {count(page.last - page.first + 1, 'line')} of a large file")
    elif page.last < page.first:
        said.append(f"there is no line {page.first:,}: the file has {total}")
    elif page.first == 1 and page.last == page.total and not piece:
        said.append(f"whole file, {count(page.total, 'line')}")
    else:
        said.append(f"lines {page.first:,} to {page.last:,} of {total}")
    said.append(f"{count(size, 'byte')}")
    if encoding != "utf-8":
        said.append(f"read as {encoding}")
    if digest:
        said.append(f"sha256 {digest}")
    if page.is_cut:
        said.append(f"line {page.last:,} is longer than what is shown of it; file-search finds text in it")
    if page.last < page.total and page.last >= page.first and piece != "end":
        said.append(f"continue with offset={page.last + 1}")
    elif piece == "begin":
        said.append("the rest is too far in to be read by line; a negative offset reads its end")
    return f"[{'; '.join(said)}]"


def _binary(head: bytes, data: bytes, size: int) -> Body:
    kind = image_type(head)
    if kind and data and len(data) <= LARGEST_IMAGE:
        image = {"type": "image", "data": b64encode(data).decode(), "mimeType": kind}
        return Body(encode({"content": [image, {"type": "text", "text": f"[{kind}; {count(size, 'byte')}]"}]}))
    what = kind_of_binary(head)
    return texts(f"[a binary file{f' ({what})' if what else ''}, {count(size, 'byte')}: there is no text to show]")


def _not_there(root: "Root", parts: "Parts") -> str:
    """That there is no such file, and which ones have a name like it."""
    from mcpbridge.base.suggestions import nearest
    from mcpbridge.sandbox.files.names import display_name
    from mcpbridge.sandbox.files.paths import entries

    told = f"'{display_name(root.path_of(parts))}' is not there."
    try:
        beside = [entry.name for entry in entries(root, parts[:-1], depth=1, hidden=True)][:2000]
    except OSError:
        return f"{told} Nor is the directory; file-list shows what is."
    close = nearest(parts[-1], beside, limit=3)
    if not close:
        return f"{told} file-list shows what is."
    return f"{told} Did you mean {' or '.join(repr(root.path_of((*parts[:-1], name))) for name in close)}?"
