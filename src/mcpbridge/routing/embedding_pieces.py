"""A text as the pieces that a model of the BERT family reads: words in lower case and signs, by its vocabulary."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

from mcpbridge.routing.vectors import table
from mcpbridge.routing.wordpieces import WordPieces

__all__ = ["Pieces", "vocabulary_of"]

_WORD = re.compile(r"[^\W_\u3400-\u9fff\uf900-\ufaff]+|[^\s]")
"""Letters and digits together; anything else, and Chinese characters, alone."""

_CHARACTERS = 32
"""Characters of a text that are looked at for each piece that may come of it."""

_Rows = Callable[[str], tuple[int, ...]]
"""The entries of which a word is made; none for a word that is not made of any."""


class Pieces:
    """Cuts texts into the rows of a vocabulary."""

    def __init__(self, rows: _Rows, longest: int, *, keeps_case: bool = False) -> None:
        """`longest`: pieces of a text, those at its ends included.

        Raises:
            ValueError: it is no vocabulary of such a model.
        """
        self._rows, self._longest, self._keeps_case = rows, longest, keeps_case
        ends = [rows(mark) for mark in ("[CLS]", "[SEP]", "[UNK]")]
        if any(len(mark) != 1 for mark in ends):
            raise ValueError("no vocabulary of a model of the BERT family")
        (self._first,), (self._last,), (self._unknown,) = ends

    def of(self, text: str) -> list[int]:
        """The pieces of a text; what is too long is cut."""
        text = text[: _CHARACTERS * self._longest]
        if not self._keeps_case:
            parted = unicodedata.normalize("NFD", text.lower())
            text = "".join([char for char in parted if unicodedata.category(char) != "Mn"])
        found = [self._first]
        for word in _WORD.findall(text):
            found += self._rows(word) or (self._unknown,)
            if len(found) >= self._longest:
                break
        return [*found[: self._longest - 1], self._last]


def vocabulary_of(folder: Path) -> tuple[_Rows, int]:
    """The vocabulary that lies beside a model, and how many entries it has; else the one that the bridge ships.

    Raises:
        OSError: a file cannot be read.
        ValueError: it holds no vocabulary.
    """
    plain, packed = folder / "vocab.txt", folder / "tokenizer.json"
    if plain.is_file():
        entries = plain.read_text("utf-8").split("\n")
        entries = entries[:-1] if entries and not entries[-1] else entries
    elif packed.is_file():
        try:
            vocabulary: dict[str, int] = json.loads(packed.read_text("utf-8"))["model"]["vocab"]
            entries = sorted(vocabulary, key=vocabulary.__getitem__)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError("tokenizer.json holds no vocabulary of word pieces") from error
    else:
        return _shipped()
    return WordPieces(entries).rows, len(entries)


_SHIPPED_ROWS = 30_522
"""Entries of the vocabulary of BERT in lower case, by which nearly all small English models read."""


def _shipped() -> tuple[_Rows, int]:
    """That of the table of word vectors, if it is still BERT's."""
    found = table()
    marks = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "##～": _SHIPPED_ROWS - 1}
    if found is None or any(found.rows(mark) != (row,) for mark, row in marks.items()):
        raise ValueError("there is no vocab.txt beside the model")
    return found.rows, _SHIPPED_ROWS
