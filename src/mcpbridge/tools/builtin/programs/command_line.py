"""Splits a command line into words, and checks the values of options and arguments by kind. Pure.

No shell reads the line, and nothing in it is expanded. Each kind is a function that says why a value is refused (a
clause), or "". None of them accepts a value that names a file outside of the place where the program works.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from mcpbridge.base.errors import ArgumentsRefused

LONGEST, MOST_WORDS = 20_000, 500
"""Characters and words of one command."""

_FOR_A_SHELL = frozenset(
    {"|", "||", "|&", "&", "&&", ";", ";;", ">", ">>", "<", "<<", "<<<", "&>", "2>", "2>>", "2>&1"}
)
_QUOTED_CONTROL = "\t\n"
"""Control characters that may be in quotes: commit messages and bodies have them."""


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
                f"{display_command([word])}: no shell reads this, so there are no pipes, redirections or lists of "
                "commands. Call once for each command; narrow the output with options of the command"
            )
        words.append(word)
        if len(words) > MOST_WORDS:
            raise ArgumentsRefused(f"the command has more than {MOST_WORDS} words")
    return words


def display_command(words: Sequence[str], limit: int = 300) -> str:
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


_URL = re.compile(
    r"(https|ssh)://[A-Za-z0-9][^\s\\]*|[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^:\s\\-][^:\s\\]*", re.ASCII
)
_NAME = re.compile(r"\w[\w./@+-]*", re.ASCII)
_OWN_PARAMETERS = frozenset({"access_token", "oauth_token", "key", "bearer_token", "callback", "$.xgafv"})
_HEADERS = re.compile(
    r"(Accept|X-GitHub-Api-Version|If-None-Match|If-Modified-Since): ?[\w ./;=+,:*\"-]+", re.IGNORECASE | re.ASCII
)


def _text(_: str) -> str:
    return ""


def _number(value: str) -> str:
    return "" if re.fullmatch(r"-?[0-9]{1,18}", value) else "a number is meant"


def _path(value: str) -> str:
    bare = re.sub(r"^:(\([^)]*\)|[!^/])", "", value)
    if not value:
        return "an empty path"
    if value.startswith("-"):
        return "it could be taken for an option: write ./ before it"
    if bare.startswith(("/", "~", "\\")) or value.startswith(("/", "~", "\\")) or re.match(r"[A-Za-z]:[\\/]", bare):
        return "write paths from the directory of the call, not from the root"
    if ".." in re.split(r"[/\\]", bare):
        return "paths with `..` may lead outside"
    return ""


def _revision(value: str) -> str:
    if value.startswith((":/", "^:")):
        return ""
    return _path(value) if value else "an empty revision"


def _range(value: str) -> str:
    """`1,20`, `1,+5`, `:name`, each with `:file` behind it where a command wants one."""
    return _path(value.rpartition(":")[2]) if ":" in value.lstrip(":") else ""


def _branch(value: str) -> str:
    return "" if _NAME.fullmatch(value) and ".." not in value else "expected the name of a branch or tag"


def _refspec(value: str) -> str:
    spelled = value.removeprefix("+").replace(":", "/", 1).replace("*", "x").lstrip("/")
    return "" if value in ("tag", "HEAD") or (_NAME.fullmatch(spelled) and ".." not in value) else "a refspec is meant"


def _url(value: str) -> str:
    if "::" in value or not _URL.fullmatch(value) or ".." in value.split("/"):
        return "expected an address with https:// or ssh://; other forms can run programs or read files"
    return ""


def _remote(value: str) -> str:
    if re.fullmatch(r"\w[\w-]*(\.[\w-]+)*", value, re.ASCII):
        return ""
    return _url(value)


def _folder(value: str) -> str:
    return "" if re.fullmatch(r"\w[\w.-]{0,100}", value, re.ASCII) else "expected the plain name of a new directory"


def _setting(value: str) -> str:
    allowed = (
        r"user\.(name|email)|core\.(bare|autocrlf|eol|ignorecase|filemode|symlinks)|init\.defaultbranch|pull\.rebase|"
        r"(remote|branch)\.[\w./-]+\.(url|pushurl|fetch|remote|merge|rebase)|push\.default|extensions\.\w+"
    )
    return (
        "" if re.fullmatch(allowed, value, re.ASCII | re.IGNORECASE) else "only names, remotes, branches and a few more"
    )


def _repository(value: str) -> str:
    return (
        ""
        if re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", value) and ".." not in value
        else ("expected OWNER/REPO, on the host that gh is signed in to")
    )


def _item(value: str) -> str:
    """A number, branch, tag or file of a service: nothing that is an address or a path of this machine."""
    if "://" in value or value.startswith(("/", "~", "@", "\\")) or ".." in value.split("/") or not value:
        return "expected its number or name, not an address or a file; name the repository with --repo OWNER/REPO"
    return ""


def _endpoint(value: str) -> str:
    if not re.fullmatch(r"/?[A-Za-z0-9{][\w./{}?&=%+:,~@*\[\]\"<> -]*", value, re.ASCII) or "//" in value:
        return "expected the path of an endpoint, such as repos/OWNER/REPO/issues, not an address"
    path = value.partition("?")[0].lower().replace("%2e", ".").replace("%2f", "/").strip("/")
    if ".." in path.split("/") or ":" in path.split("/")[0]:
        return "expected the path of an endpoint, without `..`"
    if path.split("/")[0] in ("graphql", "applications"):
        return "only endpoints that read; GraphQL is sent with POST"
    return ""


def _get(value: str) -> str:
    return (
        ""
        if value.upper() in ("GET", "HEAD")
        else "only GET: use the sub-command of gh that does it, a person is asked"
    )


def _field(value: str) -> str:
    name, sign, text = value.partition("=")
    return "" if name and sign and not text.startswith("@") else "expected name=value, not @file"


def _header(value: str) -> str:
    return "" if _HEADERS.fullmatch(value) else "only Accept and X-GitHub-Api-Version can be set"


def _jq(value: str) -> str:
    if re.search(
        r"(?<![.\w])(env|input_filename|import|include|\$__prog_args|modulemeta|get_search_list)\b|\$\s*ENV", value
    ):
        return "expressions that read the environment or files are not run"
    return ""


def _json(value: str) -> str:
    try:
        parsed = msgspec.json.decode(value, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return 'expected a JSON object, such as {"pageSize": 10}'
    own = next((name for name in parsed if name.lower() in _OWN_PARAMETERS), "")
    if own:
        return f"{own} is not for the caller to set"
    if any(
        isinstance(one, str) and ".." in one.replace("%2e", ".").replace("%2E", ".").split("/")
        for one in parsed.values()
    ):
        return "a value with `..` as a part of a path"
    return ""


def _version(value: str) -> str:
    return (
        ""
        if re.fullmatch(r"(\w+_)?v\d+(p\d+)?((alpha|beta)\d*)?", value, re.ASCII)
        else "expected a version such as v3"
    )


def _method_name(value: str) -> str:
    return "" if re.fullmatch(r"[A-Za-z]\w*(\.\w+){0,8}", value, re.ASCII) else "service.resource.method is meant"


KINDS: Mapping[str, Callable[[str], str]] = {
    "text": _text,
    "number": _number,
    "path": _path,
    "revision": _revision,
    "range": _range,
    "branch": _branch,
    "refspec": _refspec,
    "url": _url,
    "remote": _remote,
    "folder": _folder,
    "setting": _setting,
    "repository": _repository,
    "item": _item,
    "endpoint": _endpoint,
    "get": _get,
    "field": _field,
    "header": _header,
    "jq": _jq,
    "json": _json,
    "version": _version,
    "method": _method_name,
}
