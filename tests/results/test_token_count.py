"""Tokens, estimated and counted: how near the estimate comes, and what it costs at most."""

import json
import random
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.results import token_count as tokens
from mcpbridge.results.token_count import counter, estimated_tokens, estimated_tokens_of

HAS_VOCABULARY = find_spec("bpe_openai") is not None

rng = random.Random(7)
WORDS = [
    "the",
    "server",
    "answered",
    "with",
    "an",
    "unexpected",
    "status",
    "while",
    "a",
    "session",
    "was",
    "being",
    "renewed",
    "for",
    "its",
    "client",
]


def prose() -> str:
    return ". ".join(" ".join(rng.choices(WORDS, k=12)).capitalize() for _ in range(200))


def numbers() -> str:
    return json.dumps([round(rng.random() * 10_000, 3) for _ in range(2000)])


def rows() -> str:
    return json.dumps(
        [
            {
                "id": number,
                "name": rng.choice(WORDS),
                "email": f"{rng.choice(WORDS)}@example.com",
                "total": number * 7.5,
            }
            for number in range(300)
        ]
    )


def log() -> str:
    return "\n".join(
        f"2026-03-{rng.randint(10, 28)}T{rng.randint(10, 23)}:04:05.{rng.randint(100, 999)}Z INFO {rng.choice(WORDS)} "
        f"took {rng.randint(1, 900)}ms id={rng.getrandbits(64):016x}"
        for _ in range(300)
    )


def python() -> str:
    with open(tokens.__file__, encoding="utf-8") as source:  # noqa: PTH123 - a module's own file
        return source.read()


@pytest.mark.skipif(not HAS_VOCABULARY, reason="the extra `tokens` is not installed")
@pytest.mark.parametrize("make", [prose, numbers, rows, log, python])
def test_the_estimate_of_a_text_is_near_what_is_counted(make: Callable[[], str]) -> None:
    text = make()
    assert estimated_tokens_of(text) == pytest.approx(counter("o200k")(text), rel=0.2)


@pytest.mark.skipif(not HAS_VOCABULARY, reason="the extra `tokens` is not installed")
def test_counting_is_exact_and_of_long_texts_near() -> None:
    count = counter("o200k")
    assert count("hello world") == 2
    assert count("<|endoftext|>") > 1, "it is text, and no sign"
    assert count("\ud800 lone") > 0
    piece = rows()
    assert count(piece * 20) == pytest.approx(count(piece) * 20, rel=0.05)


@pytest.mark.parametrize("text", ["", "x", " ", "\n", "\0", "é", "工", "\ud800", "👍", "§"])
def test_something_is_never_nothing(text: str) -> None:
    assert (estimated_tokens_of(text) > 0) == (text != "")


@given(st.integers(0, 10**9))
def test_a_length_alone_is_counted_up(size: int) -> None:
    found = estimated_tokens(size)
    assert (found == 0) == (size == 0)
    assert 0 <= found - size / 3.2 < 1


@given(st.text(max_size=200))
def test_the_estimate_of_any_text_is_bounded_by_its_length_and_always_the_same(text: str) -> None:
    assert 0 <= estimated_tokens_of(text) <= 2 * len(text)
    assert estimated_tokens_of(text) == counter()(text)


@pytest.mark.parametrize("character", ["a", " ", "7", '"', "\0", "工", "\ud800", "\n"])
def test_no_text_is_looked_at_as_a_whole_when_it_is_long(character: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    real = tokens._estimated
    monkeypatch.setattr(tokens, "_estimated", lambda text: looked_at.append(len(text)) or real(text))
    assert estimated_tokens_of(character * 10_000_000) > 0
    assert sum(looked_at) == 4096


def test_a_vocabulary_that_is_not_installed_is_a_mistake_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"tokenizer is not installed"):
        counter("o200k")
