"""An encoder of the BERT family in numpy (word pieces in, vectors out), and the reader of its weights.

The weights (safetensors or ONNX) are read without the library that wrote them. Names are those of BERT as PyTorch has
it (`encoder.layer.0.output.dense.weight`), without the prefixes of exporters. Of an ONNX file only the numbers are
used, not the program: an exporter gives matrices names of its own, so each is named by the bias that is added to its
product. Nothing in a file is executed, and a file that holds no weights raises.

The pieces of several texts are below each other in one matrix, which the linear layers take as a whole; only the
attention goes text by text. So nothing is padded and nothing masked.
"""

import json
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct, field

Array = Any
"""An array of numpy."""

_FRONT = re.compile(r"^(?:.*\.)?(?=(?:embeddings|encoder)\.)")
"""What is before BERT's own names: `bert.`, `0.auto_model.`, `inner.`."""
_KINDS = {"F32": "<f4", "F16": "<f2", "I8": "i1", "F64": "<f8"}
_ONNX_KINDS = {1: "<f4", 2: "u1", 3: "i1", 10: "<f2", 11: "<f8"}
_LARGEST_HEADER = 32 << 20


def numpy() -> Any:
    """The library, of the extra `embed`."""
    return import_module("numpy")


def load_numpy() -> bool:
    """Load it, so that it works on one core if the environment says nothing else: the others are the calls'.

    Takes 0.1 s: for a thread. False: it is not installed.
    """
    name = "OPENBLAS_NUM_THREADS"  # read once, when the library is loaded; programs that we start shall not see it
    asked = os.environ.get(name)
    os.environ[name] = asked or "1"
    try:
        numpy()
    except ImportError:
        return False
    finally:
        if asked is None:
            os.environ.pop(name, None)
    return True


class Matrix(Struct, frozen=True):
    """Numbers, maybe small ones that a scale makes large. It is multiplied out where it is used."""

    numbers: Array
    scale: Array = None
    """None, or what fits to `numbers`: with 1 where it is the same along a dimension."""

    def whole(self) -> Array:
        """All of it, as 32-bit numbers."""
        numbers = self.numbers.astype("float32")
        return numbers if self.scale is None else numbers * self.scale.astype("float32")

    def rows(self, which: Array) -> Array:
        """Some rows of a table."""
        return Matrix(self.numbers[which], self._scale_of(which)).whole()

    def turned(self) -> "Matrix":
        """With rows and columns exchanged."""
        return Matrix(self.numbers.T, None if self.scale is None else self.scale.T)

    def _scale_of(self, which: Array) -> Array:
        if self.scale is None or self.scale.ndim == 0 or self.scale.shape[0] == 1:
            return self.scale
        return self.scale[which]


def read_weights(path: Path) -> dict[str, Matrix]:
    """All weights that have a name. Linear layers are as PyTorch has them: a row an output.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such file.
    """
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        found = _safetensors(data) if path.suffix == ".safetensors" else _onnx(data)
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged") from error
    return {_FRONT.sub("", name): matrix for name, matrix in found.items()}


def _safetensors(data: memoryview) -> dict[str, Matrix]:
    size = int.from_bytes(data[:8], "little")
    if size > min(len(data) - 8, _LARGEST_HEADER):
        raise ValueError("no safetensors file")
    found: dict[str, Matrix] = {}
    for name, about in json.loads(bytes(data[8 : 8 + size])).items():
        if name != "__metadata__" and about["dtype"] in _KINDS:
            first, end = about["data_offsets"]
            numbers = numpy().frombuffer(data[8 + size + first : 8 + size + end], _KINDS[about["dtype"]])
            found[name] = Matrix(numbers.reshape(about["shape"]))
    return found


# -- ONNX: protocol buffers, of which a handful of fields matter


class _Node(Struct):
    kind: str = ""
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])


