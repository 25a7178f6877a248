"""What a rule of the scanner is, and words that several rules share."""

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """One thing that is looked for."""

    about: str
    """What it finds, in a sentence."""
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    """One of these is in every text that the pattern finds; empty: no such word is known."""


PRIVATE = (
    r"(?:~/?\.?(?:ssh|aws|kube|gnupg|config|docker|netrc|npmrc|cursor|claude)\b|\.ssh\b|id_(?:rsa"
    r"|ed25519|ecdsa|dsa)\b(?!\.pub)"
    r"|\.env(?:\.\w+)?\b(?! var)|\.aws\b|\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials|\.pgpass"
    r"|\.kube\b|/etc/(?:passwd|shadow)"
    r"|mcp\.json\b|claude_desktop_config|wallet\.dat|keychain|login data\b|cookies?\.sqlite|bash_history|zsh_history"
    r"|private keys?\b|ssh keys?\b|seed phrase|recovery phrase|mnemonic phrase|(?:aws|cloud|user(?:'s)?"
    r"|saved|stored|login|all) credentials"
    r"|credentials? (?:file|store)|environment variables|(?:api|access|secret) keys?\b|passwords?\b"
    r"|session (?:cookies?|tokens?))"
)
"""What is nobody's business: secrets, and the files that hold them."""
TAKE = (
    r"(?:read|cat|open|fetch|get|load|collect|gather|retrieve|include|pass|send|copy|paste|attach|append"
    r"|provide|supply|extract|dump|print|put|place|upload|forward|encode|embed|insert|share|list|find"
    r"|grep)"
)
"""What a model is ordered to do with it."""


def make_rule(about: str, pattern: str, *hints: str) -> Rule:
    """The rule with this pattern; see `Rule`."""
    return Rule(about, re.compile(pattern), hints)
