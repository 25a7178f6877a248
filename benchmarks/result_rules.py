"""What a text in place of a large result is worth: how many questions it answers, and what that costs. Pure.

No model is asked. A question counts as answered when its answer can be read in the text, near a word that the question
is about; as answered by one step when everything that an expression over the original needs can be read in it.
"""

import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Answer", "Payload", "Question", "Score", "load", "score", "shows", "token_count", "tokenizer"]

_NEAR = 120
"""Characters between an answer and a word of its question."""
_STEP = 50
"""Tokens of a further call besides its expression and what comes back."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that one might want to know of a result."""

    text: str
    answer: Any
    expression: str
    fields: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Payload:
    """What a tool returned."""

    name: str
    mime: str
    text: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client was given in place of a payload."""

    text: str
    whole: bool = False
    """It says all that the payload says, in whatever form."""


def load(folder: Path) -> list[Payload]:
    """The payloads of a folder, by name."""
    found: list[Payload] = []
    for path in sorted(folder.glob("*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        questions = tuple(
            Question(one["q"], one["answer"], one["js"], tuple(one["fields"]), tuple(one["near"]))
            for one in said["questions"]
        )
        text = path.with_suffix(".payload").read_text(encoding="utf-8")
        found.append(Payload(said["name"], said.get("mime", ""), text, questions))
    return found


@cache
def _encoder() -> tuple[str, Callable[[str], Any] | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its vocabulary in an old way
        try:
            import bpe_openai
        except ImportError:
            return "an estimate: characters / 4", None
        return "o200k", bpe_openai.get_encoding("o200k_base").encode


def tokenizer() -> str:
    """What tokens are counted with."""
    return _encoder()[0]


@cache
def token_count(text: str) -> int:
    """Tokens of a text."""
    encode = _encoder()[1]
    return len(encode(text)) if encode else (len(text) + 3) // 4


@dataclass(frozen=True, slots=True)
class Score:
    """What a method is worth over some payloads."""

    raw: int
    """Tokens of the payloads."""
    tokens: int
    """Tokens of what was given in their place."""
    asked: int
    shown: int
    stepped: int
    """Questions that one more step answers."""
    cost: int
    """Tokens until answered, summed over the questions."""

    @property
    def saved(self) -> float:
        return 1 - self.tokens / self.raw

    @property
    def at_once(self) -> float:
        return self.shown / self.asked

    @property
    def after_one_step(self) -> float:
        return (self.shown + self.stepped) / self.asked

    @property
    def tokens_per_answer(self) -> float:
        return self.cost / self.asked


def score(payloads: Sequence[Payload], answers: Sequence[Answer], *, goes_on: bool) -> Score:
    """`goes_on`: the method keeps the original, so that a further step is possible.

    What neither the text nor a step answers costs the payload as well.
    """
    raw = tokens = asked = shown = stepped = cost = 0
    for payload, answer in zip(payloads, answers, strict=True):
        whole, given = token_count(payload.text), token_count(answer.text)
        raw, tokens = raw + whole, tokens + given
        for question in payload.questions:
            asked += 1
            cost += given
            if answer.whole or shows(answer.text, question):
                shown += 1
            elif goes_on and _tells_how(answer.text, question):
                stepped += 1
                cost += _STEP + token_count(question.expression) + token_count(json.dumps(question.answer))
            else:
                cost += whole
    return Score(raw, tokens, asked, shown, stepped, cost)


def shows(text: str, question: Question) -> bool:
    """The answer can be read in the text, near a word of the question if it has such words."""
    text = text.replace('\\"', '"')
    if isinstance(question.answer, list):
        return all(_pattern(item).search(text) for item in question.answer)
    places = [found.span() for found in _pattern(question.answer).finditer(text)]
    if not places or not question.near:
        return bool(places)
    lowered = text.lower()
    return any(_is_near(lowered, word.lower(), places) for word in question.near)


def _is_near(text: str, word: str, places: list[tuple[int, int]]) -> bool:
    at = text.find(word)
    while at >= 0:
        for begin, end in places:
            inside = begin <= at < end
            if not inside and (abs(begin - at - len(word)) <= _NEAR or abs(at - end) <= _NEAR):
                return True
        at = text.find(word, at + 1)
    return False


def _pattern(value: Any) -> "re.Pattern[str]":
    """The value as a word of its own: 12 is not in 112, 12.5 or 12a."""
    if isinstance(value, bool):
        value = json.dumps(value)
    if isinstance(value, int | float) or re.fullmatch(r"-?\d+(\.\d+)?", value):
        return re.compile(rf"(?<![\w.]){re.escape(str(value))}(?!\w|\.\d)")
    return re.compile(rf"(?<![\w-]){re.escape(value)}(?![\w-])")


def _tells_how(text: str, question: Question) -> bool:
    """The names that an expression needs can be read in the text: the last two of each path."""
    names = {name for field in question.fields for name in field.split(".")[-2:]}
    return all(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)
