"""What the values of a program's options and its arguments may look like, by kind. Pure.

Each kind is a function that gives why a value is not taken, a clause, or "". None of them lets a value name a file
outside of the place that the program works in.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

__all__ = ["KINDS"]

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
    return "" if _NAME.fullmatch(value) and ".." not in value else "the name of a branch or tag is meant"


def _refspec(value: str) -> str:
    spelled = value.removeprefix("+").replace(":", "/", 1).replace("*", "x").lstrip("/")
    return "" if value in ("tag", "HEAD") or (_NAME.fullmatch(spelled) and ".." not in value) else "a refspec is meant"


def _url(value: str) -> str:
    if "::" in value or not _URL.fullmatch(value) or ".." in value.split("/"):
        return "an address with https:// or ssh:// is meant; other ways can run programs or read files"
    return ""


def _remote(value: str) -> str:
    if re.fullmatch(r"\w[\w-]*(\.[\w-]+)*", value, re.ASCII):
        return ""
    return _url(value)


def _folder(value: str) -> str:
    return "" if re.fullmatch(r"\w[\w.-]{0,100}", value, re.ASCII) else "the plain name of a new directory is meant"


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
        else ("OWNER/REPO is meant, on the host that gh is signed in to")
    )


def _item(value: str) -> str:
    """A number, branch, tag or file of a service: nothing that is an address or a path of this machine."""
    if "://" in value or value.startswith(("/", "~", "@", "\\")) or ".." in value.split("/") or not value:
        return "its number or name is meant, not an address or a file; name the repository with --repo OWNER/REPO"
    return ""


def _endpoint(value: str) -> str:
    if not re.fullmatch(r"/?[A-Za-z0-9{][\w./{}?&=%+:,~@*\[\]\"<> -]*", value, re.ASCII) or "//" in value:
        return "the path of an endpoint is meant, such as repos/OWNER/REPO/issues, not an address"
    path = value.partition("?")[0].lower().replace("%2e", ".").replace("%2f", "/").strip("/")
    if ".." in path.split("/") or ":" in path.split("/")[0]:
        return "the path of an endpoint is meant, without `..`"
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
    return "" if name and sign and not text.startswith("@") else "name=value is meant, not @file"


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
        return 'a JSON object is meant, such as {"pageSize": 10}'
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
        else "a version such as v3 is meant"
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
