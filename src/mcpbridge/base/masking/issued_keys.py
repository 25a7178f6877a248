"""Keys and tokens that show what they are: the formats of those who issue them. Pure.

Each is recognised by a fixed beginning (or middle) and the length of what follows; `ORDINARY_WORDS` are names that
begin the same. Patterns of `base/masking/` take time in proportion to the text, since servers write it.
"""

import re

from mcpbridge.base.late_pattern import late
from mcpbridge.base.masking.names import is_mixed

ISSUED_KEYS = (
    r"(?<![A-Za-z0-9_])(?:"
    r"sk-[\w-]{16,}+|[spr]k_(?:live|test)_\w{10,}+|gh[pousr]_\w{20,}+|github_pat_\w{20,}+"
    r"|gl(?:pat|dt|rtr?|cbt|ptt|ft|agent|oas|imt|soat|ffct)-[\w.-]{16,}+|sk_[0-9a-f]{40,}+|pk_\d{5,12}_[A-Z0-9]{20,}+"
    r"|cf(?:ut|at|k)_\w{30,}+|v1\.0-[0-9a-f]{20,}-[0-9a-f]{60,}+|fw_[A-Za-z0-9]{20,}+|CCI(?:PAT|PRJ)_\w{30,}+|bkua_[0-9a-f]{30,}+"
    r"|pul-[0-9a-f]{30,}+|AT(?:BB|TA)[\w=-]{28,}+|AQ\.[\w-]{36,}+|pat-(?:na|eu|ap)\d-[0-9a-f-]{32,}+|rzp_(?:live|test)_\w{12,}+"
    r"|tskey-[a-z]{3,10}-\w{6,}+-\w{16,}+|oy2[a-z0-9]{43}(?!\w)|CLOJARS_[0-9a-f]{40,}+|cio[A-Za-z0-9]{32}(?!\w)|EAA[A-Za-z0-9]{60,}+"
    r"|(?:apify_api|api_org|sb_secret|bb_live|e2b|m0|ak)[_-](?=\w{0,60}\d)[A-Za-z0-9]{20,}+\w*+|re_\w{8}_\w{20,}+|BSA(?=\w{0,40}\d)[\w-]{24,}+"
    r"|sl\.(?=[\w-]{0,80}\d)[\w-]{60,}+|(?:sdk|mob)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|tk_(?=[a-z]{0,28}\d)[a-z0-9]{29}(?!\w)"
    r"|xox[abeprs]-[\w-]{10,}+|xapp-[\w-]{10,}+|(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}|AIza[\w-]{30,}+|ya29\.[\w-]{20,}+"
    r"|(?<!-)eyJ[\w-]{10,}+\.[\w-]{10,}+(?:\.[\w-]*+)*+|hf_\w{16,}+|npm_\w{20,}+|pypi-[\w-]{30,}+|(?:ntn|secret)_\w{20,}+"
    r"|lin_(?:api|oauth)_\w{16,}+|fig[dorh]_[\w-]{16,}+|tvly-[\w-]{10,}+|fc-[0-9a-f]{20,}+"
    r"|(?:gsk|r8|pcsk|whsec|shpat|shpss|shpca|shppa|do[opr]_v1|jina|sbp|nfp|rnd|tfp|aio|napi|vcp|tgp_v1|sntry[su])_[\w=+/-]{16,}+"
    r"|(?:nvapi|pplx|xai|csk|xkeysib|xsmtpsib|ctx7sk|CFPAT)-[\w-]{20,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+|ATATT[\w=-]{20,}+|ATCTT[\w=-]{20,}+"
    r"|dapi[0-9a-f]{30,}+(?:-\d)?|GOCSPX-[\w-]{16,}+|ph[cx]_\w{20,}+|dckr_(?:pat|oat)_[\w-]{20,}+|rubygems_[0-9a-f]{40,}+"
    r"|pscale_(?:tkn|pw|oauth)_[\w.=-]{20,}+|glsa_\w{30,}+|glc_[\w+/=]{30,}+|NRAK-[A-Z0-9]{20,}+|PMAK-[0-9a-f]{20,}+-[0-9a-f]{20,}+"
    r"|lsv2_(?:pt|sk)_[0-9a-f]{20,}+\w*+|sk-lf-[\w-]{20,}+|hv[sbr]\.[\w-]{20,}+|dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}+"
    r"|sq0(?:atp|csp|idp)-[\w-]{20,}+|EAAA[\w-]{50,}+|AGE-SECRET-KEY-1[0-9A-Z]{50,}+|(?:fo1|fm[12][ar]?)_[\w+/=,-]{20,}+"
    r"|(?:SK|AC)[0-9a-f]{32}(?![0-9a-fA-F])|key-[0-9a-f]{32}(?![0-9a-f])|pat\w{14}\.[0-9a-f]{40,}+"
    r"|LTAI\w{16,}+|AKID\w{28,}+|HRKU-[\w-]{30,}+"
    r"|A3T[A-Z0-9][A-Z0-9]{16}|EZ[AT]K[0-9a-f]{40,}+|FLWSECK[\w-]{20,}+|1//0[\w-]{30,}+|ops_eyJ[\w-]{40,}+|A3-[A-Z0-9]{6}-[A-Z0-9-]{20,}+"
    r"|p8e-[0-9a-z]{32}(?!\w)|dt0[a-z]\d\d\.[A-Z0-9]{20,}+\.[A-Z0-9]{40,}+|pat\.[\w-]{20,24}\.[0-9a-f]{24}\.\w{18,}+|AKC[a-z]\w{60,}+"
    r"|(?:api|mob|sdk|pub)-(?!pub)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|rdme_\w{60,}+|sgp_(?:[0-9a-f]{16}_)?[0-9a-f]{40}"
    r"|access-(?:production|sandbox|development)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:WPL_AP1|AQE[A-Z])\.[\w.=-]{16,}+"
    r"|ABSK[\w+/=]{80,}+|GOOG1[A-Z0-9]{50,}+|AQVN[\w-]{35,}+|t1\.[\w-]{40,}+={0,2}\.[\w-]{60,}+|[xyz]prv[1-9A-HJ-NP-Za-km-z]{90,}+"
    r"|(?<!-)eyJ[\w-]{10,}+\.[\w-]*+\.[\w-]{10,}+\.[\w-]{10,}+\.[\w-]{10,}+"
    r")"
    r"|\$(?:2[abxy]|5|6|y|1|apr1|argon2(?:id|i|d)|scrypt|pbkdf2-sha\d+)\$[\w./$,=+-]{20,}+"
)
"""The pattern of secrets that say who issued them, and of hashed passwords. Compiled by those that look for them."""

