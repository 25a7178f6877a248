"""How many tokens a text is for a model: estimated, or counted with a vocabulary (the extra `tokens`).

Models count differently, so either is an estimate. The estimate of a text looks at how its words, digits and signs
part, and stays within about a tenth of o200k for JSON, logs, tables, code and prose (for scripts that are not Latin,
within a half). Of a length alone it can only use what tool results come to on average.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Literal

from mcpbridge.base.errors import ConfigError

if TYPE_CHECKING:  # of the extra `tokens`
    from bpe_openai._bindings import PyTokenizer


Tokenizer = Literal["estimate", "o200k"]

Counter = Callable[[str], int]
"""Tokens of a text. The same for the same text, and never longer at it than some ten milliseconds."""


def counter(how: Tokenizer = "estimate") -> Counter:
    """How tokens are counted. The vocabulary is loaded with the first text.

    Raises:
        ConfigError: the extra `tokens` is not installed.
    """
    if how == "estimate":
        return estimated_tokens_of
    if find_spec("bpe_openai") is None:
        raise ConfigError(
            "the tokenizer is not installed (bpe_openai is missing)",
            key="results.tokenizer",
            hint="Install the extra: `pip install 'mcpbridge[tokens]'`, or set `tokenizer = \"estimate\"`.",
        )
    return _counted


def estimated_tokens(size: int) -> int:
    """Tokens of so many bytes of UTF-8, rounded up. Prose has fewer, tables of numbers have more, by up to a half."""
    return -(-size * 5 // 16)  # 3.2 bytes a token: the results that the estimate was made from, together


LONGEST_COUNTED = 4096
"""Characters up to which a text is estimated as a whole; of longer ones, samples."""


def estimated_tokens_of(text: str) -> int:
    """Tokens of a text, estimated. Of a long one, samples are looked at."""
    if len(text) <= LONGEST_COUNTED:
        return _estimated(text)
    return _of_samples(text, _estimated, pieces=8, size=LONGEST_COUNTED // 8)


def _counted(text: str) -> int:
    return _of_samples(text, _in_vocabulary, pieces=16, size=4096)


def _of_samples(text: str, count: Counter, *, pieces: int, size: int) -> int:
    """The count of the whole, or what samples from all over a text come to that is longer than these together."""
    length = len(text)
    if length <= pieces * size:
        return count(text)
    step = (length - size) / (pieces - 1)
    starts = [int(number * step) for number in range(pieces)]
    found = sum(count(text[start : start + size]) for start in starts)
    return round(found * length / (pieces * size))


# -- estimated: about as tokenizers part a text before they look into their vocabulary


@cache
def _pieces() -> re.Pattern[str]:
    """Compiled with the first text: it takes a while, and a bridge may never have one."""
    return re.compile(
        r"[0-9]{1,3}"
        r"| ?(?:[a-z]++|[A-Z](?:[a-z]++|[A-Z]*+)|[!-/:-@\[-`{-~]++[\r\n]*+)"
        r"|\s+(?!\S)|\s"
        r"|[\u2e80-\ud7ff]+"  # Chinese, Japanese, Korean: most words are one or two characters
        r"| ?[^\x00-\x7f\u2e80-\ud7ff]+"
        r"|[\x00-\x1f\x7f]"
    )


PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
"""One token with the ends of lines that follow."""
_ONE, _ONE_IN_ASCII = 8, 12
"""Characters, the space before a word included, below which a piece is one token in any case."""


def _estimated(text: str) -> int:
    pieces = _pieces().findall(text)
    if text.isascii():
        if len(text) < _ONE_IN_ASCII:
            return len(pieces)
        return len(pieces) + sum([_beyond_one(piece) for piece in pieces if len(piece) >= _ONE_IN_ASCII])
    return len(pieces) + sum([_beyond_one(piece) for piece in pieces if len(piece) >= _ONE or piece >= "\u2e80"])


def _beyond_one(piece: str) -> int:
    """Tokens of one piece, less one."""
    last, length = piece[-1], len(piece)
    if last >= "\u2e80":
        return length * 3 // 4 if last < "\ud800" else length
    if last >= "\x80":
        return (length - 1) // 8
    return (length - 6) // 6 if last.isalpha() else length // 16


# -- counted


def _in_vocabulary(text: str) -> int:
    return _vocabulary().count(text.encode(errors="replace").decode())  # half a character has no UTF-8 form


@cache
def _vocabulary() -> "PyTokenizer":
    # Not by `import`, for the package reads all its vocabularies into tables of Python then: 100 MB and a second, for
    # what counting does not use.
    package = find_spec("bpe_openai")
    found = PathFinder.find_spec("bpe_openai._bindings", package and package.submodule_search_locations)
    assert found is not None
    assert found.loader is not None
    bindings = module_from_spec(found)
    found.loader.exec_module(bindings)
    return bindings.tokenizer_for_encoding("o200k_base")
