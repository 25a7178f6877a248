"""Write the reference of the Python library, docs/reference/api.md, from the docstrings of its public names.

    python scripts/api_reference.py            write the page anew
    python scripts/api_reference.py --check    exit with 1 if it is not what would be written

Public is what `mcpbridge.__all__` names. The sources are read, not run. What is written in backticks and documented on
the page becomes a link to it. Every public class, function and method must have a docstring.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import griffe

import mcpbridge

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/api.md"

GROUPS = {
    "Open a bridge": ["Bridge", "SyncBridge", "Answerer", "Resolver", "ResolverContext", "Settings", "load"],
    "Backends and packs": ["Backend", "BackendSettings", "FunctionBackend", "ProgramTool", "Given", "Pack",
                           "PackTool"],
    "Tools": ["tool", "ToolOptions", "Tool", "SignedTool", "ToolFunction", "ToolBuilder", "adapt_function", "ToolInfo",
              "ToolResult", "Result", "before", "after", "HookCall", "Answer"],
    "Calls and results": ["ToolCall", "CallResult"],
    "Pausing and approval": ["human_tool", "manual_tool", "Pause", "PausedCall", "ApprovalRequest"],
    "Context": ["CallContext", "Context", "Shared"],
    "Model formats": ["Offered"],
    "Running": ["Run", "RunOutcome", "Turn", "Usage", "Prepared", "Model", "ModelRequest", "OpenAIModel",
                "OpenAIResponsesModel", "AnthropicModel", "SamplingModel"],
    "Events": ["Event", "RunEvent", "RoundStarted", "TextDelta", "ArgumentsDelta", "CallStarted", "CallProgress",
               "CallReturned", "ApprovalPending", "RunPaused", "MessageWritten", "RunFinished", "BusEvent"],
    "Cassettes": ["Cassette"],
    "Clients": ["Client", "ApiClient"],
    "Errors": ["BridgeError", "ConfigError", "CallRefused", "ApprovalRefused", "ArgumentsRefused", "HookRefused",
               "AlreadyResumed", "CallFailed", "RequestFailed", "RunFailed", "UpstreamError", "UnknownName",
               "CallbackFailed", "ContextRefused", "BridgeClosed", "NoBridge", "NotConnected", "FormatError",
               "ApiProblem"],
}  # fmt: skip
"""The public names by subject, in the order in which they are read."""

WHOLE_BASES = {"AgentMethods", "ToolMethods", "SyncMethods"}
"""Bases that are not public themselves, whose public methods are those of the public classes below them."""
FROM_BASES = {
    "Bridge": [
        "events",
        "request",
        "settled",
        "has_settled",
        "status",
        "reload",
        "command",
        "clear_cache",
        "cache_status",
    ],
}
"""What programs use of other bases that are not public. The rest of those is for the bridge's own parts."""

INTRODUCTION = """# The Python library: all names

`from mcpbridge import …`: every name, as its docstring has it. This page is written by `scripts/api_reference.py`.
"""

