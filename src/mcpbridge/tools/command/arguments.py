"""The words of a command, with places for arguments. Pure.

`{name}` in a word stands for the argument of this name; `{name?}` for one that may be left out; `{{name}}` is the text
`{name}`; every other brace stands for itself. No shell reads the words, so an argument is never split, and no quote,
space or dollar in it means anything.

- A word whose argument is left out (or null) is left out. A list of words in the template is a group, which is left out
  as a whole when one of its arguments is: `["--max", "{max?}"]`.
- A word that contains a list is repeated for each of its items: `{paths}` becomes several words, `-I{dirs}` several
  options; an empty list leaves the word out.
- Numbers and booleans are written as in JSON, and so are objects, and lists within lists.
- A word that begins with a dash through an argument would be an option that the caller chose. That is refused, unless
  the argument is one of `options`, or a word `--` is before it in the template.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from mcpbridge.base.errors import ArgumentsRefused

Word = str
Template = Sequence[Word | Sequence[Word]]
"""Words, and groups of words that are written or left out together."""

LONGEST_WORD = 128 * 1024 - 1
"""Bytes of one word that Linux takes."""
LONGEST_LINE = 1 << 20
"""Bytes of all words together; systems take 1 to 2 MiB, the environment included."""

_PLACE = re.compile(r"\{\{([A-Za-z_][\w-]*)\}\}|\{([A-Za-z_][\w-]*)(\?)?\}", re.ASCII)
_END_OF_OPTIONS = "--"


def placeholders(*texts: str) -> dict[str, bool]:
    """The arguments that are named in these texts, in order, each with whether it must be given."""
    found: dict[str, bool] = {}
    for text in texts:
        for _, name, optional in _PLACE.findall(text):
            if name:
                found[name] = found.get(name, False) or not optional
    return found


def words_of(template: Template) -> Iterator[Word]:
    """All words, those of groups as well."""
    for part in template:
        yield from (part,) if isinstance(part, str) else part


def schema_for(template: Template, stdin: str) -> dict[str, Any]:
    """The schema of the arguments, where none is given: texts, of which those without `?` are required."""
    found = placeholders(*words_of(template), stdin)
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in found},
        "required": [name for name, required in found.items() if required],
        "additionalProperties": False,
    }


def mistakes(template: Template, options: Sequence[str]) -> Iterator[str]:
    """What is wrong with a template, each a sentence for whoever wrote it."""
    words = list(words_of(template))
    if not words or not isinstance(template[0], str) or not words[0]:
        yield "the first word is the program to run"
        return
    if placeholders(words[0]):
        yield f"the program is fixed: {words[0]!r} lets its caller choose it"
    if any("\0" in word for word in words):
        yield "a word with a NUL character cannot be passed to a program"
    if any(not isinstance(part, str) and not part for part in template):
        yield "a list of words cannot be empty"
    found = placeholders(*words)
    for name in options:
        if name not in found:
            yield f"`options` names {name!r}, which is in no word"
    for word in words[1:]:
        place = _PLACE.search(word)
        if place and place[2] and place[2] not in options and re.fullmatch("-+", word[: place.start()]):
            yield f"the word {word!r} lets its caller choose the option: add {place[2]!r} to `options` if you want that"


def filled(template: Template, arguments: Mapping[str, Any], options: Sequence[str]) -> tuple[str, ...]:
    """The words with the arguments in their places.

    Raises:
        ArgumentsRefused: an argument cannot be where it would.
    """
    argv: list[str] = []
    is_past_options = False
    for part in template:
        group = (part,) if isinstance(part, str) else tuple(part)
        if all(_is_given(arguments, word) for word in group):
            for word in group:
                argv += _repeated(word, arguments, options, is_checked=not is_past_options)
        # Only a `--` that always stands there ends the options.
        is_past_options = is_past_options or (isinstance(part, str) and part == _END_OF_OPTIONS)
    if sum(len(word.encode()) + 1 for word in argv) > LONGEST_LINE:
        raise ArgumentsRefused(f"The arguments are too long for a command: at most {LONGEST_LINE:,} bytes together")
    return tuple(argv)


def filled_text(text: str, arguments: Mapping[str, Any]) -> str:
    """A text with the arguments in their places, such as what a program reads; those left out are empty."""
    return _PLACE.sub(
        lambda place: f"{{{place[1]}}}" if place[1] else _as_text(arguments.get(place[2]), place[2]), text
    )


def _is_given(arguments: Mapping[str, Any], word: Word) -> bool:
    return all(arguments.get(name) is not None for name in placeholders(word))


def _repeated(word: Word, arguments: Mapping[str, Any], options: Sequence[str], *, is_checked: bool) -> Iterator[str]:
    lists = [name for name in placeholders(word) if isinstance(arguments.get(name), list)]
    if len(lists) > 1:
        raise ArgumentsRefused(f"`{lists[0]}` and `{lists[1]}` cannot both be lists: they are in one word")
    if not lists:
        yield _word(word, arguments, options, is_checked=is_checked)
        return
    for item in cast("list[Any]", arguments[lists[0]]):
        if item is not None:
            yield _word(word, {**arguments, lists[0]: item}, options, is_checked=is_checked)


def _word(word: Word, arguments: Mapping[str, Any], options: Sequence[str], *, is_checked: bool) -> str:
    leading = ""
    pieces: list[str] = []
    end = 0
    for place in _PLACE.finditer(word):
        before = word[end : place.start()]
        end = place.end()
        name = place[2]
        text = f"{{{place[1]}}}" if not name else _as_text(arguments[name], name)
        is_first = not any(pieces) and not before
        if name and text and is_first:
            leading = name
        pieces += (before, text)
    filled_word = "".join((*pieces, word[end:]))
    if is_checked and leading and leading not in options and filled_word.startswith("-"):
        raise ArgumentsRefused(f"`{leading}` must not begin with a dash: it would be read as an option of the program")
    if "\0" in filled_word:
        raise ArgumentsRefused("an argument has a NUL character, which no program can be given")
    if len(filled_word.encode()) > LONGEST_WORD:
        raise ArgumentsRefused(f"an argument is too long: a word of a command has at most {LONGEST_WORD:,} bytes")
    return filled_word


def _as_text(value: Any, name: str) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentsRefused(f"`{name}` is no valid Unicode text: it has half of a surrogate pair") from None
    return text
