"""`file-write`: writes a new text file, replaces one, appends to one, or replaces pieces of one. A person is asked.

Each piece to replace must be found exactly, and once unless the call says otherwise.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.base.units import show_bytes
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.tools.builtin.files.access import FileTool, FileToolError, Stop, count, given, texts
from mcpbridge.tools.builtin.files.file_read import DIGITS
from mcpbridge.tools.builtin.files.text import decoded, encoding_of

if TYPE_CHECKING:
    from mcpbridge.sandbox.files.paths import Opened


_EXCERPT_LENGTH = 60
"""Characters of a piece in a message."""


class Edit(Struct, frozen=True):
    """One piece, and what is in its place afterwards."""

    old: str
    new: str
    all: bool = False
    """Wherever it occurs; else it must occur in one place."""


class Unfit(Exception):
    """An edit cannot be made; the message says which and why, for a model."""


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text after all edits, one after the other. Line ends stay what they are.

    Raises:
        Unfit: one of them does not fit, so none is made.
    """
    for number, edit in enumerate(edits, 1):
        text = _edited(text, edit, f"Edit {number}" if len(edits) > 1 else "The edit")
    return text


def _edited(text: str, edit: Edit, which: str) -> str:
    old, new = edit.old, edit.new
    if not old:
        raise Unfit(f"{which}: `old` is empty; to add text give some text beside it, in `old` and `new`.")
    if old == new:
        raise Unfit(f"{which}: `old` and `new` are the same.")
    found = text.count(old)
    if "\r\n" in text and "\r\n" not in old:  # models see and write `\n` alone
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        found = text.count(old)
    if not found:
        raise Unfit(f"{which}: {_clipped(edit.old)} is not in the file{_hint(text, edit.old)}.")
    if found > 1 and not edit.all:
        raise Unfit(
            f"{which}: {_clipped(edit.old)} occurs in {found} places (lines {_lines(text, old)}): give more of what is "
            "around it, or `all`."
        )
    return text.replace(old, new)


def _hint(text: str, old: str) -> str:
    """Why it may not have been found."""
    wanted = " ".join(old.split())
    if wanted and wanted in " ".join(text.split()):
        return "; with other spaces, tabs or line ends it does"
    if wanted and wanted.casefold() in " ".join(text.split()).casefold():
        return "; in other case it does"
    return "; read it again, and copy it exactly"


def _lines(text: str, old: str) -> str:
    numbers: list[str] = []
    at = text.find(old)
    while at >= 0 and len(numbers) < 5:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(numbers) + (", …" if at >= 0 else "")


def _clipped(text: str) -> str:
    return repr(text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}…")


NAME = "file-write"

