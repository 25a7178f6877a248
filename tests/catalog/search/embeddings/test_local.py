"""Vectors by a model in this process: a tiny one that the tests make, and that of the extra where it is installed."""

import json
import os
import random
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.catalog.search.embeddings.embedder import EmbedderFailed, similarities
from mcpbridge.catalog.search.embeddings.encoder import read_weights
from mcpbridge.catalog.search.embeddings.local import LocalEmbedder, Pieces, find_model, vocabulary_of

needs_numpy = pytest.mark.skipif("not __import__('importlib').util.find_spec('numpy')", reason="numpy is not installed")
needs_weights = pytest.mark.skipif(
    "not __import__('mcpbridge.catalog.search.embeddings.local', fromlist=['x']).find_model(None)"
    " or not __import__('importlib').util.find_spec('numpy')",
    reason="the extra `embed` is not installed",
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "create", "issue", "##s", "weather", "!", "天"]
WIDTH, WIDE, LAYERS = 4, 8, 2

Weights = dict[str, tuple[tuple[int, ...], list[float]]]
"""Shape and numbers by name."""


def made_up() -> Weights:
    """The weights of a tiny model."""
    dice = random.Random(6)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": (16, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for layer in range(LAYERS):
        front = f"encoder.layer.{layer}"
        inner = {f"attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        inner |= {"attention.output.dense": (WIDTH, WIDTH)}
        inner |= {"intermediate.dense": (WIDE, WIDTH), "output.dense": (WIDTH, WIDE)}
        for name, (rows, columns) in inner.items():
            shapes[f"{front}.{name}.weight"] = (rows, columns)
            shapes[f"{front}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{front}.{name}.weight"] = shapes[f"{front}.{name}.bias"] = (WIDTH,)
    return {
        name: (shape, [dice.uniform(-1, 1) * (0.1 if name.endswith("Norm.bias") else 1) for _ in range(prod(shape))])
        for name, shape in shapes.items()
    }


def safetensors(weights: Weights, front: str = "") -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (shape, numbers) in weights.items():
        data = struct.pack(f"<{len(numbers)}f", *numbers)
        offsets = [len(body), len(body) + len(data)]
        header[front + name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        body += data
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def member(number: int, value: int | bytes | str) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name: str, shape: Sequence[int], kind: int, data: bytes) -> bytes:
    return member(5, b"".join(member(1, size) for size in shape) + member(2, kind) + member(8, name) + member(9, data))


def node(kind: str, inputs: Sequence[str], output: str) -> bytes:
    return member(1, b"".join(member(1, name) for name in inputs) + member(2, output) + member(4, kind))


def floats(numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def onnx(weights: Weights, *, is_small: bool) -> bytes:
    """As exporters write it: matrices turned, under names of their own, and as bytes with a scale if `is_small`."""
    graph = b""
    for number, (name, (shape, numbers)) in enumerate(weights.items()):
        if len(shape) == 1 or name.startswith("embeddings"):
            graph += tensor(f"inner.{name}", shape, 1, floats(numbers))
            continue
        rows, columns = shape
        turned = [numbers[row * columns + column] for column in range(columns) for row in range(rows)]
        if is_small:
            scales = [
                max(abs(numbers[row * columns + column]) for column in range(columns)) / 127 for row in range(rows)
            ]
            small = [round(one / scales[place % rows]) for place, one in enumerate(turned)]
            graph += tensor(f"m{number}_q", (columns, rows), 3, struct.pack(f"{len(small)}b", *small))
            graph += tensor(f"m{number}_s", (1, rows), 1, floats(scales))
            graph += node("Cast", [f"m{number}_q"], f"m{number}_f")
            graph += node("Mul", [f"m{number}_f", f"m{number}_s"], f"m{number}")
        else:
            graph += tensor(f"m{number}", (columns, rows), 1, floats(turned))
        bias = f"inner.{name.removesuffix('weight')}bias"
        graph += node("MatMul", ["x", f"m{number}"], f"p{number}") + node("Add", [f"p{number}", bias], f"y{number}")
    return member(1, 10) + member(2, "maker") + member(7, graph)


def save(folder: Path, files: Mapping[str, bytes], **config: object) -> Path:
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 2, **config}))
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


