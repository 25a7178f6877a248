"""A command line as a model writes it, taken apart into words. No shell reads it: nothing in it is expanded. Pure."""

import re
from collections.abc import Iterator, Sequence

from mcpbridge.errors import ArgumentsRefused

__all__ = ["shown", "words_of"]

LONGEST, MOST_WORDS = 20_000, 500
"""Characters and words of one command."""

_FOR_A_SHELL = frozenset(
    {"|", "||", "|&", "&", "&&", ";", ";;", ">", ">>", "<", "<<", "<<<", "&>", "2>", "2>>", "2>&1"}
)
_QUOTED_CONTROL = "\t\n"
"""Control characters that may stand in quotes: commit messages and bodies have them."""


def words_of(text: str) -> list[str]:
    r"""The words of a command line: `'…'` is literal, in `"…"` and outside `\` takes the next character as it is.

    Raises:
        ArgumentsRefused: quotes that are not closed, control characters, or something that only a shell would do.
    """
    if len(text) > LONGEST:
        raise ArgumentsRefused(f"the command has {len(text):,} characters, at most {LONGEST:,} are taken")
    _check_characters(text)
    words: list[str] = []
    for word, has_quotes in _split(text.strip(" \t\r\n")):
        if not has_quotes and (word in _FOR_A_SHELL or word.startswith((">", "<(", ">(", "2>")) or word.endswith(";")):
            raise ArgumentsRefused(
                f"{shown([word])}: no shell reads this, so there are no pipes, redirections or lists of commands. "
                "Call once for each command; narrow the output with options of the command"
            )
        words.append(word)
        if len(words) > MOST_WORDS:
            raise ArgumentsRefused(f"the command has more than {MOST_WORDS} words")
    return words


def shown(words: Sequence[str], limit: int = 300) -> str:
    """The words on one line, as they could be written; for messages and for people who are asked."""
    text = " ".join(map(_quoted, words))
    return text if len(text) <= limit else f"{text[:limit]}…"


def _quoted(word: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./~^{}-]+", word, re.ASCII):
        return word
    plain = word.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    visible = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in plain)
    return f"'{visible}'"


def _check_characters(text: str) -> None:
    for one in text:
        code = ord(one)
        if (code < 32 and one not in "\t\n\r") or 127 <= code < 160:
            raise ArgumentsRefused(f"the command has the control character U+{code:04X}")
        if 0xD800 <= code < 0xE000:
            raise ArgumentsRefused("the command has half of a surrogate pair: it is no text")


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """Words, and whether anything of each was quoted."""
    word: list[str] = []
    started = quoted = False
    quote = ""
    characters = iter(text)
    for one in characters:
        if quote == "'" and one != "'":
            word.append(_inside(one))
        elif quote and one == quote:
            quote = ""
        elif one == "\\":
            word.append(_escaped(next(characters, ""), quote))
            started = quoted = True
        elif quote:
            word.append(_inside(one))
        elif one in "'\"":
            quote, started, quoted = one, True, True
        elif one in " \t":
            if started:
                yield "".join(word), quoted
            word, started, quoted = [], False, False
        else:
            word.append(_outside(one, word))
            started = True
    if quote:
        raise ArgumentsRefused(
            f'a {quote} is not closed: in single quotes everything is literal, in double ones \\" is'
        )
    if started:
        yield "".join(word), quoted


def _inside(one: str) -> str:
    if one < " " and one not in _QUOTED_CONTROL:
        raise ArgumentsRefused(f"the command has the control character U+{ord(one):04X}")
    return one


def _escaped(one: str, quote: str) -> str:
    if not one:
        raise ArgumentsRefused("the command ends with a backslash")
    if one < " ":
        raise ArgumentsRefused("a backslash before the end of a line: write the command on one line")
    return one if not quote or one in '"\\$`' else f"\\{one}"


def _outside(one: str, word: Sequence[str]) -> str:
    if one in "\r\n":
        raise ArgumentsRefused("the command has several lines: call once for each, or quote a text of several lines")
    if one == "`" or (one == "(" and word[-1:] == ["$"]):
        raise ArgumentsRefused("no shell reads this: ` and $( ) do nothing here. Write what they would give")
    return one