def _onnx(data: memoryview) -> dict[str, Matrix]:
    known: dict[str, Matrix] = {}
    nodes: list[_Node] = []
    for graph in _all(data, 7):
        for number, value in _fields(graph):
            if number == 5:
                name, matrix = _tensor(_bytes(value))
                if matrix is not None:
                    known[name] = matrix
            elif number == 1:
                nodes.append(_node(_bytes(value)))
    if not nodes or not known:
        raise ValueError("no ONNX file with its weights inside")
    products: dict[str, str] = {}
    for node in nodes:
        if node.kind in ("Cast", "Mul", "DequantizeLinear"):
            _unpack(node, known)
        elif node.kind == "MatMul" and node.inputs[1] in known:
            products[node.outputs[0]] = node.inputs[1]
        elif node.kind == "Add":
            _name(node, known, products)
    return known


def _unpack(node: _Node, known: dict[str, Matrix]) -> None:
    """Small numbers are made large by a scale: one more matrix that is known."""
    first, *others = node.inputs
    if first not in known or any(name not in known for name in others):
        return
    matrix = known[first]
    if node.kind != "Cast":
        if len(others) == 2 and known[others[1]].numbers.any():
            return  # a zero that is not at 0: of the forms that nobody uses for weights
        scale = known[others[0]].numbers
        if node.kind == "DequantizeLinear" and scale.ndim == 1 and matrix.numbers.ndim == 2:
            scale = scale[None, :]
        matrix = Matrix(matrix.numbers, scale) if matrix.scale is None else Matrix(matrix.whole(), scale)
    known[node.outputs[0]] = matrix


def _name(node: _Node, known: dict[str, Matrix], products: Mapping[str, str]) -> None:
    """A product to which a bias is added: the matrix belongs to the bias."""
    for product, bias in (node.inputs, node.inputs[::-1]):
        if product in products and bias.endswith(".bias"):
            known[bias.removesuffix("bias") + "weight"] = known[products[product]].turned()


def _node(data: memoryview) -> _Node:
    node = _Node()
    for number, value in _fields(data):
        if number in (1, 2):
            (node.inputs if number == 1 else node.outputs).append(str(_bytes(value), "utf-8"))
        elif number == 4:
            node.kind = str(_bytes(value), "utf-8")
    return node


def _tensor(data: memoryview) -> tuple[str, Matrix | None]:
    shape: list[int] = []
    name, kind, raw = "", 0, memoryview(b"")
    for number, value in _fields(data):
        if number == 1:
            shape += [value] if isinstance(value, int) else _numbers(value)
        elif number == 2 and isinstance(value, int):
            kind = value
        elif number == 8:
            name = str(_bytes(value), "utf-8")
        elif number == 9:
            raw = _bytes(value)
    if kind not in _ONNX_KINDS or not len(raw):  # none of the numbers that a model is made of
        return name, None
    return name, Matrix(numpy().frombuffer(raw, _ONNX_KINDS[kind]).reshape(shape))


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise TypeError("a number where bytes should be")
    return value