TEXTS = ["create issues", "Weather!", "créate 天", ""]


async def vectors_of(folder: Path, texts: Sequence[str] = TEXTS) -> list[bytes]:
    embedder = LocalEmbedder(str(folder))
    try:
        return await embedder.embed(texts)
    finally:
        await embedder.close()


# -- pieces


def pieces(longest: int = 16) -> Pieces:
    rows = {word: (row,) for row, word in enumerate(WORDS)} | {"issues": (5, 6)}
    return Pieces(lambda word: rows.get(word, ()), longest)


def test_a_text_is_cut_as_the_model_wants_it() -> None:
    assert pieces().of("Créate ISSUES!天天 unheard_of") == [2, 4, 5, 6, 8, 9, 9, 1, 1, 1, 3]
    assert pieces().of("") == [2, 3]
    assert pieces(4).of("create " * 10**6) == [2, 4, 4, 3]
    assert pieces().of("[CLS]") == [2, 1, 1, 1, 3], "a text cannot say where it ends"


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_cut(text: str) -> None:
    found = pieces().of(text)
    assert 2 <= len(found) <= 16
    assert (found[0], found[-1]) == (2, 3)


def test_the_vocabulary_that_is_shipped_is_berts(tmp_path: Path) -> None:
    rows, count = vocabulary_of(tmp_path)
    assert count == 30_522
    assert Pieces(rows, 32).of("Create a GitHub issue!") == [101, 3443, 1037, 21025, 2705, 12083, 3277, 999, 102]


def test_a_vocabulary_beside_the_model_comes_first(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {w: n for n, w in enumerate(WORDS)}}}))
    rows, count = vocabulary_of(tmp_path)
    assert (count, rows("issues")) == (len(WORDS), (5, 6))
    (tmp_path / "vocab.txt").write_text("[CLS]\n[SEP]\n[UNK]\n")
    assert vocabulary_of(tmp_path)[1] == 3


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"model": {"vocab": [["a", 1]]}}', '{"model": 3}'])
def test_another_kind_of_vocabulary_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match="vocabulary"):
        vocabulary_of(tmp_path)


# -- a tiny model


@needs_numpy
async def test_all_forms_of_a_file_make_the_same_vectors(tmp_path: Path) -> None:
    weights = made_up()
    wanted = await vectors_of(save(tmp_path / "a", {"model.safetensors": safetensors(weights)}))
    assert len({*wanted}) == 4
    front = save(tmp_path / "b", {"model.safetensors": safetensors(weights, "0.auto_model.")})
    assert await vectors_of(front) == wanted
    plain = save(tmp_path / "c", {"onnx/model.onnx": onnx(weights, is_small=False)})
    assert await vectors_of(plain) == wanted
    assert await vectors_of(plain / "onnx" / "model.onnx") == wanted
    small = await vectors_of(save(tmp_path / "d", {"model.onnx": onnx(weights, is_small=True)}))
    assert all(similarities(a, [b])[0] > 0.999 for a, b in zip(wanted, small, strict=True))


@needs_numpy
async def test_a_text_has_the_same_vector_alone_and_among_many(tmp_path: Path) -> None:
    folder = save(tmp_path, {"model.safetensors": safetensors(made_up())})
    together = await vectors_of(folder, TEXTS * 5)
    alone = [(await vectors_of(folder, [text]))[0] for text in TEXTS]
    assert together == alone * 5


