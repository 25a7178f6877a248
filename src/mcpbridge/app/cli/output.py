"""What commands print: tables for people, plain text for pipes, JSON for programs.

Text that comes from upstreams is shown without control characters on a terminal, because those can rewrite what
is there, or type commands.
"""

import base64
import binascii
import json
import re
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_UNSEEN = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON may hold as it is, and a terminal must not get: controls, marks of direction, halves of characters."""

Block = Mapping[str, Any]


def visible(text: str) -> str:
    """The text without control characters (but line ends and tabs) and without marks that turn its direction."""
    return _CONTROLS.sub("�", text.replace("\r\n", "\n"))


def first_line(text: str, width: int = 80) -> str:
    """The beginning of a text, on one line of at most `width` characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def size_text(count: int) -> str:
    """Bytes as a person reads them: `12 B`, `1.5 KiB`, `2.0 MiB`."""
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"


_CONSONANT_Y = tuple(f"{letter}y" for letter in "bcdfghjklmnpqrstvwxz")


def counted(count: int, what: str) -> str:
    """`1 result`, `2 results`, `2 entries`."""
    if count == 1:
        return f"{count} {what}"
    return f"{count} {what[:-1]}ies" if what.endswith(_CONSONANT_Y) else f"{count} {what}s"


def note(text: str) -> None:
    """Show a person something beside the result."""
    print(f"mcpbridge: {text}", file=sys.stderr)


def print_json(json_format: str, document: Mapping[str, object]) -> None:
    """One JSON document on standard output, with its format: the command's name and a version, such as `list/1`.

    The formats are those of `json_formats/formats.py`. A version goes up when a field goes, or means something else.
    """
    print_json_value({"format": json_format, **document})


def print_json_line(json_format: str, document: Mapping[str, object]) -> None:
    """The same on one line, for commands that print many documents."""
    print(json_text({"format": json_format, **document}))


def print_json_value(value: object) -> None:
    """A JSON value that is not the bridge's own, such as a tool's result: as it is."""
    print(json_text(value, indent=2 if sys.stdout.isatty() else None))


def json_text(document: object, *, indent: int | None = None) -> str:
    """JSON that means the same, with all that could rewrite a terminal spelled as escapes."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_text(text: str) -> None:
    """Text of an upstream, ending with a line end; as it is when it goes to a file or a pipe."""
    text = visible(text) if sys.stdout.isatty() else text
    # A lone surrogate, which JSON can hold, has no UTF-8 form.
    text = text.encode("utf-8", errors="replace").decode("utf-8")
    print(text, end="" if text.endswith("\n") else "\n")


WITHOUT_HEADER = "mcpbridge.without_header"
"""What a command that runs with `--no-header` has in the `meta` of its context."""


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: str = "", is_report: bool = False
) -> None:
    """A table with titles, unless `--no-header` was said; on a terminal within its width, otherwise in aligned columns.

    `is_report`: a row is a sentence that says what was done, so that it needs no titles but on a terminal.
    Where a terminal is too narrow, the column titled `wraps` continues in the next line; without one, the last is cut.
    """
    import click  # every command has it already, and who imports this module may be none

    context = click.get_current_context(silent=True)
    has_header = context is None or not context.meta.get(WITHOUT_HEADER)
    cells = [[visible(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(titles, cells, wraps, has_header=has_header)
        return
    if has_header and not is_report:
        cells.insert(0, list(titles))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(titles: Sequence[str], rows: Sequence[Sequence[str]], wraps: str, *, has_header: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    gives_way = wraps or titles[-1]
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=has_header)
    for title in titles:
        table.add_column(title, no_wrap=title != gives_way)
    for row in rows:
        # As text: square brackets in it are no markup.
        table.add_row(*(Text(cell, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis") for cell in row))
    Console().print(table)


def is_at_terminal() -> bool:
    """A person can be asked: what they type is read, and what is asked is seen."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class StatusLine:
    """One line on standard error that says what happens, while a person is looking; in a pipe it is silent."""

    def __init__(self) -> None:
        self.is_seen = sys.stderr.isatty()
        self._text, self._width = "", 0
        self._began = 0.0
        self._lock = Lock()

    def show(self, text: str) -> None:
        """Show this text in place of the one before."""
        if self.is_seen and text:
            with self._lock:
                if not self._text:
                    self._began = monotonic()
                self._text = text
                self._draw()

    def tick(self) -> None:
        """Show for how long it has been shown, once that is some seconds."""
        with self._lock:
            if self._text:
                self._draw()

    def clear(self) -> None:
        """Make room for other output."""
        with self._lock:
            if self._width:
                self._write(f"\r{' ' * self._width}\r")
            self._text, self._width = "", 0

    def _draw(self) -> None:
        seconds = int(monotonic() - self._began)
        passed = f" ({seconds} s)" if seconds >= _SOME_SECONDS else ""
        text = first_line(self._text, shutil.get_terminal_size().columns - 1 - len(passed)) + passed
        self._write(f"\r{text.ljust(self._width)}")
        self._width = len(text)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


_SOME_SECONDS = 2


@contextmanager
def progress(text: str = "", *, ticks: bool = True) -> Generator[StatusLine]:
    """Show on standard error what happens, if a person is looking, and for how long. Gone at the end.

    `ticks` False: the seconds are not shown, since a person may be typing behind it.
    """
    line = StatusLine()
    line.show(text)
    ended = Event()
    if line.is_seen and ticks:
        Thread(target=_tick, args=(line, ended), name="progress", daemon=True).start()
    try:
        yield line
    finally:
        ended.set()
        line.clear()


def _tick(line: StatusLine, ended: Event) -> None:
    while not ended.wait(1):
        line.tick()


def show_contents(blocks: Sequence[Block]) -> None:
    """Print content blocks of a result, or contents of a resource: text as text, the rest by kind and size."""
    for block in blocks:
        binary = block.get("blob")
        if isinstance(binary, str) and len(blocks) == 1 and not sys.stdout.isatty():
            try:
                sys.stdout.buffer.write(base64.b64decode(binary))
            except (binascii.Error, ValueError):
                print_text(binary)
        else:
            print_text(_as_text(block))


def _as_text(block: Block) -> str:
    resource = block.get("resource")
    if isinstance(resource, dict):
        block = {**resource}
    text = block.get("text")
    if isinstance(text, str):
        return text
    for key in ("data", "blob"):
        if isinstance(data := block.get(key), str):
            size = len(data.rstrip("=")) * 3 // 4
            return f"[{block.get('mimeType', block.get('type', 'binary'))}, {size} bytes]"
    if block.get("type") == "resource_link":
        return f"[link to {block.get('uri')}]"
    return json.dumps(block, ensure_ascii=False)
