"""Take secrets out of lines that come one by one: a private key is spread over many, a text in YAML over some."""

from collections.abc import Callable

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.text import begins_secret_block

_BEGINS = late(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?!.*-----END )|PuTTY-User-Key-File-\d")
_ENDS = late(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:.*")
_OF_KEY = late(
    r"\W*[A-Za-z0-9+/=]*+\W*|.*\s[A-Za-z0-9+/=]{32,}\W*"
    r"|(?:Proc-Type|DEK-Info|Comment|Version|Encryption|Public-Lines|Private-Lines|Key-Derivation|Argon2-[\w-]+):.*"
)
"""A line of a key: base64, perhaps after what a logger writes before each line; or one of its headers."""

MOST_LINES = 400
"""Lines of one key; the longest in use have 250."""


class LineMasker:
    """Masks one line after another; those of one source alone."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        """`redact` masks what a line holds by itself."""
        self._redact = redact
        self._left = 0
        """Lines that may still be of a key; 0: none has begun."""
        self._is_in_block = False
        """Lines that are indented are of a secret."""

    def __call__(self, line: str) -> str:
        """The line without secrets."""
        if self._left:
            if (end := _ENDS.search(line)) is not None:
                self._left = 0
                return f"{MASK}{self(line[end.end() :])}"
            if _OF_KEY.fullmatch(line):
                self._left -= 1
                return MASK
            self._left = 0
        if self._is_in_block and line[:1] in (" ", "\t"):
            return MASK
        self._is_in_block = ": " in line and begins_secret_block(line)
        if ("-----BEGIN " in line or "PuTTY-" in line) and _BEGINS.search(line):
            self._left = MOST_LINES
        return self._redact(line)
