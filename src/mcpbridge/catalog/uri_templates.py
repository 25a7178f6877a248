"""Does a URI come from a URI template (RFC 6570)?

Templates come from servers and URIs from clients, so nothing here may backtrack: a regular expression made from a
template can be made to run for years (CVE-2026-0621 was that). Instead the set of all positions of the URI that the
template can have reached is one integer, a bit a position, and each part of the template moves the whole set at
once. The cost is the length of the template times that of the URI over the machine's word; no input makes it worse.

Lenient where it only decides who is asked: variables may be empty, and in a query in any order.
"""

import re
from collections.abc import Callable

from msgspec import Struct

LONGEST_URI = 2048
"""Characters; a longer URI is matched against no template."""

_LONGEST_TEMPLATE = 2048
_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_OPERATORS = "+#./;?&"

_NOT_IN_SEGMENT = "/?#"
_NOT_IN_PATH = "?#"
_NOT_IN_QUERY = "#"
_ANYTHING = ""

_STOPS = {
    "": _NOT_IN_SEGMENT,
    "+": _ANYTHING,
    "#": _ANYTHING,
    ".": _NOT_IN_SEGMENT,
    "/": _NOT_IN_SEGMENT,
    ";": _NOT_IN_SEGMENT,
    "?": _NOT_IN_QUERY,
    "&": _NOT_IN_QUERY,
}
"""Operator to the characters that end its values."""


class UriBits:
    """One URI, as sets of positions. Made once and matched against many templates."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._backwards = uri[::-1]  # bit 0 is the first character
        self._with: dict[str, int] = {}
        self._without: dict[str, int] = {}

    def having(self, char: str) -> int:
        """The positions of this character."""
        bits = self._with.get(char)
        if bits is None:
            bits = self._with[char] = self._bits(lambda other: other == char) if char in self.uri else 0
        return bits

    def free_of(self, stops: str) -> int:
        """The positions of all characters but these."""
        bits = self._without.get(stops)
        if bits is None:
            bits = self._without[stops] = self._bits(lambda other: other not in stops)
        return bits

    def _bits(self, wanted: Callable[[str], bool]) -> int:
        return int("".join("1" if wanted(char) else "0" for char in self._backwards) or "0", 2)


class _Variables(Struct, frozen=True):
    """One `{expression}`: nothing, or its first character (if it has one) and then values up to a stop."""

    first: str
    stops: str


class UriTemplate:
    """A template, ready to be asked. One that is malformed or too long matches nothing."""

    __slots__ = ("_literal_start", "_parts")

    def __init__(self, template: str) -> None:
        self._parts = _parsed(template) if len(template) <= _LONGEST_TEMPLATE else None
        first = self._parts[0] if self._parts else ""
        self._literal_start = first if isinstance(first, str) else ""

    def matches(self, bits: UriBits) -> bool:
        """Whether some values of the variables make this URI."""
        uri = bits.uri
        if self._parts is None or not uri.startswith(self._literal_start) or len(uri) > LONGEST_URI:
            return False
        reached = 1
        for part in self._parts:
            reached = _after_text(reached, part, bits) if isinstance(part, str) else _after_values(reached, part, bits)
            if not reached:
                return False
        return bool(reached >> len(uri) & 1)


def _after_text(reached: int, text: str, bits: UriBits) -> int:
    for char in text:
        reached = (reached & bits.having(char)) << 1
        if not reached:
            break
    return reached


def _after_values(reached: int, part: _Variables, bits: UriBits) -> int:
    start = (reached & bits.having(part.first)) << 1 if part.first else reached
    allowed = bits.free_of(part.stops)
    # The carry of the addition runs through each stretch of allowed characters that a start stands in:
    # every position it passes, and the one behind the stretch, is reached ("MatchStar" of Parabix).
    return reached | start | (((start & allowed) + allowed) ^ allowed)


def _parsed(template: str) -> list[str | _Variables] | None:
    parts: list[str | _Variables] = []
    end = 0
    for match in _EXPRESSION.finditer(template):
        text = template[end : match.start()]
        variables = _variables(match[1])
        if variables is None or "{" in text or "}" in text:
            return None
        parts += [text, variables] if text else [variables]
        end = match.end()
    rest = template[end:]
    if "{" in rest or "}" in rest:
        return None
    return [*parts, rest] if rest else parts


def _variables(expression: str) -> _Variables | None:
    operator = expression[:1] if expression[:1] in _OPERATORS else ""
    names = expression[len(operator) :]
    if not names:
        return None
    stops = _STOPS[operator]
    if operator == "/" and ("," in names or "*" in names):
        stops = _NOT_IN_PATH  # several values, each behind a slash of its own
    return _Variables("" if operator == "+" else operator, stops)
