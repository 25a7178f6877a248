"""What a program printed at a terminal, as one animated SVG: no scripts, no fonts, only CSS.

Output that goes on line by line is understood, with colours; no movement of the cursor. So every line stands in the
picture once: it appears at its time, and the whole moves up when the window is full. Where motion is unwanted
(`prefers-reduced-motion`), the end is shown.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

Frame = tuple[float, str]
"""Seconds since the start, and what was printed then."""

_WIDTH, _HEIGHT = 8.43, 20
"""Pixels of a character."""
_SIZE, _PADDING, _BAR = 14, 16, 34
"""Pixels: of the font, around the text, and of the title bar."""

_COLOURS = {
    31: "#ff7b72",
    32: "#56d364",
    33: "#e3b341",
    34: "#79c0ff",
    35: "#d2a8ff",
    36: "#39c5cf",
}
_PLAIN, _DIM, _BRIGHT = "#c9d1d9", "#8b949e", "#f0f6fc"
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono','DejaVu Sans Mono',monospace"

_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r?\n)|(─{3,})|([^\x00-\x1f\x7f─]+|─{1,2})")


@dataclass(frozen=True, slots=True)
class Style:
    """How text looks."""

    colour: str = ""
    is_bold: bool = False
    is_dim: bool = False

    def changed(self, codes: str) -> "Style":
        """After an escape sequence with these codes (ECMA-48, SGR)."""
        style = self
        for code in [int(code or 0) for code in codes.split(";")]:
            if code == 0:
                style = Style()
            elif code == 1:
                style = replace(style, is_bold=True)
            elif code == 2:
                style = replace(style, is_dim=True)
            elif code in _COLOURS:
                style = replace(style, colour=_COLOURS[code])
        return style

    @property
    def fill(self) -> str:
        """The colour, after what is bold and dim."""
        return self.colour or (_DIM if self.is_dim else _BRIGHT if self.is_bold else _PLAIN)


@dataclass(frozen=True, slots=True)
class Run:
    """Some characters of one style that appear together."""

    at: float
    row: int
    column: int
    text: str
    style: Style


def runs(frames: Sequence[Frame]) -> Iterator[Run]:
    """What is printed, piece by piece."""
    row, column, style = 0, 0, Style()
    for at, text in frames:
        for found in _ESCAPE.finditer(text):
            codes, command, line_end, rule, plain = found.groups()
            if command == "m":
                style = style.changed(codes)
            elif line_end:
                row, column = row + 1, 0
            elif printed := rule or plain:
                yield Run(at, row, column, printed, style)
                column += len(printed)


def picture(frames: Sequence[Frame], *, columns: int, rows: int, title: str, description: str, hold: float) -> str:
    """The SVG. `hold`: seconds that the end is shown before it begins anew."""
    parts = list(runs(frames))
    seconds = frames[-1][0] + hold
    moments = sorted({part.at for part in parts})
    names = {at: f"t{number}" for number, at in enumerate(moments)}
    width = round(columns * _WIDTH + 2 * _PADDING)
    height = rows * _HEIGHT + _BAR + _PADDING
    lines: list[str] = []
    for at in moments:
        drawn = "".join(_drawn(part) for part in parts if part.at == at)
        lines.append(f'<g class="{names[at]}">{drawn}</g>' if at else drawn)
    appear = "".join(
        f"@keyframes {names[at]}{{0%{{opacity:0}}{at / seconds:.3%},100%{{opacity:1}}}}"
        f".{names[at]}{{animation-name:{names[at]}}}"
        for at in moments
        if at
    )
    scrolls = _scrolls(parts, rows)
    last = scrolls[-1][1] if scrolls else 0
    scroll = "".join(f"{at / seconds:.3%}{{transform:translateY({-moved * _HEIGHT}px)}}" for at, moved in scrolls)
    style = (
        f"text{{font:{_SIZE}px {_FONTS};white-space:pre}}.b{{font-weight:700}}"
        f"g{{animation:{seconds:.2f}s step-end infinite}}"
        f"@keyframes s{{0%{{transform:none}}{scroll}100%{{transform:translateY({-last * _HEIGHT}px)}}}}"
        ".s{animation-name:s}"
        f"{appear}"
        f"@media(prefers-reduced-motion:reduce){{g{{animation:none}}.s{{transform:translateY({-last * _HEIGHT}px)}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title description">\n'
        f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>\n'
        f"<style>{style}</style>\n"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="9" fill="#0d1117" stroke="#3d444d"/>\n'
        f'<circle cx="20" cy="18" r="6" fill="#ff5f57"/><circle cx="40" cy="18" r="6" fill="#febc2e"/>'
        f'<circle cx="60" cy="18" r="6" fill="#28c840"/>\n'
        f'<text x="{width / 2:g}" y="23" text-anchor="middle" fill="{_DIM}">{escape(title)}</text>\n'
        f'<svg x="{_PADDING}" y="{_BAR}" width="{width - 2 * _PADDING}" height="{rows * _HEIGHT}">\n<g class="s">\n'
        + "\n".join(lines)
        + "\n</g>\n</svg>\n</svg>\n"
    )


def _scrolls(parts: Sequence[Run], rows: int) -> list[tuple[float, int]]:
    """When the window is full: from which second on it shows how many rows less at the top."""
    found: list[tuple[float, int]] = []
    for part in parts:
        hidden = part.row - rows + 1
        if hidden > (found[-1][1] if found else 0):
            if found and found[-1][0] == part.at:
                found.pop()
            found.append((part.at, hidden))
    return found


def _drawn(part: Run) -> str:
    x, y = round(part.column * _WIDTH, 2), part.row * _HEIGHT + 15
    length = round(len(part.text) * _WIDTH, 2)
    if part.text.startswith("───"):
        return f'<path d="M{x} {y - 5}h{length}" stroke="{part.style.fill}" stroke-opacity=".55"/>'
    if not part.text.strip():
        return ""
    bold = ' class="b"' if part.style.is_bold else ""
    # The length holds columns together, whichever font a reader has.
    text = escape(part.text, quote=False)
    return f'<text{bold} x="{x}" y="{y}" fill="{part.style.fill}" textLength="{length}">{text}</text>'
