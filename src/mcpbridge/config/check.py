"""From a parsed configuration document to settings: expand its variables, check it, find the secrets in it.

Rules, hooks and `secrets_to` that name a server which does not exist are reported here too, since whoever wrote them
believes that they hold. Names with wildcards may be meant for servers to come, so they are only worth a warning.
Whether a tool exists is known when the servers have listed theirs (`catalog/unmatched_names.py`).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from pydantic import ValidationError

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.masking.known_values import SECRET_NAME
from mcpbridge.base.suggestions import nearest
from mcpbridge.config import mcp_servers_json as foreign
from mcpbridge.config.error_messages import LineOf, as_config_error, dotted, place, together, unknown_key
from mcpbridge.config.schema import Settings, read_builtin
from mcpbridge.config.secrets.settings import SecretsSettings
from mcpbridge.config.tool_tables import read_tools
from mcpbridge.config.trust.as_written import as_written
from mcpbridge.config.trust.own_code import misuse
from mcpbridge.config.variables import SECRET_KINDS, Expansion, Missing, Resolved, secret_references
from mcpbridge.core.model import BRIDGE, BUILTIN, OWN, TOOLS
from mcpbridge.tools.settings import pack_name
from mcpbridge.upstream.projects import ProjectText
from mcpbridge.upstream.transports.settings import is_volume

if TYPE_CHECKING:  # loaded where there is something to fetch
    from mcpbridge.config.secrets.providers import Providers

_WILD = frozenset("*?[")


class UnknownServer(Struct, frozen=True):
    """A name of a server that none has."""

    key: tuple[str, ...]
    """Where it is."""
    what: str
    hint: str
    is_certain: bool
    """Nothing that comes later can make it right."""


def unknown_servers(settings: Settings) -> Iterator[UnknownServer]:
    """All of them, in the order of the file."""
    known = [*settings.servers, *settings.tools, *map(pack_name, settings.packs), TOOLS, BUILTIN, BRIDGE]
    sections: dict[str, Sequence[tuple[Sequence[str], Sequence[str]]]] = {
        "permissions": [(rule.servers, rule.tools) for rule in settings.permissions],
        "hooks": [(hook.servers, hook.tools) for hook in settings.hooks],
    }
    for name, server in settings.servers.items():
        for other in server.secrets_to:
            key = "servers", name, "secrets_to"
            if other in known:
                continue
            if _WILD.intersection(other):
                what = f"expected the name of a server, without wildcards (found {other[:80]!r})"
                yield UnknownServer(key, what, f"There are: {', '.join(known[:-3])}.", is_certain=True)
            else:
                yield from _server(key, other, known)
    for section, members in sections.items():
        for number, (servers, tools) in enumerate(members):
            key = section, str(number)
            for glob in servers:
                yield from _server((*key, "servers"), glob, known)
            for glob in tools:
                server, slash, name = glob.partition("/")
                if slash:
                    yield from _server((*key, "tools"), server, known, written=glob, rest=f"/{name}")
                else:
                    yield from _wire_name((*key, "tools"), glob, known)


def _server(
    key: tuple[str, ...], glob: str, known: list[str], *, written: str = "", rest: str = ""
) -> Iterator[UnknownServer]:
    if any(fnmatchcase(name, glob) for name in known):
        return
    found = f" (found {written[:80]!r})" if written else ""
    if _WILD.intersection(glob):
        if glob.strip("*"):  # what matches everything waits for the first server
            yield UnknownServer(key, f"no server has a name like {glob[:80]!r}{found}", "", is_certain=False)
        return
    close = nearest(glob, known, limit=1)
    hint = f"Did you mean `{close[0]}{rest}`?" if close else f"There are: {', '.join(known[:-3]) or 'none'}."
    yield UnknownServer(key, f"no server is called {glob[:80]!r}{found}", hint, is_certain=True)


def _wire_name(key: tuple[str, ...], glob: str, known: list[str]) -> Iterator[UnknownServer]:
    """A name as clients see it, `server__tool`; without a slash a glob is compared with the tool's own name alone."""
    for server in sorted(known, key=len, reverse=True):
        if glob.startswith(f"{server}__"):
            meant = f"{server}/{glob.removeprefix(f'{server}__')}"
            what = f"expected an id (`server/tool`), not the name that clients see (found {glob[:80]!r})"
            yield UnknownServer(key, what, f"Did you mean `{meant}`?", is_certain=True)
            return