def _all(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, value in _fields(data):
        if number == wanted:
            yield _bytes(value)


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, at = _varint(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError("no protocol buffer")
        yield key >> 3, data[at : at + size]
        at += size


def _numbers(data: memoryview) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        found.append(number)
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise ValueError("no protocol buffer")


class _Linear(Struct, frozen=True):
    weight: Array
    bias: Array

    def __call__(self, rows: Array) -> Array:
        return rows @ self.weight + self.bias


class _Norm(Struct, frozen=True):
    weight: Array
    bias: Array
    epsilon: float

    def __call__(self, rows: Array) -> Array:
        rows = rows - rows.mean(axis=1, keepdims=True)
        spread = (rows * rows).mean(axis=1, keepdims=True)
        return rows / (spread + self.epsilon) ** 0.5 * self.weight + self.bias


class _Layer(Struct, frozen=True):
    asked: _Linear
    """Queries, keys and values beside each other."""
    mixed: _Linear
    mixed_norm: _Norm
    wide: _Linear
    narrow: _Linear
    norm: _Norm


class Encoder:
    """The weights in memory. Safe to share between threads."""

    def __init__(
        self, weights: Mapping[str, Matrix], *, heads: int | None = None, epsilon: float = 1e-12, is_mean: bool = True
    ) -> None:
        """`heads`: None for what models of this width have. `is_mean`: else the first piece's vector is the text's.

        Raises:
            ValueError: these are no weights of such a model.
        """
        self._weights: Mapping[str, Matrix] = weights
        self._epsilon, self._is_mean = epsilon, is_mean
        self._words = self._matrix("embeddings.word_embeddings.weight")
        self._width = self._words.numbers.shape[-1]
        self._heads = heads or (12 if self._width in (312, 384, 768) else max(1, self._width // 64))
        self._places = self._whole("embeddings.position_embeddings.weight")
        self._kind = self._whole("embeddings.token_type_embeddings.weight")[0]
        self._norm = self._normed("embeddings.LayerNorm")
        self._layers: list[_Layer] = []
        while f"encoder.layer.{len(self._layers)}.output.dense.weight" in weights:
            self._layers.append(self._layer(f"encoder.layer.{len(self._layers)}"))
        if not self._layers or self._width % self._heads:
            raise ValueError("no weights of a model of the BERT family")
        self._weights = {}  # what is kept are the copies that were made

    @property
    def rows(self) -> int:
        """Entries of the vocabulary."""
        return self._words.numbers.shape[0]

    @property
    def longest(self) -> int:
        """Pieces that a text may have."""
        return self._places.shape[0]

    def encode(self, texts: Sequence[Sequence[int]]) -> list[Array]:
        """A vector of each text, given as the rows of its pieces; each has at least one, and at most `longest`."""
        spans: list[slice] = []
        for pieces in texts:
            first = spans[-1].stop if spans else 0
            spans.append(slice(first, first + len(pieces)))
        if not spans:
            return []
        which = numpy().fromiter((piece for pieces in texts for piece in pieces), numpy().int64, spans[-1].stop)
        places = numpy().concatenate([self._places[: len(pieces)] for pieces in texts])
        rows = self._norm(self._words.rows(which) + places + self._kind)
        for layer in self._layers:
            asked = layer.asked(rows)
            mixed = numpy().concatenate([self._attended(asked[span]) for span in spans])
            rows = layer.mixed_norm(layer.mixed(mixed) + rows)
            rows = layer.norm(layer.narrow(_gelu(layer.wide(rows))) + rows)
        return [rows[span].mean(axis=0) if self._is_mean else rows[span.start] for span in spans]

    def _attended(self, asked: Array) -> Array:
        """What each piece of one text takes from the others."""
        size = self._width // self._heads
        parts = asked.reshape(len(asked), 3, self._heads, size).transpose(1, 2, 0, 3)
        scores = parts[0] @ parts[1].transpose(0, 2, 1) * size**-0.5
        scores = numpy().exp(scores - scores.max(axis=2, keepdims=True))
        scores /= scores.sum(axis=2, keepdims=True)
        return (scores @ parts[2]).transpose(1, 0, 2).reshape(len(asked), self._width)

    # -- weights

    def _layer(self, name: str) -> _Layer:
        asked = [self._linear(f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        return _Layer(
            _Linear(
                numpy().concatenate([one.weight for one in asked], axis=1),
                numpy().concatenate([one.bias for one in asked]),
            ),
            self._linear(f"{name}.attention.output.dense"),
            self._normed(f"{name}.attention.output.LayerNorm"),
            self._linear(f"{name}.intermediate.dense"),
            self._linear(f"{name}.output.dense"),
            self._normed(f"{name}.output.LayerNorm"),
        )

    def _linear(self, name: str) -> _Linear:
        return _Linear(numpy().ascontiguousarray(self._whole(f"{name}.weight").T), self._whole(f"{name}.bias"))

    def _normed(self, name: str) -> _Norm:
        return _Norm(self._whole(f"{name}.weight"), self._whole(f"{name}.bias"), self._epsilon)

    def _whole(self, name: str) -> Array:
        return self._matrix(name).whole()

    def _matrix(self, name: str) -> Matrix:
        if name not in self._weights:
            raise ValueError(f"no weights of a model of the BERT family: {name} is missing")
        return self._weights[name]


def _gelu(rows: Array) -> Array:
    """By its usual approximation: numpy has no error function."""
    return 0.5 * rows * (1 + numpy().tanh(0.7978845608 * (rows + 0.044715 * rows * rows * rows)))
