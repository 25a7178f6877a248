"""Secrets in the middle of a text: in addresses, header lines, settings, and by their own shape. Pure.

Whoever reads a text knows no types, so what is written like a sentence or like code stays: a value is taken for a
secret if it is quoted or assigned, or if it looks like none of the words that stand there otherwise. The patterns
take time in proportion to the text, whatever is in it: servers write it.
"""

import re

from mcpbridge.cassettes.secret_names import LIKELY, SURE, Secret, is_random, secret_of
from mcpbridge.redaction import ISSUED_KEYS, MASK

__all__ = ["without_keys", "without_secrets"]

_USER_INFO = re.compile(r"(?<=://)([^/\s:@?#\"'<>]*)(:[^/\s?#\"'<>]+)?(?=@)")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_COOKIES = re.compile(r"(?<!\w)((?:Set-)?Cookie2?:[ \t]{0,8})[^\s=;,\"']{1,64}+=[^\r\n\"'\\]*+", re.IGNORECASE)
_SCHEME = re.compile(r"\b(Bearer|Basic)(\s{1,3})([A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE)
_QUERY = re.compile(r"(?<=[?&;])([A-Za-z0-9_.\[\]-]++)=([^&;\s\"'<>#]++)")
_ELEMENT = re.compile(r"<([A-Za-z_][\w.-]{0,79})>([^<>]++)(?=</\1>)")

_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]{0,79}+)([ \t]{1,3})([^\s\"'`<>|;&$-][^\s\"'`<>|;&]*+)")
_NAME = re.compile(r"(?<!\w)([A-Za-z_][\w.-]{0,79}+)(\\*+[\"']?\s{0,3}(=>|:=|[=:])\s{0,3})")
_VALUE = re.compile(
    r'(?P<escaped>\\+")(?P<in_escaped>(?:[^"\\\n]|\\+[^"\\\n])*+)'
    r'|"(?P<double>(?:[^"\\\n]|\\.)*+)'
    r"|'(?P<single>(?:[^'\\\n]|\\.)*+)"
    r"|(?P<scheme>(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)[ \t]{1,3})?"
    r"(?P<bare>[^\s\"'`<>,;&(){}\[\]|\\]{1,128}+)",
    re.IGNORECASE,
)
_REST = re.compile(r"[^\s\"'`<>,;&(){}\[\]|\\]*+")
"""What of a longer value is left. Not searched at once: texts may be full of names that are followed by long values."""
_HEADER_NAME = re.compile(r"[Xx]-[\w-]+|[A-Z][\w]*(?:-[A-Z]\w*)+|(?:Proxy-)?Authorization")
_CODE_LIKE = re.compile(r"[A-Za-z_]+(?:[._]+[A-Za-z_]+)+")
_GOES_ON = re.compile(r"[ \t]+[\w(]")
_NO_VALUES = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "undefined", "auto"}) | {
    *("default", "basic", "bearer", "oauth", "oauth2", "required", "optional", "missing", "invalid", "expired"),
    *("given", "set", "unset", "ok", "wrong", "incorrect", "unknown", "empty", "valid", "denied", "failed"),
    *("str", "string", "secretstr", "int", "integer", "number", "float", "bool", "boolean", "bytes", "any", "object"),
    *("text", "list", "dict", "array", "varchar", "type", "token", "digest", "apikey", "negotiate"),
}
"""What a text says of a secret without telling it."""

_KEYS = re.compile(ISSUED_KEYS)
_SHORT_KEYS = re.compile(
    r"(?<![A-Za-z0-9_-])(?:(?:sk-|gh[pousr]_|github_pat_|xox[a-z]-)[\w-]{8,}+|eyJ[\w-]{6,}+\.[\w-]{2,}+(?:\.[\w-]*+)?)"
)
"""The best known ones, shortened as examples and tests have them."""
_WORDS = re.compile(r"(?:sk-(?!proj-|ant-|or-|svcacct-)|secret_|npm_|hf_)[a-z]+(?:[-_][a-z]+)+")


def without_secrets(text: str) -> str:
    """The same text with its secrets masked."""
    text = _PEM.sub(MASK, text)
    text = _USER_INFO.sub(_of_user_info, text)
    text = _COOKIES.sub(rf"\1{MASK}", text)
    text = _QUERY.sub(_of_query, text)
    text = _ELEMENT.sub(_of_element, text)
    text = _of_settings(_OPTION.sub(_of_option, text))
    text = _SCHEME.sub(_of_scheme, text)
    return without_keys(text)