_PLAIN_NAMES = {"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
"""Environment variables whose values are no secrets, though they often come from a variable."""


_OWN_EXAMPLES = {BRIDGE: f"{BRIDGE}/recall", TOOLS: f"{TOOLS}/NAME", BUILTIN: f"{BUILTIN}/web-search"}


class Checked(Struct, frozen=True):
    """What a document says."""

    settings: Settings
    judged: Settings
    """The same for the person who decides about it: what is off since a variable is missing is in it as it is written.
    A yes must not depend on which variables there are at the moment."""
    secrets: set[str]
    """Values in it that are none of anybody's business."""
    warnings: list[str]
    """For people."""
    missing: frozenset[str]
    """Variables of the environment that servers are off for."""
    files: Mapping[str, str]
    """By path, the texts of other files that went into it; see `Expansion.files`."""
    references: frozenset[str]
    """What is between the braces of each `${…}` that was found."""
    is_deferred: bool = False
    """References to secrets are in it as they are written."""


def check(
    document: dict[str, object],
    path: Path,
    environ: Mapping[str, str],
    line_of: LineOf,
    *,
    providers: "Providers | None" = None,
) -> "Checked":
    """The settings that the document of the file `path` stands for.

    `providers` has the values of references to secrets, which may take long: see `Providers`. None: they stay as they
    are written.

    Raises:
        ConfigError: the document is wrong.
    """
    file, directory = str(path), path.absolute().parent
    if providers is not None:
        _prepare(providers, document, directory)
    expansion = Expansion(environ, directory, source=providers)
    expanded = cast("dict[str, object]", expansion.of(document))
    for missing in expansion.missing:
        if not _is_of_server(missing.key) and missing.key[:1] != ("tools",):
            raise ConfigError(missing.reason, file=place(file, line_of(missing.key)), key=dotted(missing.key))
    for misplaced in expansion.misplaced:
        hint = "Write ${env:PROJECT_ROOT} for an environment variable of this name."
        where = place(file, line_of(misplaced.key))
        raise ConfigError(misplaced.reason, file=where, key=dotted(misplaced.key), hint=hint)
    servers, whole = expanded.get("servers"), deepcopy(expanded)  # where what is missing is as it was written
    if isinstance(servers, dict):
        for name, server in cast("dict[str, object]", servers).items():
            if len(name) > foreign.NAME_LENGTH or not foreign.NAME.fullmatch(name):
                hint = (
                    f"Use letters, digits, - and _, a letter or digit first, at most {foreign.NAME_LENGTH} characters."
                )
                where = place(file, line_of(["servers", name]))
                raise ConfigError(
                    "not usable as the name of a server", file=where, key=dotted(["servers", name]), hint=hint
                )
            if name in OWN:
                where, hint = place(file, line_of(["servers", name])), "Call the server something else."
                what = f"the bridge's own tools have this name (`{_OWN_EXAMPLES[name]}`)"
                raise ConfigError(what, file=where, key=dotted(["servers", name]), hint=hint)
            if isinstance(server, dict):
                lost = [missing for missing in expansion.missing if missing.key[1] == name]
                lost += expansion.unread("servers", name, _PARSED)
                texts = [text for text in expansion.of_project if text.key[1] == name]
                if (wrong := misuse(cast("dict[str, object]", server), texts)) is not None:
                    where = place(file, line_of(wrong.key))
                    raise ConfigError(wrong.what, file=where, key=dotted(wrong.key), hint=wrong.hint)
                _with_project_texts(cast("dict[str, object]", server), texts, directory)
                _without_lost_values(cast("dict[str, object]", server), lost)
                _from_directory(cast("dict[str, object]", server), directory)
                _keep_written(cast("dict[str, object]", server), document, name)
    tools, warnings = read_tools(expanded, document, expansion, file, line_of)
    if isinstance(expanded.get("tools", {}), dict):
        expanded["tools"] = tools
    if isinstance(expanded.get("builtin"), dict):
        _builtin_from_directory(expanded["builtin"], directory)
        expanded["builtin"] = _read_builtin(expanded["builtin"], document, file, line_of)
    for name, key in (("store", "path"), ("call_log", "path"), ("audit", "path"), ("audit", "anchor")):
        section = expanded.get(name)
        if isinstance(section, dict) and isinstance(path_ := cast("dict[str, object]", section).get(key), str):
            section[key] = str(directory / Path(path_).expanduser()) if path_ else None
    _files_of_tls(expanded.get("http"), directory)
    _files_of_tls(expanded.get("store"), directory)
    try:
        settings = Settings.model_validate({**expanded, "source": str(path.absolute())})
    except ValidationError as error:
        raise as_config_error(error, document, root=Settings, file=file, line_of=line_of) from None
    missing = frozenset(one.variable for one in expansion.missing if one.variable)
    warnings += expansion.warnings
    warnings += _about_strangers(settings, file, line_of)
    secrets = _secrets(settings, expansion.resolved)
    if "web-search" in settings.builtin.enable and (key := environ.get("TAVILY_API_KEY")):
        secrets.add(key)
    references = frozenset(one.reference for one in (*expansion.resolved, *expansion.deferred))
    judged = as_written(settings, whole, lambda server: _from_directory(server, directory))
    return Checked(settings, judged, secrets, warnings, missing, expansion.files, references, bool(expansion.deferred))


_PARSED = frozenset({"url", "image", "proxy"})
"""Of what a server has: texts in which no `${…}` may be when they are checked."""


def _prepare(providers: "Providers", document: Mapping[str, object], directory: Path) -> None:
    """Have all secrets fetched side by side that a document refers to, in the way that it says itself."""
    section = document.get("secrets", {})
    try:
        providers.settings = SecretsSettings.model_validate(section)
    except ValidationError:
        return  # which is reported with everything else that is wrong
    providers.prepare(set(secret_references(dict(document))), directory)


def _about_strangers(settings: Settings, file: str, line_of: LineOf) -> list[str]:
    """Warnings of servers that are named and that there are not, as far as they may still come.

    Raises:
        ConfigError: some cannot.
    """
    found = [
        (one.is_certain, ConfigError(one.what, file=place(file, line_of(one.key)), key=dotted(one.key), hint=one.hint))
        for one in unknown_servers(settings)
    ]
    if wrong := [mistake for is_certain, mistake in found if is_certain]:
        raise together(wrong)
    return [str(mistake) for _, mistake in found]


def refuse_what_only_loading_sets(document: Mapping[str, object], file: str, line_of: LineOf) -> None:
    """Treat keys that people must not write as the unknown keys that they are to them."""
    servers = document.get("servers")
    names = cast("dict[str, object]", servers) if isinstance(servers, dict) else {}
    keys = [["source"]] if "source" in document else []
    keys += [
        ["servers", name, key]
        for name, server in names.items()
        for key in ("unavailable", "project_texts", "written")
        if _has(server, key)
    ]
    if keys:
        raise unknown_key(Settings, keys[0], file=file, line_of=line_of)


def _keep_written(server: dict[str, object], document: Mapping[str, object], name: str) -> None:
    """Keep the command line as it is in the file: what variables and relative paths stand for differs by machine."""
    servers = cast("Mapping[str, object]", document["servers"])
    written, now = _words(servers.get(name)), _words(server)
    if written and written != now:
        server["written"] = written


def _words(server: object) -> tuple[str, ...]:
    """The words of a command line; empty: it is not one."""
    if not isinstance(server, dict):
        return ()
    members = cast("Mapping[str, object]", server)
    args = members.get("args", [])
    words = [
        members.get("command") or members.get("image"),
        *(cast("list[object]", args) if isinstance(args, list) else [None]),
    ]
    return tuple(cast("list[str]", words)) if all(isinstance(word, str) for word in words) else ()


def _has(server: object, key: str) -> bool:
    return isinstance(server, dict) and key in server


def _with_project_texts(server: dict[str, object], texts: Sequence[ProjectText], directory: Path) -> None:
    """Keep the texts that wait for a project beside the others. Relative paths in them start where the file is."""
    if not texts:
        return
    own = (text.model_copy(update={"key": text.key[2:]}) for text in texts)
    server["project_texts"] = tuple(_anchored(text, server, directory) for text in own)


def _anchored(text: ProjectText, server: Mapping[str, object], directory: Path) -> ProjectText:
    if text.key not in (("cwd",), ("command",)):
        return text
    if text.parts[0]:
        is_bare = text.key == ("command",) and "/" not in str(server["command"]).split()[0]
        parts = text.parts if is_bare else (_joined(directory, text.parts[0]), *text.parts[1:])
        return text.model_copy(update={"parts": parts})
    first = text.defaults[0]
    defaults = (_joined(directory, first) if first else first, *text.defaults[1:])
    return text.model_copy(update={"defaults": defaults})


def _joined(directory: Path, path: str) -> str:
    """With the slash at its end, which `Path` would take away."""
    return os.path.join(directory, os.path.expanduser(path))  # noqa: PTH111, PTH118 - see above


def _without_lost_values(server: dict[str, object], lost: Sequence[Missing]) -> None:
    """Make the rest of a server checkable whose variables are missing, and say in it why it is off."""
    if not lost:
        return
    server.pop("project_texts", None)  # they may belong to what is lost, and it is not started anyway
    for missing in lost:
        key = missing.key[2]
        stand_in = {"command": "unavailable", "image": "unavailable", "url": "http://unavailable.invalid"}.get(key)
        if stand_in:
            server[key] = stand_in
        else:
            server.pop(key, None)
    reasons = dict.fromkeys(f"{missing.reason} in {dotted(missing.key[2:])}" for missing in lost)
    server["unavailable"] = "; ".join(reasons)


def _from_directory(server: dict[str, object], directory: Path) -> None:
    """Let relative paths start where the file is: a client may start the bridge anywhere."""
    texts = cast("tuple[ProjectText, ...]", server.get("project_texts", ()))
    of_project = {text.key for text in texts}
    for key in ("cwd", "command"):
        value = server.get(key)
        if not isinstance(value, str) or not value or (key,) in of_project:
            continue
        path = Path(value).expanduser() if value.startswith("~") else Path(value)
        is_bare = "/" not in value.split()[0] if value.split() else True
        if key == "cwd" or not is_bare:  # a bare command is looked up in PATH
            server[key] = str(directory / path)
    container = server.get("container")
    if isinstance(container, dict):
        table = cast("dict[str, object]", container)
        if isinstance(mounts := table.get("mounts"), list):
            table["mounts"] = [_mount_from(directory, mount) for mount in cast("list[object]", mounts)]
    roots = server.get("roots")
    if isinstance(roots, list):
        server["roots"] = [_from(directory, root) for root in cast("list[object]", roots)]
    _files_of_tls(server, directory)


def _files_of_tls(section: object, directory: Path) -> None:
    """Let the paths in its table `tls` start where the file is."""
    tls = cast("dict[str, object]", section).get("tls") if isinstance(section, dict) else None
    if isinstance(tls, dict):
        files = cast("dict[str, object]", tls)
        for key in ("ca", "cert", "key"):
            if isinstance(value := files.get(key), str) and value:
                files[key] = str(directory / Path(value).expanduser())


def _mount_from(directory: Path, mount: object) -> object:
    if not isinstance(mount, str):
        return mount
    source, colon, rest = mount.partition(":")
    if not source or is_volume(source):
        return mount
    return f"{os.path.normpath(directory / Path(source).expanduser())}{colon}{rest}"


def _from(directory: Path, root: object) -> object:
    if not isinstance(root, str) or not root or "://" in root:
        return root
    return os.path.normpath(directory / Path(root).expanduser())  # clients compare the URIs that become of them


_PROVIDED = ("file:", *(f"{kind}:" for kind in SECRET_KINDS))


def _secrets(settings: Settings, resolved: Sequence[Resolved]) -> set[str]:
    """What to mask: all that variables brought into `env` and `headers`, and whatever has a name like a secret's."""
    found: set[str] = set()
    for one in resolved:
        section, name = one.key[2:4] if _is_of_server(one.key) and len(one.key) > 3 else ("", "")
        if len(one.key) > 3 and one.key[0] == "hooks":
            section, name = one.key[2:4]
        private = section in ("env", "headers") and name not in _PLAIN_NAMES
        if one.key[:1] == ("tools",) and len(one.key) > 3:  # every table in there may hold credentials
            private = one.key[2] in _PRIVATE_TABLES
        if private or one.reference.startswith(_PROVIDED) or SECRET_NAME.search(one.reference):
            found.add(one.value)
    for holder in (*settings.servers.values(), *settings.hooks):
        for name, value in (*holder.env.items(), *holder.headers.items()):
            if SECRET_NAME.search(name):
                scheme, _, rest = value.partition(" ")  # "Bearer …", "Basic …"
                found.add(rest if scheme.isalpha() and rest else value)
    for tool in settings.tools.values():
        for table in ("env", "headers", "metadata"):
            values = cast("Mapping[str, str]", getattr(tool, table, {}))
            found |= {value for name, value in values.items() if SECRET_NAME.search(name)}
        auth: object = getattr(tool, "auth", None)
        found |= {secret for key in _CREDENTIALS if (secret := getattr(auth, key, None)) and isinstance(secret, str)}
    for service in ("web_search", "crypto_price"):
        key: object = getattr(getattr(settings.builtin, service, None), "api_key", None)
        if isinstance(key, str) and key:
            found.add(key)
    for server in settings.servers.values():
        found |= {secret for secret in (server.auth.client_secret, server.auth.private_key) if secret}
        if server.tls.key_password:
            found.add(server.tls.key_password)
        if server.proxy and (password := urlsplit(server.proxy).password):
            found |= {password, unquote(password)}
    for service in (settings.results.summary, settings.router, settings.search.embedder):
        password = urlsplit(service.url).password if service.url else None
        found |= {secret for secret in (service.api_key, password) if secret}
    found |= {issuer.introspection.client_secret for issuer in settings.auth.issuers.values() if issuer.introspection}
    if settings.http.tls.key_password:
        found.add(settings.http.tls.key_password)
    if settings.approval.webhook is not None:
        found |= {secret for secret in (settings.approval.webhook.url, settings.approval.webhook.secret) if secret}
    if settings.auth.sign_in is not None and settings.auth.sign_in.client_secret:
        found.add(settings.auth.sign_in.client_secret)
    found |= {key for key in (settings.store.key, settings.accounts.key, *settings.accounts.old_keys) if key}
    store = settings.store
    password = urlsplit(store.url).password if store.url and "${" not in store.url else None
    found |= {
        secret for secret in (store.password, store.tls.key_password, password, unquote(password or "")) if secret
    }
    if settings.questions.state_key:
        found.add(settings.questions.state_key)
    return {value for value in found if not any(secret_references(value))}  # what was not read is no secret yet


_CREDENTIALS = ("token", "password", "key", "client_secret")
"""Of what `auth` of a tool has."""
_PRIVATE_TABLES = frozenset({"env", "headers", "metadata", "auth", "params", "constructor_args"})


def _read_builtin(section: object, document: Mapping[str, object], file: str, line_of: LineOf) -> object:
    """The section with those of single tools, whose models are loaded here alone."""
    try:
        return read_builtin(section)
    except ValidationError as error:
        from mcpbridge.tools.builtin.settings import BuiltinSettings

        written = cast("Mapping[str, object]", document["builtin"])
        raise as_config_error(
            error,
            written,
            root=BuiltinSettings,
            file=file,
            line_of=lambda key: line_of(["builtin", *key]),
            within=["builtin"],
        ) from None


def _builtin_from_directory(section: object, directory: Path) -> None:
    """Let the directories of built-in tools start where the file is."""
    if not isinstance(section, dict):
        return
    for table in cast("dict[str, object]", section).values():
        for key in ("roots", "repositories"):
            if not isinstance(table, dict):
                continue
            own = cast("dict[str, object]", table)
            value = own.get(key)
            if isinstance(value, list):
                own[key] = [_from(directory, one) for one in cast("list[object]", value)]
            elif isinstance(value, dict):
                own[key] = {name: _from(directory, one) for name, one in cast("dict[str, object]", value).items()}


def _is_of_server(key: Sequence[str]) -> bool:
    return len(key) > 2 and key[0] == "servers"