_DEFINITION: dict[str, Any] = {
    "name": NAME,
    "title": "Write a file",
    "description": (
        "Write a text file as UTF-8: `content` with a `mode`, or `edits` of one that is there (encoding and line ends "
        "stay). It is written whole or not at all."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "as file-list shows it"},
            "content": {"type": "string"},
            "mode": {
                "type": "string",
                "enum": ["create", "overwrite", "append"],
                "default": "create",
                "description": "create: only if it does not exist",
            },
            "edits": {
                "type": "array",
                "minItems": 1,
                "maxItems": 100,
                "description": "made in order",
                "items": {
                    "type": "object",
                    "properties": {
                        "old": {"type": "string", "minLength": 1, "description": "exact text that occurs there once"},
                        "new": {"type": "string"},
                        "all": {"type": "boolean", "description": "wherever it occurs"},
                    },
                    "required": ["old", "new"],
                    "additionalProperties": False,
                },
            },
            "create_parents": {"type": "boolean", "description": "make missing directories"},
            "sha256": {
                "type": "string",
                "pattern": "^[0-9a-fA-F]{12,64}$",
                "description": "of the file as it was read, or its beginning: refused if somebody changed it since",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "annotations": {
        "title": "Write a file",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": False,
    },
}


class _Wanted(Struct):
    path: str
    content: str | None = None
    mode: Literal["create", "overwrite", "append"] = "create"
    edits: list[Edit] | None = None
    create_parents: bool = False
    sha256: str = ""


def _wanted_of(call: Call) -> _Wanted:
    wanted = given(call, _Wanted)
    if (wanted.content is None) is (wanted.edits is None):
        raise ArgumentsRefused("Give either `content` or `edits`.")
    if wanted.path.endswith("/"):
        raise ArgumentsRefused("path: it ends with `/`, as that of a directory; give that of a file.")
    return wanted


class FileWrite(FileTool):
    """The tool."""

    definition, treatment = (
        _DEFINITION,
        CallSettings(permission="require_approval", risk="high", read_only=False, destructive=True, idempotent=False),
    )

    async def run(self, call: Call) -> Body:
        """See `Builtin`. Cancelled before the end, nothing is written."""
        wanted = _wanted_of(call)
        late = "Read the file before you write it again."
        return await self._files.answer(NAME, wanted.path, lambda stop: self._write(wanted, stop), late=late)

    async def precheck(self, call: Call) -> Body | None:
        """See `Precheck`: nobody is asked about a write that is refused by the rules, or that the file does not fit.

        Cancelling is safe: nothing is written.
        """
        wanted = _wanted_of(call)
        checked = await self._files.answer(NAME, wanted.path, lambda stop: self._write(wanted, stop, is_trial=True))
        return checked if checked.get("isError") is not None else None

    def _write(self, wanted: _Wanted, stop: Stop, *, is_trial: bool = False) -> Body:
        from mcpbridge.sandbox.files.write import Changed, check_write, write

        found = self._files.find(wanted.path)
        if found is None:
            raise FileToolError("That is the list of roots; give the path of a file.")
        root, parts = found
        making = _Making(wanted, self._files.settings.max_write)
        creates, replaces = wanted.edits is None, wanted.edits is not None or wanted.mode != "create"
        parents = wanted.create_parents and creates
        try:
            if is_trial:
                check_write(root, parts, making, creates=creates, replaces=replaces, makes_directories=parents)
                return texts()
            with self._alone(stop):
                written = write(
                    root,
                    parts,
                    making,
                    creates=creates,
                    replaces=replaces,
                    makes_directories=parents,
                    commit=stop.look,
                )
        except Changed:
            raise FileToolError(
                "Somebody else changed the file at this moment; nothing was written. Read it again."
            ) from None
        except FileExistsError:
            raise FileToolError(
                f"'{root.path_of(parts)}' exists already; nothing was written. mode=overwrite replaces it whole, "
                "mode=append adds to it, edits change pieces of it."
            ) from None
        except FileNotFoundError:
            more = "; create_parents makes its directory" if wanted.edits is None else ""
            raise FileToolError(f"'{root.path_of(parts)}' is not there{more}.") from None
        did = making.did if written.was_there else "Created"
        return texts(
            f"{did} '{root.path_of(written.parts)}': now {count(written.size, 'byte')}, "
            f"sha256 {making.digest[:DIGITS]}."
        )

    @contextmanager
    def _alone(self, stop: Stop) -> Generator[None]:
        """One at a time: what is appended by two calls at once is there twice."""
        while not self._files.writing.acquire(timeout=0.5):
            stop.look()
        try:
            yield
        finally:
            self._files.writing.release()


class _Making:
    """Makes what shall stand in the file of what does."""

    def __init__(self, wanted: _Wanted, most: int) -> None:
        self._wanted, self._most = wanted, most
        self.digest = ""
        """Of what was made."""
        self.did = {"create": "Created", "overwrite": "Replaced", "append": "Appended to"}[wanted.mode]
        if wanted.edits is not None:
            self.did = f"Made {count(len(wanted.edits), 'edit')} in"

    def __call__(self, opened: "Opened | None") -> bytes:
        before = self._before(opened)
        made = self._added(before) if self._wanted.edits is None else _apply_edits(before, self._wanted.edits)
        if len(made) > self._most:
            raise FileToolError(
                f"It would have {count(len(made), 'byte')}; files of up to {show_bytes(self._most)} are written "
                "(`builtin.files.max_write`). Nothing was written."
            )
        self.digest = sha256(made).hexdigest()
        return made

    def _before(self, opened: "Opened | None") -> bytes:
        """What stands there, as far as it is needed."""
        wanted = self._wanted
        if opened is None:
            if wanted.sha256:
                raise FileToolError(
                    "The file no longer exists, so it is not the one that was read. Nothing was written."
                )
            return b""
        if wanted.mode == "overwrite" and wanted.edits is None and not wanted.sha256:
            return b""
        before = opened.read(self._most + 1)
        if len(before) > self._most:
            raise FileToolError(
                f"It has {count(opened.status.st_size, 'byte')}; files of up to {show_bytes(self._most)} are changed "
                "(`builtin.files.max_write`). Nothing was written."
            )
        digest = sha256(before).hexdigest()
        if not digest.startswith(wanted.sha256.lower()):
            raise FileToolError(
                f"The file was changed since: its sha256 is {digest[:DIGITS]}. Nothing was written; read it again."
            )
        return before

    def _added(self, before: bytes) -> bytes:
        content = self._wanted.content or ""
        if self._wanted.mode != "append":
            return _encoded(content, "utf-8")
        text, encoding = _text(before)
        if "\r\n" in text:
            content = content.replace("\r\n", "\n").replace("\n", "\r\n")
        return before + _encoded(content, encoding.removesuffix("-sig"))


def _apply_edits(before: bytes, edits: list[Edit]) -> bytes:
    text, encoding = _text(before)
    try:
        made = _encoded(edited(text, edits), encoding.removesuffix("-sig"))
    except Unfit as error:
        raise FileToolError(f"{error} Nothing was written.") from None
    mark = len(before) - len(_encoded(text, encoding.removesuffix("-sig")))
    return before[:mark] + made


def _text(data: bytes) -> tuple[str, str]:
    try:
        if not (encoding := encoding_of(data)):
            raise FileToolError(
                "It is a binary file: only `content` with mode=overwrite changes it. Nothing was written."
            )
        return decoded(data, encoding)
    except UnicodeDecodeError:
        raise FileToolError("It is text in no encoding that is known here. Nothing was written.") from None


def _encoded(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        strange = text[error.start]
        raise FileToolError(
            f"The character U+{ord(strange):04X} cannot be written as {encoding}. Nothing was written."
        ) from None