PRIVATE_KEYS = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END )[\s\S])*+"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
    r"|PuTTY-User-Key-File-\d:(?:(?!Private-MAC:)[\s\S])*+(?:Private-MAC:[ \t]*[0-9a-fA-F]*)?"
)
"""The pattern of private keys in several lines, also of one that is cut off."""

_KEYS = late(ISSUED_KEYS)
_MARKED_INSIDE = (
    ("/", re.compile(r"(?<!\d)\d/\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}(?!\w)")),
    ("-us", re.compile(r"(?<!\w)[0-9a-f]{32}-us\d{1,2}\b")),
    (".atlasv1.", re.compile(r"(?<!\w)\w{14}\.atlasv1\.[\w-]{40,}+")),
    ("Q~", re.compile(r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])")),
    ("NRAL", re.compile(r"(?<![0-9a-f])[0-9a-f]{36}NRAL\b")),
    ("AZDO", re.compile(r"(?<!\w)[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?!\w)")),
    (":APA91b", re.compile(r"(?<![\w-])[\w-]{8,16}:APA91b[\w-]{100,}+")),
    ("oauth:", re.compile(r"(?<![\w-])oauth:[0-9a-z]{28,}+(?![\w-])")),
    ("$production$", re.compile(r"access_token\$production\$\w{10,}\$\w{20,}+")),
    ("AAAAAAAAAAAAAAAAAA", re.compile(r"(?<![\w+/=])A{18,24}[A-Za-z0-9]{4,60}%[23][BFDbfd][\w%]{30,}+")),
    (":AA", re.compile(r"(?<!\d)[0-9]{6,12}:AA[\w-]{30,}+")),
    (".", re.compile(r"[MNO](?<![\w-].)[\w-]{22,27}\.[\w-]{6}\.[\w-]{27,}+")),
)
"""Keys that nothing at their beginning shows, by what is inside."""
_SHORT_KEYS = late(
    r"(?<![A-Za-z0-9_-])(?:(?:sk-|gh[pousr]_|github_pat_|xox[a-z]-)[\w-]{8,}+|eyJ[\w-]{6,}+\.[\w-]{2,}+(?:\.[\w-]*+)*+)"
)
"""The best known ones, shortened as examples and tests have them."""
ORDINARY_WORDS = late(
    r"(?:(?:sk|fc|xai|csk|key)-(?!proj-|ant-|or-|svcacct-)|(?:secret|npm|hf|rnd|aio|jina|napi|tfp)_)[a-z]+(?:[-_][a-z]+)*+"
    r"|gh[pousr]_[a-z]+(?:_[a-z]+)++|xox[a-z]-[a-z]+(?:-[a-z]+)++"
    r"|(?:[A-Za-z]{1,10}[-_.]){1,4}(?:[xX]{6,}+|0{6,}+|[.]{3,}+)"
)
"""What begins as keys do and is none: names of packages and variables, of letters only and in several words, and
examples that have one letter again and again."""


