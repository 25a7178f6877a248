"""What is written where a secret would be, and is none: words, examples, names of variables, code. Pure.

Texts that servers send, and documentation above all, are full of it: a reader should see it.
"""

import re

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import SURE, Secret

NO_VALUES = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "undefined", "auto"}) | {
    *("default", "basic", "bearer", "oauth", "oauth2", "required", "optional", "missing", "invalid", "expired"),
    *("given", "set", "unset", "ok", "wrong", "incorrect", "unknown", "empty", "valid", "denied", "failed"),
    *("str", "string", "secretstr", "int", "integer", "number", "float", "bool", "boolean", "bytes", "any", "object"),
    *("text", "list", "dict", "array", "varchar", "type", "token", "digest", "apikey", "negotiate"),
    *("redacted", "masked", "filtered", "prompt", "not", "must", "revoked"),
}
"""What a text says of a secret without showing it."""
EXAMPLE = late(
    r"(?:your|insert|enter|replace|example)(?:[-_ ][a-z]+)++|change[-_ ]?(?:me|this)"
    r"|[a-z]{2,10}[-_](?:\.{3}|x{3,}+)|x{3,}+",
    re.IGNORECASE,
)
"""Where somebody is to put a secret."""
_VARIABLE = late(r"\$\{[A-Za-z_]\w*\}|\$[A-Z_]+|\{\{?[A-Za-z_][\w.]*\}?\}|%[A-Z_]+%|\*+|[xX]{3,}+|\.{3}")
"""Where a password of an address is to be put, or was."""
IN_CODE = late(
    r":[A-Za-z_]+"
    r"|(?:process\.env|import\.meta\.env|os\.environ|env|self|this|config|settings|options|opts|args|params|props"
    r"|secrets|var|local|data|request|req|ctx|values?)(?:\.[A-Za-z_]+)++"
)
"""Where a program gets a value from, and what follows `::`."""
TYPE = late(r"(?:[A-Z][a-z]+)++")
"""Names of types: words that begin with a capital letter."""


def says_nothing(value: str) -> bool:
    """Whether it is masked already, names where the value is to come from, or mentions a secret without showing it."""
    if MASK in value or value.strip().lower() in NO_VALUES or value.startswith(("$", "{{", "<", "%(", "***", "--")):
        return True
    return EXAMPLE.fullmatch(value) is not None


def is_example_login(user: str, password: str) -> bool:
    """Whether an address says where a user and a password are to be put: `user:password@`, `$USER:$PASSWORD@`."""
    is_named = user.lower() in ("user", "username", "login") and password.lower() in (
        "password",
        "pass",
        "passwd",
        "pwd",
    )
    return is_named or _VARIABLE.fullmatch(password) is not None


def end_of_value(text: str, start: int, end: int, rest: re.Pattern[str]) -> int:
    """Where a value ends that was looked at up to `end`; `rest`: what may follow. The end of a sentence is no part."""
    further = rest.match(text, end)
    whole = text[start : further.end() if further is not None else end]
    return start + len(whole.rstrip(".:!?"))


def is_quoted_secret(secret: Secret, value: str) -> bool:
    """Whether a value that is marked off from the text around it is one, of a name that has such secrets."""
    if says_nothing(value):
        return False
    return secret.has(value, is_number=value.isdecimal() and secret is not SURE)
