"""The words of a command, with places for arguments, and the result of a call from what the command wrote. Pure.

`{name}` in a word stands for the argument of this name; `{name?}` for one that may be left out; `{{name}}` is the text
`{name}`; every other brace stands for itself. No shell reads the words, so an argument is never split, and no quote,
space or dollar in it means anything.

- A word whose argument is left out (or null) is left out. A list of words in the template is a group, which is left out
  as a whole when one of its arguments is: `["--max", "{max?}"]`.
- A word in which a list stands is repeated for each of its items: `{paths}` becomes several words, `-I{dirs}` several
  options; an empty list leaves the word out.
- Numbers and booleans are written as in JSON, and so are objects, and lists within lists.
- A word that begins with a dash through an argument would be an option that the caller chose. That is refused, unless
  the argument is one of `options`, or a word `--` stands before it in the template.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.job import SANDBOX, JobResult, Limits, decoded, describe_cut, describe_end
from mcpbridge.tools.python.output import check_of, wrapped

Word = str
Template = Sequence[Word | Sequence[Word]]
"""Words, and groups of words that stand or go together."""

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
        ArgumentsRefused: an argument cannot stand where it would.
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
        said = f"{{{place[1]}}}" if not name else _as_text(arguments[name], name)
        is_first = not any(pieces) and not before
        if name and said and is_first:
            leading = name
        pieces += (before, said)
    made = "".join((*pieces, word[end:]))
    if is_checked and leading and leading not in options and made.startswith("-"):
        raise ArgumentsRefused(f"`{leading}` must not begin with a dash: it would be read as an option of the program")
    if "\0" in made:
        raise ArgumentsRefused("an argument has a NUL character, which no program can be given")
    if len(made.encode()) > LONGEST_WORD:
        raise ArgumentsRefused(f"an argument is too long: a word of a command has at most {LONGEST_WORD:,} bytes")
    return made


def _as_text(value: Any, name: str) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentsRefused(f"`{name}` is no valid Unicode text: it has half of a surrogate pair") from None
    return text


_decode = msgspec.json.Decoder().decode


class Shape:
    """What structured results look like, by an output schema; one of anything but an object is one of `result`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError: it is none."""
        self.schema = wrapped(schema)
        self.is_wrapped = self.schema != schema and "result" in self.schema.get("required", ())
        self.fault = check_of(self.schema)
        """What is wrong with a value; empty: nothing."""


class Reading(Struct, frozen=True):
    """How the output of a program is read."""

    output: Literal["text", "json", "lines"]
    cap: int
    """Bytes of output that are shown."""
    good: tuple[int, ...]
    """Exit codes that are no failure."""
    limits: Limits
    shape: Shape | None = None
    redact: Callable[[str], str] = str
    """Masks secrets in what a program says of its failure."""

    def result(self, ran: JobResult) -> Body:
        """The result of a run."""
        if ran.ended != "exit" or ran.code not in self.good:
            return self._failed(ran, describe_end(ran, self.limits) or "exit code 0")
        if self.output == "json":
            return self._of_json(ran)
        shown, note = self._excerpt("the output", ran.stdout, ran.cut[0])
        lines = [shown, note] if shown or note else self._beside(ran)
        if self.output == "text":
            return _body(lines, ran)
        return self._structured(lines, {"lines": shown.splitlines()}, ran)

    def _of_json(self, ran: JobResult) -> Body:
        if ran.cut[0]:
            return self._failed(ran, "its output is larger than `sandbox.output`, so it cannot be read as JSON")
        try:
            value: Any = _decode(ran.stdout)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._failed(ran, f"its output is no JSON ({error})")
        is_object = isinstance(value, dict) and not (self.shape is not None and self.shape.is_wrapped)
        structured = cast("dict[str, Any]", value if is_object else {"result": value})
        return self._structured([ran.stdout.decode("utf-8", "replace").strip()], structured, ran)

    def _structured(self, lines: list[str], value: dict[str, Any], ran: JobResult) -> Body:
        fault = self.shape.fault(value) if self.shape is not None else ""
        if fault:
            return self._failed(ran, f"its output does not fit the output schema ({fault})")
        return _body(lines, ran, structuredContent=value)

    def _beside(self, ran: JobResult) -> list[str]:
        """Of a program that wrote nothing to its standard output: what it said besides."""
        shown, note = self._excerpt("stderr", ran.stderr, ran.cut[1])
        return ["(no output)", *(("stderr:", shown, note) if shown.strip() else ())]

    def _failed(self, ran: JobResult, why: str) -> Body:
        lines = [f"It failed: {why}"]
        for name, data, cut in (("stderr", ran.stderr, ran.cut[1]), ("stdout", ran.stdout, ran.cut[0])):
            shown, note = self._excerpt(name, data, cut)
            if shown.strip():
                lines += [f"{name}:", shown]
            lines.append(note)
        return _body([self.redact(part) for part in lines], ran, isError=True)

    def _excerpt(self, name: str, data: bytes, cut: int) -> tuple[str, str]:
        """The beginning, and what is said of the rest."""
        kept = data[: self.cap]
        missing = cut + len(data) - len(kept)
        return decoded(kept, is_cut=bool(missing)).rstrip("\n"), describe_cut(name, len(kept), missing)


def _body(lines: list[str], ran: JobResult, **more: Any) -> Body:
    text = "\n".join(part for part in lines if part)
    return Body(encode({"content": [{"type": "text", "text": text}], **more, "_meta": {SANDBOX: ran.tier}}))
