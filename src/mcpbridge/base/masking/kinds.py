"""What kind of secret a value is, by the format of who issued it: `github-token`, `aws-key`, `jwt`. Pure.

Kinds are for readers of placeholders, so only well-known ones have a name; whether something is a secret at all is
decided elsewhere (`text.py`).
"""

import re

_KINDS: tuple[tuple[str, str], ...] = (
    ("github-token", r"gh[pousr]_|github_pat_"),
    ("gitlab-token", r"gl(?:pat|dt|rtr?|cbt|ptt|ft|agent|oas|imt|soat|ffct)-"),
    ("slack-token", r"xox[abeprs]-|xapp-"),
    ("stripe-key", r"[spr]k_(?:live|test)_|whsec_"),
    ("anthropic-key", r"sk-ant-"),
    ("openai-key", r"sk-(?:proj-|svcacct-|[A-Za-z0-9]{20})"),
    ("aws-key", r"(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}"),
    ("google-key", r"AIza|ya29\.|GOCSPX-"),
    ("sendgrid-key", r"SG\."),
    ("npm-token", r"npm_"),
    ("pypi-token", r"pypi-"),
    ("hugging-face-token", r"hf_"),
    ("vault-token", r"hv[sbr]\."),
    ("docker-token", r"dckr_(?:pat|oat)_"),
    ("atlassian-token", r"AT(?:ATT|CTT|BB|TA)"),
    ("shopify-token", r"shp(?:at|ss|ca|pa)_"),
    ("databricks-token", r"dapi[0-9a-f]{30}"),
    ("jwt", r"eyJ[\w-]+\.[\w-]+\."),
    ("private-key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File-"),
    ("password-hash", r"\$(?:2[abxy]|5|6|y|1|apr1|argon2(?:id|i|d)|scrypt|pbkdf2-sha\d+)\$"),
)
_PATTERN = re.compile("|".join(f"(?P<{name.replace('-', '_')}>{pattern})" for name, pattern in _KINDS))


def kind_of_secret(value: str) -> str:
    """The kind, in small letters and hyphens; empty: its format is no known one."""
    found = _PATTERN.match(value)
    return found.lastgroup.replace("_", "-") if found is not None and found.lastgroup else ""