@needs_numpy
async def test_a_model_may_take_the_first_piece_for_the_text(tmp_path: Path) -> None:
    folder = save(tmp_path, {"model.safetensors": safetensors(made_up())})
    mean = await vectors_of(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert await vectors_of(folder) != mean


@needs_numpy
async def test_models_have_names_of_their_own(tmp_path: Path) -> None:
    weights = made_up()
    one = LocalEmbedder(str(save(tmp_path / "e5-tiny", {"model.safetensors": safetensors(weights)})))
    weights["encoder.layer.1.output.LayerNorm.bias"][1][-1] += 1
    other = LocalEmbedder(str(save(tmp_path / "b" / "e5-tiny", {"model.safetensors": safetensors(weights)})))
    assert one.name != other.name
    assert one.prefixes.query == "query: "


@needs_numpy
async def test_numpy_is_loaded_in_a_thread_and_leaves_no_trace_in_the_environment(tmp_path: Path) -> None:
    before = dict(os.environ)
    await vectors_of(save(tmp_path, {"model.safetensors": safetensors(made_up())}))
    assert dict(os.environ) == before


@needs_numpy
async def test_the_end_does_not_wait_for_what_is_left(tmp_path: Path) -> None:
    embedder = LocalEmbedder(str(save(tmp_path, {"model.safetensors": safetensors(made_up())})))
    with anyio.fail_after(10):
        await embedder.embed(TEXTS)
        assert [thread for thread in threading.enumerate() if thread.name.startswith("embedder")]
        await embedder.close()
        with pytest.raises(EmbedderFailed, match="stops"):
            await embedder.embed(TEXTS)


# -- files that are none


@needs_numpy
@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["safetensors", "onnx"]))
def test_a_damaged_file_is_refused_as_such(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    good = safetensors(made_up()) if kind == "safetensors" else onnx(made_up(), is_small=True)
    place = data.draw(st.integers(0, min(len(good), 900)))
    bad = good[:place] + data.draw(st.binary(max_size=12)) + good[place + data.draw(st.integers(0, 40)) :]
    path = tmp_path_factory.mktemp("model") / f"model.{kind}"
    path.write_bytes(bad)
    try:
        assert read_weights(path)
    except ValueError:
        pass


@needs_numpy
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.safetensors": b""}, "cannot be used"),
        ({"model.safetensors": safetensors({"x": ((1,), [1.0])})}, "word_embeddings"),
        ({"model.onnx": b"\x0a\x03abc"}, "cannot be used"),
        (
            {"model.onnx": onnx({"embeddings.word_embeddings.weight": ((1, 1), [1.0])}, is_small=False)},
            "cannot be used",
        ),
        ({}, "there is none in"),
    ],
)
async def test_what_is_no_model_fails_with_a_reason(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(EmbedderFailed, match=reason):
        await vectors_of(save(tmp_path, files))


@needs_numpy
async def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, {"model.safetensors": safetensors(made_up())})
    (folder / "vocab.txt").write_text("\n".join([*WORDS, "more", "words"]))
    with pytest.raises(EmbedderFailed, match="a vocabulary of 12 entries, and a model of 10"):
        await vectors_of(folder)


async def test_without_numpy_or_a_model_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(EmbedderFailed, match=r"needs numpy; install `mcpbridge\[embed\]`"):
        await vectors_of(save(tmp_path, {"model.safetensors": safetensors(made_up())}), ["one"])
    monkeypatch.setattr("mcpbridge.catalog.search.embeddings.local._PACKAGES", (("no_such_package", "model.onnx"),))
    embedder = LocalEmbedder()
    assert embedder.name == "no model"
    with pytest.raises(EmbedderFailed, match=r"none is installed; install `mcpbridge\[embed\]`"):
        await embedder.embed(["one", "two"])
    await embedder.close()


def test_looking_for_a_model_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "carries_a_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("mcpbridge.catalog.search.embeddings.local._PACKAGES", (("carries_a_model", "model.onnx"),))
    assert find_model(None) is None
    (package / "model.onnx").write_bytes(b"")
    assert find_model(None) == package / "model.onnx"


# -- the model of the extra


@needs_weights
async def test_the_model_of_the_extra_makes_the_vectors_of_all_minilm() -> None:
    """Its first numbers as another program (onnxruntime) computes them from the same file."""
    embedder = LocalEmbedder()
    text = "github: create issue. Create a new issue in a repository"
    issue, ticket, weather = await embedder.embed([text, "file a bug in the repo", "weather: forecast"])
    await embedder.close()
    first = [number - 256 if number > 127 else number for number in issue[:12]]
    assert first == pytest.approx([-17, -57, -54, 61, -3, -35, -11, 4, 9, 46, 47, -7], abs=1)
    near, far = similarities(issue, [ticket, weather])
    assert near > far + 0.2
