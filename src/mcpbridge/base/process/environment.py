"""Which variables of the bridge's environment the programs get that it starts.

Three kinds. A few that every program needs. Those that say how to reach the network from this machine: certificates,
proxies, and where `uv`, `pip` and `npm` get packages; without them no server starts in a company's network. And what
the configuration names (`inherit_env`). A variable of the second kind is withheld if it carries a password or a token;
`doctor` says so.
"""

import re
import sys
from collections.abc import Mapping

from mcpbridge.base.late_pattern import late

SAFE_NAMES = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a server inherits unasked: enough to find programs and files, no secrets."""

_SAFE_NAMES_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROGRAMDATA",
    "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip

CERTIFICATE_NAMES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Files and directories of authorities that programs trust."""
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Also in small letters."""
_INDEX_NAMES = late(
    r"""UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|FIND_LINKS|NO_INDEX|INSECURE_HOST|NATIVE_TLS
        |SYSTEM_CERTS|KEYRING_PROVIDER|HTTP_TIMEOUT|OFFLINE|(?:PYTHON|PYPY)_INSTALL_MIRROR|CONFIG_FILE
        |INDEX_\w+_USERNAME)
    | PIP_(?:INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|TRUSTED_HOST|CERT|PROXY|TIMEOUT|DEFAULT_TIMEOUT
        |KEYRING_PROVIDER|CONFIG_FILE)
    | (?i:npm_config_(?:(?:@[^:]+:)?registry|proxy|https?[-_]proxy|no[-_]?proxy|cafile|ca|strict[-_]ssl|userconfig
        |globalconfig|replace[-_]registry[-_]host))""",
    re.VERBOSE,
)
"""Where package managers get packages, and how they get there."""

_SECRET_NAME = late(r"passw|token|secret|_auth|:_|credential|_key$", re.IGNORECASE)
_SECRET_IN_QUERY = late(r"[?&][^=&\s]*(?:token|key|passw|secret|auth|sig)[^=&\s]*=", re.IGNORECASE)
_AUTHORITY = late(r"(?:[A-Za-z][A-Za-z0-9+.\-]*:)?//([^\s,]*)")


def child_environment(own: Mapping[str, str], inherit: bool | list[str], parent: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: a safe base, the way to the network, what it inherits, then its own values."""
    if inherit is True:
        base = dict(parent)
    else:
        names = {*(_SAFE_NAMES_WINDOWS if sys.platform == "win32" else SAFE_NAMES), *(inherit or ())}
        base = {name: value for name, value in parent.items() if name in names} | network_variables(parent)
    return base | dict(own)


def network_variables(parent: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that say how to reach the network and packages, without those that are secret."""
    return {name: value for name, value in parent.items() if _is_of_network(name) and not carries_secret(name, value)}


def withheld_variables(parent: Mapping[str, str]) -> list[str]:
    """The names of those that are not handed on, since they carry a password or a token."""
    return sorted(name for name, value in parent.items() if _is_near_network(name) and carries_secret(name, value))


def carries_secret(name: str, value: str) -> bool:
    """Whether a variable of the network carries a password or a token, by its name or in a URL."""
    if _SECRET_NAME.search(name) or _SECRET_IN_QUERY.search(value):
        return True
    if name.upper().endswith("PROXY") and name.upper() not in ("NO_PROXY", "NPM_CONFIG_NOPROXY") and "@" in value:
        return True  # `user:password@proxy` needs no scheme there
    return any(map(_has_userinfo, _AUTHORITY.findall(value)))


def _has_userinfo(rest: str) -> bool:
    """Whether what follows `//` names a user. A password may hold what ends a host: then its port is no number."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, colon, port = authority.rpartition(":")
    return "@" in authority or ("@" in rest and bool(colon) and not port.isdigit() and not authority.startswith("["))


def _is_of_network(name: str) -> bool:
    is_proxy = name in PROXY_NAMES or (name.islower() and name.upper() in PROXY_NAMES)
    return is_proxy or name in CERTIFICATE_NAMES or bool(_INDEX_NAMES.fullmatch(name))


def _is_near_network(name: str) -> bool:
    """The same, and the variables that hold the credentials for it."""
    return _is_of_network(name) or bool(
        re.fullmatch(r"(?:UV|PIP)_\w*(?:PASSWORD|TOKEN)|(?i:npm_config_\S*(?:_auth|_password|token)\S*)", name)
    )