_SHOWN = {
    "property",
    "cached_property",
    "classmethod",
    "staticmethod",
    "contextmanager",
    "asynccontextmanager",
    "overload",
}
"""Decorators that a caller has to know of."""
_ITEM = re.compile(r"^ {4}(?! )([^:\n]+): (.*(?:\n(?: {5,}.*|$))*)", re.MULTILINE)
_SECTION = re.compile(r"^(Raises|Args|Returns|Yields):\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
_CODE = re.compile(r"(^```.*?^```|^ {4}[^\n]*$)|(?<!`)`([^`\n]+)`(?!`)", re.MULTILINE | re.DOTALL)
_WIDTH = 100
_FEW = 3

Named = griffe.Class | griffe.Function | griffe.Attribute
Link = Callable[[str, str], str]


class Undocumented(Exception):
    """Public names that say nothing, or that no subject lists."""


# -- what is public


@cache
def module(path: str) -> griffe.Module:
    """A module of the package, read from its source."""
    file = ROOT / "src" / Path(*path.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    read = griffe.visit(path, filepath=file, code=file.read_text("utf-8"))
    assert isinstance(read, griffe.Module)
    return read


def found(home: str, name: str) -> Named:
    """What a name of a module is, where it was first defined."""
    member = module(home).members[name]
    if isinstance(member, griffe.Alias):
        there, _, original = member.target_path.rpartition(".")
        return found(there, original)
    assert isinstance(member, griffe.Class | griffe.Function | griffe.Attribute), f"{home}.{name} is a {member.kind}"
    return member


def public() -> dict[str, Named]:
    """Every public name but the version.

    Raises:
        Undocumented: one is in no subject or in several, or a subject lists what is not public.
    """
    names = [name for name in mcpbridge.__all__ if not name.startswith("__")]
    listed = [name for group in GROUPS.values() for name in group]
    if odd := sorted({*names} ^ {*listed} | {name for name in listed if listed.count(name) > 1}):
        raise Undocumented(f"GROUPS and mcpbridge.__all__ differ by {', '.join(odd)}")
    return {name: found("mcpbridge", name) for name in listed}


def members(name: str, kind: griffe.Class) -> Iterator[tuple[str, griffe.Function | griffe.Attribute]]:
    """What a class offers: its public members in their order, then those of `WHOLE_BASES` and of `FROM_BASES`."""
    seen = set[str]()
    above = _bases(kind)
    for one in (kind, *(base for base in reversed(above) if base.name in WHOLE_BASES)):
        for own, member in one.members.items():
            is_special = own.startswith("__") and own != "__init__" and _text(member)
            is_public = is_special or not own.startswith("_")
            if is_public and own not in seen and isinstance(member, griffe.Function | griffe.Attribute):
                seen.add(own)
                yield own, member
    for wanted in FROM_BASES.get(name, []):
        if wanted not in seen:
            member = next((base.members[wanted] for base in above if wanted in base.members), None)
            if not isinstance(member, griffe.Function | griffe.Attribute):
                raise Undocumented(f"FROM_BASES names {wanted}, which {name} has not")
            yield wanted, member


def _bases(kind: griffe.Class) -> list[griffe.Class]:
    """The classes of ours above this one; those of a base come after it and before those of the next."""
    above: list[griffe.Class] = []
    for base in kind.bases:
        there = kind.module.members.get(str(base).partition("[")[0])
        if there is None or (isinstance(there, griffe.Alias) and not there.target_path.startswith("mcpbridge.")):
            continue
        found_base = found(kind.module.path, str(base).partition("[")[0])
        if isinstance(found_base, griffe.Class):
            above += [found_base, *_bases(found_base)]
    return above


def _text(member: griffe.Object | griffe.Alias) -> str:
    return member.docstring.value if member.docstring else ""


def is_shown(member: griffe.Function | griffe.Attribute) -> bool:
    """Fields are, and whatever is described; not a plain class variable that says nothing."""
    return isinstance(member, griffe.Function) or bool(_text(member)) or member.annotation is not None


# -- how it is written


def signature(function: griffe.Function, name: str) -> str:
    """As it is called: without `self`, over several lines where one is too long."""
    given: list[str] = []
    kinds = [parameter.kind for parameter in function.parameters]
    for at, parameter in enumerate(function.parameters):
        if at == 0 and parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind
        is_first_keyword = kind is griffe.ParameterKind.keyword_only and kind not in kinds[:at]
        if is_first_keyword and griffe.ParameterKind.var_positional not in kinds:
            given.append("*")
        given.append(_parameter(parameter))
        if kind is griffe.ParameterKind.positional_only and kind not in kinds[at + 1 :]:
            given.append("/")
    start = f"{'async ' if 'async' in function.labels else ''}def {name}("
    end = f") -> {function.returns}" if function.returns is not None else ")"
    whole = f"{start}{', '.join(given)}{end}"
    if len(whole) > _WIDTH:
        whole = "\n".join([start, *(f"    {one}," for one in given), end])
    return "".join(f"@{one}\n" for one in _decorators(function)) + whole


def _parameter(parameter: griffe.Parameter) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    words = stars.get(parameter.kind or griffe.ParameterKind.positional_or_keyword, "") + parameter.name
    if parameter.annotation is not None:
        words += f": {parameter.annotation}"
    if parameter.default is not None and not words.startswith("*"):
        words += f" = {parameter.default}" if parameter.annotation is not None else f"={parameter.default}"
    return words


def _decorators(function: griffe.Function) -> list[str]:
    names = [str(one.value).rpartition(".")[2] for one in function.decorators]
    return [name for name in names if name in _SHOWN]


def prose(text: str, link: Callable[[str], str]) -> str:
    """A docstring as Markdown: its sections as lists, and what it names linked."""

    def section(found: re.Match[str]) -> str:
        items = _ITEM.findall(found[2])
        lines = [f"- `{name}`: {' '.join(words.split())}" for name, words in items]
        return f"**{found[1]}**\n\n" + ("\n".join(lines) if lines else textwrap.dedent(found[2]).strip()) + "\n\n"

    def reference(found: re.Match[str]) -> str:
        return found[0] if found[1] is not None else link(found[2])

    return _CODE.sub(reference, _SECTION.sub(section, text.strip() + "\n")).strip()


def class_page(name: str, kind: griffe.Class, public: dict[str, Named], link: Link) -> Iterator[str]:
    """A class: what it is, how it is made, its fields, its methods."""
    here = partial(link, name)
    bases = [str(base).partition("[")[0] for base in kind.bases]
    if known := [base for base in bases if base in public]:
        yield f"Is a {', '.join(here(base) for base in known)}.\n"
    yield prose(_text(kind), here) + "\n"
    made = kind.members.get("__init__")
    if isinstance(made, griffe.Function):
        yield _fenced(signature(made, name).replace("def ", "", 1).removesuffix(" -> None"))
        if _text(made):
            yield prose(_text(made), here) + "\n"
    shown = [(own, member) for own, member in members(name, kind) if is_shown(member)]
    fields = [_field(name, own, one, here) for own, one in shown if isinstance(one, griffe.Attribute)]
    if fields:
        yield "\n".join(fields) + "\n"
    for own, member in shown:
        if isinstance(member, griffe.Function):
            yield f'<a id="{name}.{own}"></a>\n\n#### `{name}.{own}`\n'
            forms = _forms(member)
            yield _fenced("\n".join(signature(one, own) for one in forms))
            yield prose(_text(member), _but_for(here, forms)) + "\n"


def _but_for(link: Callable[[str], str], forms: list[griffe.Function]) -> Callable[[str], str]:
    """Links from a function's docstring: the names of its parameters mean these there."""
    own = {parameter.name for form in forms for parameter in form.parameters}
    return lambda words: f"`{words}`" if words in own else link(words)


def _forms(function: griffe.Function) -> list[griffe.Function]:
    """Its overloads where they are few: many are for type checkers, and the function itself says it better."""
    overloads = function.overloads or []
    return overloads if 0 < len(overloads) <= _FEW else [function]


def _field(owner: str, name: str, field: griffe.Attribute, link: Callable[[str], str]) -> str:
    line = f'- <a id="{owner}.{name}"></a>`{name}'
    if field.annotation is not None:
        line += f": {field.annotation}"
    default = str(field.value) if field.value is not None else ""
    if "property" not in field.labels and default and not re.search(r"\w\(", default) and len(default) < 40:
        line += f" = {default}"
    words = prose(_text(field), link)
    return line + ("`: " + re.sub(r"\n(?=.)", "\n  ", words) if words else "`")


def _fenced(text: str) -> str:
    if '"' not in text:
        text = text.replace("'", '"')  # as the formatter has it, which looks at pages too
    return f"```python signature\n{text}\n```\n"


def silent(public: dict[str, Named]) -> list[str]:
    """Public names, methods and properties without a docstring."""
    names = [name for name, value in public.items() if not _text(value)]
    for name, kind in public.items():
        if isinstance(kind, griffe.Class):
            named = [(own, one) for own, one in members(name, kind) if is_shown(one)]
            calls = [(own, one) for own, one in named if isinstance(one, griffe.Function) or "property" in one.labels]
            names += [f"{name}.{own}" for own, one in calls if not _text(one)]
    return names


def linking(public: dict[str, Named]) -> Link:
    """What becomes of the words between backticks, inside what a class says or elsewhere."""
    known = {*public}
    for name, kind in public.items():
        if isinstance(kind, griffe.Class):
            known |= {f"{name}.{own}" for own, member in members(name, kind) if is_shown(member)}

    def link(within: str, words: str) -> str:
        plain = words.removeprefix("@").partition("(")[0].partition("[")[0]
        for target in (plain, f"{within}.{plain}"):
            if target in known and target != within:
                return f"[`{words}`](#{target})"
        return f"`{words}`"

    return link


def page() -> str:
    """The whole page.

    Raises:
        Undocumented: public names without a docstring, or outside of the subjects.
    """
    names = public()
    if nothing := silent(names):
        raise Undocumented(f"without a docstring: {', '.join(nothing)}")
    link = linking(names)
    parts = [INTRODUCTION]
    for title, group in GROUPS.items():
        parts.append(f"- [{title}](#{_anchor(title)}): {', '.join(f'[`{name}`](#{name})' for name in group)}")
    for title, group in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in group:
            parts.append(f'<a id="{name}"></a>\n\n### `{name}`\n')
            parts += _named(name, names, link)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _named(name: str, names: dict[str, Named], link: Link) -> Iterator[str]:
    value = names[name]
    if isinstance(value, griffe.Class):
        yield from class_page(name, value, names, link)
        return
    forms = _calls_of(value)
    if forms:
        yield _fenced("\n".join(signature(one, name) for one in forms))
    elif isinstance(value, griffe.Attribute) and value.value is not None:
        whole = f"{name} = {value.value}"
        yield _fenced(whole if len(whole) <= _WIDTH else whole.replace(" | ", "\n    | "))
    yield prose(_text(value), _but_for(partial(link, ""), forms)) + "\n"


def _calls_of(value: griffe.Function | griffe.Attribute) -> list[griffe.Function]:
    """How a function is called, or an instance of a class that is used like one; none of anything else."""
    if isinstance(value, griffe.Function):
        return _forms(value)
    made_by = found(value.module.path, str(value.value).partition("(")[0]) if "(" in str(value.value) else None
    call = made_by.members.get("__call__") if isinstance(made_by, griffe.Class) else None
    return _forms(call) if isinstance(call, griffe.Function) else []


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def main() -> int:
    try:
        written = page()
    except Undocumented as problem:
        print(problem, file=sys.stderr)
        return 1
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(written, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != written:
        print(f"{PAGE.relative_to(ROOT)} is not what the docstrings say: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
