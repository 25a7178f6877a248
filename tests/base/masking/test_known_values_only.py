"""Secrets that come while the process runs: which are masked from then on, and which are forgotten in time."""

import pytest

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import MASK


def masks(redactor: Redactor, secret: str) -> bool:
    return secret not in redactor.known(f"a {secret} b")


@pytest.mark.parametrize(("secret", "is_masked"), [("qzxwv", False), ("qzxwvj", True), ("qzxwvjk", True), ("", False)])
@pytest.mark.parametrize("way", ["first", "know", "learn"])
def test_a_value_of_six_characters_is_a_secret_however_it_came(way: str, secret: str, is_masked: bool) -> None:
    redactor = Redactor([secret] if way == "first" else [])
    if way == "know":
        redactor.know([secret])
    elif way == "learn":
        redactor.learn("server", [secret])
    text = f"a {secret} b"
    assert redactor.known(text) == (f"a {MASK} b" if is_masked else text)


def test_what_comes_later_is_masked_beside_what_came_before() -> None:
    redactor = Redactor(["first-secret"])
    for name in ("second-secret", "third-secret"):
        assert not masks(redactor, name)
        redactor.know([name])
        redactor.know([name, "first-secret"])
        assert masks(redactor, name)
        assert masks(redactor, "first-secret")


def test_the_last_two_dozen_of_a_source_are_known_and_those_in_use_longest() -> None:
    redactor = Redactor()
    names = [f"secret-of-number-{number:02}" for number in range(30)]
    for name in names[:24]:
        redactor.learn("server", [name])
    assert all(masks(redactor, name) for name in names[:24])
    redactor.learn("server", [names[0]])  # it still comes, so it is in use
    redactor.learn("server", [names[24]])
    assert masks(redactor, names[0])
    assert not masks(redactor, names[1])
    assert all(masks(redactor, name) for name in names[2:25])
    redactor.learn("other", names[25:])
    assert all(masks(redactor, name) for name in (*names[2:], names[0])), "another source pushes none out"


def test_many_at_once_are_the_last_of_them() -> None:
    redactor = Redactor()
    names = [f"secret-of-number-{number:02}" for number in range(30)]
    redactor.learn("server", names)
    assert [masks(redactor, name) for name in names] == [False] * 6 + [True] * 24


def test_a_secret_that_is_known_for_good_is_not_forgotten_with_those_of_a_source() -> None:
    redactor = Redactor(["kept-for-good"])
    redactor.learn("server", ["kept-for-good"])
    redactor.learn("server", [f"secret-of-number-{number:02}" for number in range(24)])
    assert masks(redactor, "kept-for-good")