_ISSUED_LENGTH = 30
RUNS = late(r"[^\x00-#%-*:;<>?@\[-^`{-\x7f]{11,}+")
"""Where a key can be: of what they consist (`\\w`, `.$/=+,-`), and as long as the shortest. Most texts have few such
places; trying the patterns at every letter takes ten times as long as finding them."""


def without_keys(text: str, mask: str) -> str:
    """The same text without keys and tokens that show what they are."""
    for inside, pattern in _MARKED_INSIDE:
        if inside in text:
            text = pattern.sub(mask, text)
    return RUNS.sub(lambda run: _without_keys(run[0], mask), text)


_NAMED_ISSUER = late(r"([a-z][a-z0-9]{1,11}(?:[_-][a-z0-9]{1,3}){0,2}[_-])([A-Za-z0-9_-]{32,256}+)(?![\w.+/=-])")
"""The name of somebody who issues keys, and a long key: what most issuers do since scanners look for such names."""
_NO_ISSUERS = ("sha1-", "sha256-", "sha384-", "sha512-", "md5-", "pk_", "pub_", "blob_")
_PURPOSES = (
    *("live_", "live-", "prod_", "prod-", "production_", "production-", "_sk_", "_rw_", "_pat_", "_pw_"),
    *("_secret_", "_token_"),
)
_WITH_PURPOSE = late(
    r"(?<![A-Za-z0-9_])(?:(?:[0-9a-z]{2,12}[_-]){0,3}(?<!pk_)(?:live|prod|production)[_-](?=[a-z_-]{0,40}[0-9A-Z])"
    r"|(?:[0-9a-z]{2,12}_){1,3}(?:sk|rw|pat|pw|secret|token)_)(?=[\w-]{0,40}\d)[\w-]{24,}+"
)
"""Says what it is for."""


def _of_issuer(run: str, mask: str) -> str:
    """Where a run begins, and after its first `=`."""
    for at in (0, run.find("=") + 1):
        match = _NAMED_ISSUER.match(run, at)
        if match is None or match[1].startswith(_NO_ISSUERS) or not is_mixed(match[2]):
            continue
        if match[2].count("_") + match[2].count("-") <= _MOST_SIGNS:
            return f"{run[:at]}{mask}{run[match.end() :]}"
    return run


_MOST_SIGNS = 6
"""In a key that has all of `\\w` and `-`; names of many words have more."""


def _without_keys(run: str, mask: str) -> str:
    run = _KEYS.sub(lambda one: _masked(one, mask), run)
    if len(run) >= _ISSUED_LENGTH and ("_" in run or "-" in run):
        if any(map(run.__contains__, _PURPOSES)):
            run = _WITH_PURPOSE.sub(lambda one: _masked(one, mask), run)
        run = _of_issuer(run, mask)
    if "sk-" in run or "gh" in run or "git" in run or "xox" in run or "eyJ" in run:
        run = _SHORT_KEYS.sub(lambda one: _masked(one, mask), run)
    return run


def _masked(match: re.Match[str], mask: str) -> str:
    return match[0] if ORDINARY_WORDS.fullmatch(match[0]) else mask
