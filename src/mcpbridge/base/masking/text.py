"""Take secrets out of a text by what is around them and by how they look. Pure.

What is looked for: private keys, addresses with passwords or keys, header lines, cookies, assignments in the ways of
programs, shells and configuration files, options of commands, and what sentences say ("the password is …"). Prose and
code stay readable: a value counts as a secret if it is quoted or assigned, or looks like no word. Which names are those
of secrets is decided in `names.py`, keys that show who issued them are in `issued_keys.py`.

Masking twice is masking once: passes continue until nothing changes. A text that is not done after a few of them was
made for that, and is masked whole. The patterns take time in proportion to the text, since servers write it.
"""

import re
from collections.abc import Callable, Iterator

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.by_context import without_secrets_by_context
from mcpbridge.base.masking.elements import without_secrets_in_elements
from mcpbridge.base.masking.issued_keys import PRIVATE_KEYS, without_keys
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import (
    IN_SECRET_NAMES,
    LIKELY,
    SAID,
    SURE,
    Secret,
    is_unlike_words,
    looks_random,
    secret_of,
)
from mcpbridge.base.masking.no_values import (
    EXAMPLE,
    IN_CODE,
    NO_VALUES,
    TYPE,
    is_example_login,
    is_quoted_secret,
    says_nothing,
)
from mcpbridge.base.masking.sentences import without_secrets_in_sentences

PASSES = 8
"""More than any text needs that was not made for it: what is masked may let something else be seen."""

_PEM = late(PRIVATE_KEYS)
_COLOURS = late(r"\x1b\[[0-9;]{0,20}m")

