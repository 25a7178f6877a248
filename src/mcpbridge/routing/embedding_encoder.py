"""An encoder of the BERT family in numpy: word pieces in, one vector a text out. Small models only need this much.

The pieces of several texts stand below each other in one matrix, which the linear layers take as a whole; only the
attention goes text by text. So nothing is padded and nothing masked.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mcpbridge.routing.embedding_weights import Array, Matrix, numpy

__all__ = ["Encoder"]


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