def without_keys(text: str) -> str:
    """The same text without keys and tokens that show what they are."""
    return _SHORT_KEYS.sub(_of_key, _KEYS.sub(_of_key, text))


def _of_key(found: re.Match[str]) -> str:
    return found[0] if _WORDS.fullmatch(found[0]) else MASK


def _of_user_info(found: re.Match[str]) -> str:
    user = found[1]
    is_token = without_keys(user) != user or (len(user) >= 16 and is_random(user))
    return MASK if found[2] or is_token else found[0]


def _of_query(found: re.Match[str]) -> str:
    name, value = found.groups()
    secret = SURE if name.lower() in ("key", "sig", "code", "signature", "x-amz-signature") else secret_of(name)
    return f"{name}={MASK}" if secret and secret.has(value, is_number=value.isdecimal()) else found[0]


def _of_element(found: re.Match[str]) -> str:
    secret, value = secret_of(found[1]), found[2].strip()
    return f"<{found[1]}>{MASK}" if secret and _is_quoted_secret(secret, value) else found[0]


def _of_option(found: re.Match[str]) -> str:
    secret, value = secret_of(found[1]), found[3]
    is_one = secret is not None and value != MASK and secret.has(value) and _is_unlike_words(value)
    return f"{found[1]}{found[2]}{MASK}" if is_one else found[0]


def _of_scheme(found: re.Match[str]) -> str:
    value = found[3]
    is_word = not re.search(r"[0-9]|[a-z][A-Z]|=$", value)
    return found[0] if is_word else f"{found[1]}{found[2]}{MASK}"


def _of_settings(text: str) -> str:
    """Without the values of `name=value`, `name: value` and `"name": "value"`."""
    parts: list[str] = []
    done = at = 0
    while (found := _NAME.search(text, at)) is not None:
        at = found.end()
        secret = secret_of(found[1])
        value = _VALUE.match(text, at) if secret is not None else None
        if secret is None or value is None:
            continue
        where = _secret_in(text, found, value, secret)
        if where is not None:
            parts += [text[done : where[0]], MASK]
            done = at = where[1]
    return "".join([*parts, text[done:]])


def _secret_in(text: str, name: re.Match[str], value: re.Match[str], secret: Secret) -> tuple[int, int] | None:
    """From where to where a value is one."""
    for kind in ("in_escaped", "double", "single"):
        if (quoted := value[kind]) is not None:
            is_one = _is_quoted_secret(secret, quoted)
            return value.span(kind) if is_one else None
    start, end = value.span("bare")
    if not _is_bare_secret(text, name, value, secret):
        return None
    rest = _REST.match(text, end)
    end = rest.end() if rest is not None else end
    return start, end - 1 if text[end - 1] in ".:!?" and end - start > 1 else end


def _is_quoted_secret(secret: Secret, value: str) -> bool:
    if value == MASK or value.lower() in _NO_VALUES or value.startswith(("$", "{{", "<", "%(")):
        return False
    return secret.has(value, is_number=value.isdecimal() and secret is not SURE)


def _is_bare_secret(text: str, name: re.Match[str], value: re.Match[str], secret: Secret) -> bool:
    """Whether what stands there without quotes is one, and no word of a sentence, no code and no variable."""
    bare = value["bare"].rstrip(".:!?")
    is_number = bare.replace(".", "", 1).isdecimal()
    if bare.lower() in _NO_VALUES or bare.startswith("$") or not any(map(str.isalnum, bare)):
        return False
    if not secret.has(bare, is_number=is_number):
        return False
    after = value.end()
    if text.startswith(("(", "["), after):  # a function, or what was masked already
        return False
    if bare.startswith("/") and name[1].lower().endswith("pwd"):  # a directory
        return False
    if value["scheme"] or secret.texts != "all":
        return True
    is_colon, is_spaced = name[3] == ":", name[2][-1:].isspace()
    if not is_spaced:
        return not is_colon or secret is SURE or _is_unlike_words(bare)
    if _CODE_LIKE.fullmatch(bare) and not is_colon:
        return False
    if is_number:
        return secret is SURE or not _GOES_ON.match(text, after)
    if _HEADER_NAME.fullmatch(name[1]):
        return not _GOES_ON.match(text, after) or _is_unlike_words(bare)
    if _GOES_ON.match(text, after):
        return _is_unlike_words(bare)
    return secret is not LIKELY or _is_unlike_words(bare) or len(bare) >= 12


def _is_unlike_words(bare: str) -> bool:
    return len(bare) >= 6 and bool(re.search(r"[0-9]|[a-z][A-Z]", bare))