_USER_INFO = late(r"(?<=://)([^/\s:@?#\"'<>]{0,512}+)(:[^/\s?#\"'<>]{1,4096})?(?=@)")
_DATABASE = late(r"(?<=://)([^\s:@/\"'<>]{0,128}+:)(?!//)([^\s\"'<>]{1,256})(?=@[\w.\[-])")
_DATABASE_SCHEME = late(
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|clickhouse|cockroachdb|snowflake"
    r"|ldaps?|smtps?|imaps?|nats|ftp|sftp|couchbases?|neo4j|bolt)(?:\+[a-z\d]{1,20})?://$",
    re.IGNORECASE,
)
"""Passwords in these often have characters that end them in other addresses."""
_ORACLE = late(r"(?<=:thin:)([\w.$-]{1,64}+)/([^\s@/\"']{1,4096}+)(?=@)")
_HOOKS = late(
    r"((?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{5,30}"
    r"|[\w.-]{0,60}infura\.io/(?:ws/)?v3|[\w.-]{1,60}\.alchemy\.com/(?:v2|nft/v\d)|mcp\.zapier\.com/api/mcp/[as]"
    r"|[\w.-]{1,60}\.office\.com/webhookb?2?|hooks\.zapier\.com/hooks/catch|api\.telegram\.org/(?=bot\d))/?)"
    r"([^\s\"'<>?#]{8,}+)",
    re.IGNORECASE,
)
"""Addresses that are a secret themselves: whoever knows them may post."""
_COOKIES = late(
    r"(?<!\w)((?:Set-)?Cookie2?[\"']?:[ \t]{0,8}[\"']?)(?!\[redacted\])[^\s=;,\"']{1,64}+=[^\r\n\"'\\]*+", re.IGNORECASE
)
_AUTHORIZATION = late(
    r"(?<!\w)((?:Proxy-)?Authorization[\"']?[:=][ \t]{0,8}[\"']?"
    r"(?:Digest|OAuth|Hawk|Signature|AWS4-HMAC-SHA256|MAC|NTLM)[ \t]{1,8})(?!\[redacted\])([^\r\n']+)",
    re.IGNORECASE,
)
"""Schemes with several parameters: nothing of the rest of the line is worth reading."""
_OTHER_SCHEME = late(
    r"(?<!\w)((?:Proxy-)?Authorization[\"']?[:=][ \t]{0,8}[\"']?[A-Za-z][\w.-]{1,30}+[ \t]{1,8})([^\s\"',]{8,}+)",
    re.IGNORECASE,
)
"""Schemes that nobody registered, such as `SSWS` and `GenieKey`."""
_SUBPROTOCOL = late(r"(Sec-WebSocket-Protocol[\"']?[:=][ \t]{0,8}[\"']?)([^\r\n\"']++)", re.IGNORECASE)
"""Where browsers put a token, as a WebSocket of theirs has no other header."""
_SCHEME = late(r"\b(Bearer|Basic)((?:\s|%20){1,3})([A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE)
_QUERY = late(
    r"(?:(?<=[?&;#])|(?<=%3[fF])|(?<=%2[36]))([A-Za-z0-9_.\[\]-]{1,80}+)(=|%3[dD])"
    r"((?:(?!%2[36]|%3[fF])[^&;\s\"'<>#])++)"
)
"""An address may be in a parameter of another, with its own parameters."""
_PAIR = late(r"\([ \t]{0,4}b?([\"'])([\w-]{1,80}+)\1,[ \t]{1,40}b?([\"'])((?:(?!\3)[^\\\n])++)(?=\3[ \t]{0,4}\))")
"""A header as Python shows it in a list, and a constant as PHP defines it."""
_USER_PAIR = late(
    r"(\bauth[ \t]{0,3}[:=][ \t]{0,3}\([\"'][^\"'\n]{0,128}+[\"'],[ \t]{0,3}[\"'])(?!\[redacted\])([^\"'\n]{1,8192}+)"
)
"""User and password as HTTP clients in Python take them."""
_NAMED = late(
    r"(\b(?:name|key)[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?)([A-Za-z_][\w-]{0,79}+)"
    r"([\"']?[,;]?\s{0,40}[\"']?(?:value|content)[\"']?[ \t]{0,3}[:=][ \t]{0,3})"
    r"(\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|[^\s\"',;{}]++)"
)
"""A variable or a header as lists of them have it: its name under `name` or `key`, and then its value."""
_BLOCK_HEAD = r"(?<![\w.-])([A-Za-z_][\w.-]{0,79}+)[\"']?:[ \t]{1,8}[|>][-+\d]{0,2}[ \t]{0,8}"
_BLOCK = late(rf"({_BLOCK_HEAD}(?:\r?\n|\\+n))((?:[ \t]+(?:(?!\\+n)[^\n])+(?:\n|\\+n)?)++)")
"""A text of several lines in YAML; the ends of its lines may be escaped, as in JSON."""
_BLOCK_BEGINS = late(rf"{_BLOCK_HEAD}$")
_PRIVATE_PART = late(r"((?<![\w])\\*[\"'](?:d|p|q|dp|dq|qi|k)\\*[\"']\s{0,3}:\s{0,3}\\*[\"'])([\w-]{16,}+)")
"""What is private of a JSON Web Key (RFC 7518, 6)."""
_NETRC = late(
    r"(\b(?:machine\s{1,8}\S{1,128}+|default)\s{1,8}login\s{1,8}\S{1,128}+\s{1,8}password\s{1,8})(?!\[redacted\])(\S{1,8192}+)"
)
_ROW = late(
    r"(\|[ \t`*]{0,40}+([A-Za-z_][\w.-]{0,79}+)[ \t`*]{0,40}+\|[ \t`*]{0,40}+)([^\s|`]{6,8192}+)(?=[ \t`*]{0,40}\|)"
)
"""A name and its value in a row of a table."""

_OPTION = late(
    r"(?<![\w-])(--[a-z][\w-]{0,79}+)([\"']?,?[ \t]{1,3}|=)(\"[^\"\n]*+\"|'[^'\n]*+'|[^\s\"'`<>|;&$-][^\s\"'`<>|;&]*+)"
)
_USER_OPTION = late(r"(?<![\w-])((?:-u|--user|--proxy-user|-U)[ =]{0,2}[\"']?)([^\s:\"']{1,128}+):([^\s\"']{1,8192}+)")
_DATABASE_CLIENT = late(
    r"(\b(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump|sshpass|mongosh?|mongodump)\b"
    r"[^\n|;]{0,200}?[ \"']-p[ \t]{0,2}"
    r"|\bredis-cli\b[^\n|;]{0,200}?[ \"'](?:-a|--pass)[ \t=]{1,2}"
    r"|\b(?:docker|podman|nerdctl|buildah|skopeo|helm|oc|az|crane|oras)\b[^\n|;]{0,60}? login\b"
    r"[^\n|;]{0,200}? -p[ \t]{1,2})"
    r"([\"']?)([^\s\"'-][^\s|;\"']{0,8192}+)"
)
_DIRECTIVE = late(
    r"((?:(?:^|: )[ \t]*(?:ENV|ARG|setenv|set -g?x)|\bconfig(?:ure)? set)[ \t]{1,4}(?:\S{0,200}[:.])?"
    r"([A-Za-z_]\w{0,79}+)[ \t]{1,4})(?!=)([^\s=]\S*+)",
    re.MULTILINE,
)
_NAME = late(
    r"(?<!\w)(?!(?<=\$\{)secret:[\w.@:/-]{1,128}\})([A-Za-z_][\w.-]{0,79}+)((?:\\*+[\"'`]?\*{0,2}|&quot;|&#3[49];|%22)\]?\s{0,3}(=>|:=|[=:])\*{0,2}\s{0,3})"
)
_SPACED = late(
    r"(?:^|[^\w-])(api|access|secret|private|client|signing|encryption|license|subscription|account)[ \t]$",
    re.IGNORECASE,
)
_WRAPPED = late(
    r"\[(?=[A-Za-z0-9\"'])|(?:Some|Optional|Just)\(|SecretStr\(|[bru](?=[\"'])|&(?:quot;|#3[49];)|&(?=\w)|%22"
    r"|<<(?=\")|(?:\\+n)?\s{0,8}string\(\d{1,9}\) (?=\\*\")|\{\s{0,20}[\"']value[\"']\s{0,3}:\s{0,3}(?=[\"'])"
    r"|\"\"(?=\"[^\"])|''(?='[^'])|`(?=[^`\s]{4})|\{(?=[^{}\s]*[0-9][^{}\s]*\})"
)
_FURTHER = late(r"[\"']?[ \t\r\n]{0,40}+,[ \t\r\n]{0,40}+")
"""Between two values of a list."""
_ITEM = late(r"(?:[ \t\r\n]|\\+n){0,40}+-[ \t]{1,4}")
"""Before a value of a list in YAML."""
_LONGEST_LIST = 64
"""Values: a text may be full of names that begin lists."""
_SOURCE_LINE = late(
    r"\.(?:py|pyi|rb|js|jsx|mjs|cjs|ts|tsx|vue|java|kt|kts|scala|groovy|go|rs|c|h|cc|cpp|hpp|cs|fs|vb|swift|m|php|pl"
    r"|ex|exs|erl|lua|dart|sql|sh|ya?ml|json|toml|tf)\Z"
)
"""A file, after which the number of a line is."""
_VALUE = late(
    r'(?P<escaped>\\+")(?P<in_escaped>(?:[^"\\\n]|\\+[^"\\\n])*+)'
    r'|"(?P<double>(?:[^"\\\n]|\\.)*+)'
    r"|'(?P<single>(?:[^'\\\n]|\\.)*+)"
    r"|(?P<scheme>(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)[ \t]{1,3})?"
    r"(?P<bare>[^\s\"'`<>,;&(){}\[\]|\\]{1,128}+)",
    re.IGNORECASE,
)
_PARAMETER = late(r"[a-z_]{3,20}=[^=]")
"""Of a challenge, or the next setting: `Bearer scope=read1`."""
_REST = late(r"[^\s\"'`<>,;&(){}\[\]|\\]*+")
"""What of a longer value is left. Not searched at once: texts may be full of names that are followed by long values."""
_HEADER_NAME = late(r"[Xx]-[\w-]+|[A-Z][\w]*(?:-[A-Z]\w*)+|(?:Proxy-)?Authorization")
_CODE_LIKE = late(r"[A-Za-z_]+(?:[._]+[A-Za-z_]+)+")
_GOES_ON = late(r"[ \t]+[\w(]")


def without_secrets(text: str, known: Callable[[str], str] = lambda text: text) -> str:
    """The same text with its secrets masked. `known` masks values that are known to be secrets."""
    if "\x1b" in text and (plain := without_colours(text)) != text:  # they may stand between a name and its value
        masked = _until_stable(plain, known)
        return text if masked == plain else masked
    return _until_stable(text, known)


def without_colours(text: str) -> str:
    """The same text without what colours it on a terminal."""
    plain = _COLOURS.sub("", text)
    return plain.replace("\x1b", "") if _COLOURS.search(plain) else plain


def _until_stable(text: str, known: Callable[[str], str]) -> str:
    for _ in range(PASSES):
        before, text = text, _pass(known(text))
        if text == before:
            return text
    return MASK


_HOSTS = ("hooks.slack.com", "discord", "office.com/", "zapier.com", "api.telegram.org", "infura.io", "alchemy.com")


def _pass(text: str) -> str:
    """Each search is left out where what it cannot do without is not there: most texts have little of it."""
    lower = text.lower()
    has = lower.__contains__  # `map` asks ten times as fast as a generator does
    if "-----BEGIN " in text or "PuTTY-User" in text:
        text = _PEM.sub(MASK, text)
    if "://" in text:
        text = _DATABASE.sub(_of_database, text)
        text = _USER_INFO.sub(_of_user_info, text)
    if ":thin:" in text:
        text = _ORACLE.sub(rf"\1/{MASK}", text)
    if any(map(has, _HOSTS)):
        text = _HOOKS.sub(_of_hook, text)
    if "cookie" in lower:
        text = _COOKIES.sub(rf"\1{MASK}", text)
    if "authorization" in lower:
        text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
        text = _OTHER_SCHEME.sub(_of_other_scheme, text)
        text = _PAIR.sub(_of_pair, text)
    elif "(" in text and ("'," in text or '",' in text):
        text = _PAIR.sub(_of_pair, text)
    if "auth" in text and "(" in text:
        text = _USER_PAIR.sub(rf"\1{MASK}", text)
    if "=" in text or "%3" in text:
        text = _QUERY.sub(_of_query, text)
    if "</" in text:
        text = without_secrets_in_elements(text)
    if "sec-websocket-protocol" in lower:
        text = _SUBPROTOCOL.sub(_of_subprotocol, text)
    if "kty" in text:
        text = _PRIVATE_PART.sub(rf"\1{MASK}", text)
    if (": |" in text or ": >" in text) and ("\n" in text or "\\n" in text):
        text = _BLOCK.sub(_of_block, text)
    if text.count("|") > 2:
        text = _ROW.sub(_of_row, text)
    if "login" in text and "password" in text:
        text = _NETRC.sub(rf"\1{MASK}", text)
    if ("value" in lower or "content" in lower) and ("name" in lower or "key" in lower):
        text = _NAMED.sub(_of_named, text)
    if "-" in text:
        if "-p" in text or "redis-cli" in text:
            text = _DATABASE_CLIENT.sub(rf"\1\2{MASK}", text)
        if " -u" in text or "-user" in text or " -U" in text:
            text = _USER_OPTION.sub(_of_user_option, text)
        if "--" in text:
            text = _OPTION.sub(_of_option, text)
    if "env " in lower or "arg " in lower or "set " in lower:
        text = _DIRECTIVE.sub(_of_directive, text)
    if ("=" in text or ":" in text) and any(map(has, IN_SECRET_NAMES)):
        text = _of_settings(text)
    if any(map(has, SAID)):
        text = without_secrets_in_sentences(text, lower)
    if "bearer" in lower or "basic" in lower:
        text = _SCHEME.sub(_of_scheme, text)
    text = without_secrets_by_context(text, lower)
    return without_keys(text, MASK)


def _of_database(match: re.Match[str]) -> str:
    start = match.start()
    if MASK in match[2] or is_example_login(match[1][:-1], match[2]):
        return match[0]
    is_one = _DATABASE_SCHEME.search(match.string, max(0, start - 48), start)
    return f"{match[1]}{MASK}" if is_one else match[0]


def _of_hook(match: re.Match[str]) -> str:
    return match[0] if MASK in match[2] else f"{match[1]}{MASK}"


def _of_user_info(match: re.Match[str]) -> str:
    user = match[1]
    is_token = without_keys(user, MASK) != user or (len(user) >= 16 and any(map(str.isdigit, user)))
    is_shown = bool(match[2]) and not is_example_login(user, match[2][1:])
    return MASK if is_shown or is_token else match[0]


_IN_ADDRESSES = frozenset(
    {"key", "sig", "code", "signature", "x-amz-signature", "x-amz-credential", "hmac", "appid", "auth"}
    | {
        "x-goog-signature",
        "x-goog-credential",
        "x-oss-signature",
        "x-cos-signature",
        "x-bce-signature",
        "googleaccessid",
    }
)
"""Names in the query of an address that are those of secrets there alone."""


def _of_query(match: re.Match[str]) -> str:
    name, equals, value = match.groups()
    secret = SURE if name.lower() in _IN_ADDRESSES else secret_of(name)
    is_code = match.string[match.start() - 1 : match.start()] == ";" and any(map("(){}".__contains__, value))
    is_one = (
        secret is not None
        and not is_code
        and not says_nothing(value)
        and secret.has(value, is_number=value.isdecimal())
    )
    return f"{name}{equals}{MASK}" if is_one else match[0]


def _of_pair(match: re.Match[str]) -> str:
    secret, value = secret_of(match[2]), match[4]
    if not secret or not is_quoted_secret(secret, value):
        return match[0]
    return f"{match[0][: -len(value)]}{MASK}"


def _of_named(match: re.Match[str]) -> str:
    secret, value = secret_of(match[2]), match[4]
    quote = value[0] if value[0] in "\"'" else ""
    bare = value[1:-1] if quote else value
    is_one = secret is not None and bare != MASK and not says_nothing(bare) and secret.has(bare)
    return f"{match[1]}{match[2]}{match[3]}{quote}{MASK}{quote}" if is_one else match[0]


def _of_block(match: re.Match[str]) -> str:
    head, name, lines = match.groups()
    secret, value = secret_of(name), lines.strip()
    if not secret or not is_quoted_secret(secret, value):
        return match[0]
    start, end = lines.index(value), lines.index(value) + len(value)
    return f"{head}{lines[:start]}{MASK}{lines[end:]}"


def _of_row(match: re.Match[str]) -> str:
    secret, value = secret_of(match[2]), match[3]
    is_one = secret is not None and not says_nothing(value) and secret.has(value) and is_unlike_words(value)
    return f"{match[1]}{MASK}" if is_one else match[0]


def _of_other_scheme(match: re.Match[str]) -> str:
    value = match[2]
    return match[0] if says_nothing(value) or not is_unlike_words(value) else f"{match[1]}{MASK}"


def _of_subprotocol(match: re.Match[str]) -> str:
    """Names of protocols are words (`mcp`, `graphql-ws`); what is long and looks like none came beside them."""
    names = [name.strip() for name in match[2].split(",")]
    return match[1] + ", ".join(MASK if len(name) >= 16 and is_unlike_words(name) else name for name in names)


def _of_option(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    secret, quote = secret_of(name), value[0] if value[0] in "\"'" else ""
    bare = value[1:-1] if quote else value
    if secret is None or says_nothing(bare) or not secret.has(bare):
        return match[0]
    is_one = bool(quote) or between == "=" or is_unlike_words(bare)
    return f"{name}{between}{quote}{MASK}{quote}" if is_one else match[0]


def _of_user_option(match: re.Match[str]) -> str:
    user, password = match[2], match[3]
    is_id = user.isdecimal() or password.isdecimal() or password == user or says_nothing(password)
    return match[0] if is_id else f"{match[1]}{user}:{MASK}"


def _of_directive(match: re.Match[str]) -> str:
    secret, value = secret_of(match[2]), match[3]
    is_one = secret is not None and not says_nothing(value) and secret.has(value)
    return f"{match[1]}{MASK}" if is_one else match[0]


def _of_scheme(match: re.Match[str]) -> str:
    value = match[3]
    is_word = not re.search(r"[0-9]|[a-z][A-Z]|=$", value) or _PARAMETER.match(value)
    return match[0] if is_word else f"{match[1]}{match[2]}{MASK}"


def _of_settings(text: str) -> str:
    """Without the values of `name=value`, `name: value` and `"name": "value"`."""
    parts: list[str] = []
    done = at = 0
    while (match := _NAME.search(text, at)) is not None:
        at = match.end()
        name = match[1]
        secret = secret_of(name) or (_spaced_secret(text, match) if len(name) <= len("key") else None)
        if secret is None or (match[2] == ":" and text[at : at + 1].isdecimal() and _SOURCE_LINE.search(name)):
            continue
        start = at
        if (wrapped := _WRAPPED.match(text, start)) is not None and not text.startswith(MASK, start):
            start = wrapped.end()
        is_list = wrapped is not None and wrapped[0] == "["
        if wrapped is None and (item := _ITEM.match(text, start)) is not None:
            for start, end in _items(text, item, secret):
                parts += [text[done:start], MASK]
                done = at = end
            continue
        for _ in range(_LONGEST_LIST):
            if (value := _VALUE.match(text, start)) is None:
                break
            where = _secret_in(text, match, value, secret)
            if where is not None:
                parts += [text[done : where[0]], MASK]
                done = at = where[1]
            further = _FURTHER.match(text, value.end() if where is None else where[1]) if is_list else None
            if further is None:
                break
            start = further.end()
    return "".join([*parts, text[done:]])


def _items(text: str, item: re.Match[str] | None, secret: Secret) -> Iterator[tuple[int, int]]:
    """From where to where the secrets in a list of YAML are; most lists under such names hold names of secrets."""
    for _ in range(_LONGEST_LIST):
        if item is None or (value := _VALUE.match(text, item.end())) is None:
            return
        kind = next((kind for kind in ("double", "single", "bare") if value[kind] is not None), "bare")
        bare = value[kind] or ""
        if looks_random(bare) and not says_nothing(bare) and secret.has(bare):
            yield value.span(kind)
        item = _ITEM.match(text, value.end() + (kind != "bare"))


def _spaced_secret(text: str, name: re.Match[str]) -> Secret | None:
    """`API Key: …`: the name is two words."""
    if name[1].lower() not in ("key", "id"):
        return None
    before = _SPACED.search(text, max(0, name.start() - 16), name.start())
    return secret_of(f"{before[1].lower()}_{name[1].lower()}") if before is not None else None


def _secret_in(text: str, name: re.Match[str], value: re.Match[str], secret: Secret) -> tuple[int, int] | None:
    """From where to where a value is one."""
    for kind in ("in_escaped", "double", "single"):
        if (quoted := value[kind]) is not None:
            is_one = is_quoted_secret(secret, quoted)
            return value.span(kind) if is_one else None
    start, end = value.span("bare")
    if not _is_bare_secret(text, name, value, secret):
        return None
    rest = _REST.match(text, end)
    end = rest.end() if rest is not None else end
    return start, end - 1 if text[end - 1] in ".:!?" and end - start > 1 else end


def begins_secret_block(line: str) -> bool:
    """Whether the indented lines that follow are a secret, whose name this line of YAML ends with."""
    head = _BLOCK_BEGINS.search(line)
    return head is not None and secret_of(head[1]) in (SURE, LIKELY)


def _is_bare_secret(text: str, name: re.Match[str], value: re.Match[str], secret: Secret) -> bool:
    """Whether what stands there without quotes is one, and no word of a sentence, no code and no variable."""
    bare = value["bare"].rstrip(".:!?")
    is_number = bare.replace(".", "", 1).isdecimal()
    if bare.lower() in NO_VALUES or bare.startswith("$") or not any(map(str.isalnum, bare)):
        return False
    if EXAMPLE.fullmatch(value["bare"]) or IN_CODE.fullmatch(bare) or (len(bare) == 1 and bare.isalpha()):
        return False
    if not secret.has(bare, is_number=is_number) or bare.lower() == name[1].rpartition(".")[2].lower():
        return False
    after = value.end()
    if text.startswith(("(", "["), after):  # a function, or what was masked already
        return False
    if text.startswith("<", after) and bare.isalpha():  # a type with a parameter
        return False
    if secret is not SURE and TYPE.fullmatch(bare) and name[1].endswith((bare, bare[0].lower() + bare[1:])):
        return False
    if bare.startswith("/") and name[1].lower().endswith("pwd"):  # a directory
        return False
    if value["scheme"] or secret.texts != "all":
        return True
    is_colon, is_spaced = name[3] == ":", name[2][-1:].isspace()
    if not is_spaced:
        return not is_colon or secret is SURE or is_unlike_words(bare)
    if _CODE_LIKE.fullmatch(bare) and not is_colon:
        return False
    if is_number:
        return secret is SURE or not _GOES_ON.match(text, after)
    if _HEADER_NAME.fullmatch(name[1]):
        return not _GOES_ON.match(text, after) or is_unlike_words(bare)
    if _GOES_ON.match(text, after):
        return is_unlike_words(bare)
    return secret is not LIKELY or is_unlike_words(bare) or len(bare) >= 12
