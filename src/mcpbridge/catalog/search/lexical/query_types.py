"""Things in a query that are known by their shape: an address, a date, an amount, a line of SQL.

`8.8.8.8` shares no word with a tool that looks up IP addresses; what it is does. Each kind has a pattern and the words
that tools for such things use. Patterns are linear, and are tried only where a sign that they need is there.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from mcpbridge.base.late_pattern import late
from mcpbridge.catalog.search.weights import FAIR, STRONG, WEAK

_LONGEST = 4000
"""Characters of a query that are looked at."""


class _Kind(NamedTuple):
    name: str
    needs: str
    """A text that is in every such thing; `0` stands for any digit, `.w` for a point before a letter or digit."""
    pattern: re.Pattern[str]
    weight: float
    words: tuple[str, ...]
    one_of: tuple[str, ...] = ()
    """Texts in lower case of which one is in every such thing."""
    length: int = 0
    """Characters without a blank that every such thing has."""


def _kind(
    name: str, needs: str, pattern: str, weight: float, words: str, *, one_of: str = "", length: int = 0
) -> _Kind:
    return _Kind(name, needs, late(pattern), weight, tuple(words.split()), tuple(one_of.split()), length)


_HOSTS = (
    ("youtu", "video youtube transcript"),
    ("github.com", "github repository"),
    ("gitlab", "gitlab repository"),
    ("arxiv.org", "arxiv paper"),
    ("reddit.com", "reddit post"),
    ("twitter.com", "tweet twitter"),
    ("x.com/", "tweet twitter"),
    ("linkedin.com", "linkedin profile"),
    ("instagram.com", "instagram post"),
    ("tiktok.com", "tiktok video"),
    ("wikipedia.org", "wikipedia article"),
    ("figma.com", "figma design file"),
    ("notion.", "notion page"),
    ("docs.google", "google document"),
    ("spotify.com", "spotify track"),
    ("amazon.", "amazon product"),
    (".pdf", "pdf document"),
    ("rss", "rss feed"),
    (".xml", "xml feed sitemap"),
    (".git", "git repository clone"),
)
"""What an address of a well-known host leads to."""

_CODES = "usd eur gbp jpy cny inr chf cad aud nzd sek nok dkk pln huf czk brl mxn krw sgd hkd thb zar aed ils try rub"
_ANY_CODE = _CODES.replace(" ", "|")
_TOP_DOMAINS = "com|org|net|io|dev|ai|app|co|edu|gov|info|biz|xyz|me|tv|us|uk|de|fr|eu|nl|es|ch|jp|cn|ru|in|br|ca|au"
_STATEMENTS = ("select", "insert", "update", "delete", "create", "alter", "drop")
_UNITS = (
    "km|kilomet(?:er|re)s?|mi(?:les?)?|m|cm|mm|ft|feet|inch(?:es)?|yards?|kg|kilos?|g|grams?|lbs?|pounds?|oz|ounces?"
    r"|l|lit(?:er|re)s?|ml|gal(?:lons?)?|cups?|mph|kmh|km/h|psi|kwh?|°\s?[cf]|[cf]|fahrenheit|celsius|acres?|hectares?"
)

_KINDS = (
    _kind("url", "://", r"\bhttps?://\S", FAIR, "url web page"),
    _kind("storage", "://", r"\b(?:s3|gs|abfss?)://\w", STRONG, "bucket object storage"),
    _kind(
        "database address",
        "://",
        r"\b(?:postgres(?:ql)?|mysql|mongodb(?:\+srv)?|redis|sqlite)://",
        STRONG,
        "database connection",
    ),
    _kind("e-mail", "@", r"\b[\w.+-]{1,64}@[\w-]{1,63}\.\w", WEAK, "email address contact"),
    _kind("handle", "@", r"(?<![\w.@/])@[A-Za-z]\w{1,30}\b(?![./])", WEAK, "user profile handle"),
    _kind(
        "ip",
        ".w",
        r"\d(?<![\d.]\d)\d{0,2}\.(?:\d{1,3}\.){2}\d{1,3}(?!\.?\d)",
        STRONG,
        "ip address network host lookup geolocation whois",
    ),
    _kind("ip", ":", r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}:?[0-9a-f]{1,4}\b", STRONG, "ip address network"),
    _kind("mac", ":", r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", FAIR, "device network mac"),
    _kind(
        "domain",
        ".w",
        rf"(?i)(?<![\w.@/-])(?:[a-z0-9-]{{1,63}}\.){{1,5}}(?:{_TOP_DOMAINS})\b(?![.(]\w)",
        FAIR,
        "domain website url dns",
    ),
    _kind(
        "chain address", "0x", r"\b0x[0-9a-fA-F]{40}\b", STRONG, "address wallet account contract ethereum blockchain"
    ),
    _kind("chain transaction", "0x", r"\b0x[0-9a-fA-F]{64}\b", STRONG, "transaction hash blockchain receipt"),
    _kind(
        "chain address",
        "0",
        r"\b(?:bc1[0-9a-z]{25,60}|(?=[A-Za-z]*\d)[1-9A-HJ-NP-Za-km-z]{42,44})\b",
        FAIR,
        "address wallet account token",
        length=28,
    ),
    _kind(
        "hash",
        "0",
        r"(?<![0-9a-zA-Z])(?=[0-9a-f]*[a-f])(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})\b",
        FAIR,
        "hash file commit malware",
        length=32,
    ),
    _kind("uuid", "-", r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", WEAK, "id uuid"),
    _kind("isbn", "97", r"\b97[89](?:[- ]?\d){10}\b", STRONG, "isbn book"),
    _kind("doi", "10.", r"\b10\.\d{4,9}/\S", STRONG, "doi paper article publication citation"),
    _kind("arxiv", ".w", r"\d(?<![\d.$]\d)\d{3}\.\d{4,5}(?:v\d)?(?![\d.])", FAIR, "arxiv paper"),
    _kind("pmid", "0", r"(?i)\bpmid:?\s?\d{4,9}\b|\bpmc\d{4,9}\b", STRONG, "pubmed article paper", one_of="pmid pmc"),
    _kind("trial", "nct", r"(?i)\bnct\d{8}\b", STRONG, "clinical trial study"),
    _kind("cve", "cve", r"(?i)\bcve-\d{4}-\d{3,7}\b", STRONG, "cve vulnerability security"),
    _kind("variant", "rs", r"(?i)\brs\d{3,10}\b", FAIR, "variant snp gene"),
    _kind("cas", "-", r"(?<![\d-])\d{2,7}-\d{2}-\d(?![\d-])", FAIR, "chemical compound"),
    _kind("protein", "0", r"[OPQ](?<!\w.)\d[A-Z0-9]{3}\d\b", FAIR, "protein uniprot"),
    _kind("vin", "0", r"\b(?=[A-Z]*\d)(?=\d*[A-Z])[A-HJ-NPR-Z0-9]{11}\d{6}\b", STRONG, "vin vehicle car", length=17),
    _kind("iban", "0", r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b", FAIR, "iban bank account"),
    _kind("parcel", "1Z", r"\b1Z[0-9A-Z]{16}\b", STRONG, "tracking shipment package"),
    _kind("ticker", "$", r"(?<!\w)\$[A-Z]{1,5}\b(?![(.])", FAIR, "stock ticker price token"),
    _kind("sum", "+", r"\d\s*\+\s*\(?\d", STRONG, "calculate add addition sum math"),
    _kind("difference", "-", r"\d\s+[-−]\s+\(?\d", FAIR, "calculate subtract subtraction math"),
    _kind(
        "product",
        "0",
        r"\d\s*[*×]\s*\(?\d|\d\s+x\s+\d",
        STRONG,
        "calculate multiply multiplication math",
        one_of="* × x",
    ),
    _kind("quotient", "0", r"\d\s+/\s+\(?\d|\d\s*÷\s*\d", STRONG, "calculate divide division math", one_of="/ ÷"),
    _kind(
        "arithmetic",
        "0",
        r"(?i)\d\s+(?:times|plus|minus|divided by|multiplied by|mod(?:ulo)?|to the power of)\s+\(?-?\d",
        STRONG,
        "calculate math number",
        one_of="times plus minus by mod power",
    ),
    _kind("power", "^", r"[\dx)]\s?\^\s?\(?-?\d", STRONG, "calculate math expression power equation"),
    _kind("equation", "=", r"\b[xyz]\s*=\s*-?\d|[\dxyz)]\s*=\s*(?:0|y)\b", FAIR, "equation solve math"),
    _kind("percent", "%", r"\d\s?%\s+of\b", FAIR, "percentage calculate"),
    _kind("money", "0", r"[$€£¥₹₩₽]\s?\d|\d\s?[€£₽]", WEAK, "amount money price", one_of="$ € £ ¥ ₹ ₩ ₽"),
    _kind(
        "currency",
        "0",
        rf"(?i)\d(?<![\d.,]\d)[\d.,]{{0,12}}\s?k?\s?(?:{_ANY_CODE})\b",
        FAIR,
        "currency exchange convert amount",
        one_of=_CODES,
    ),
    _kind(
        "currencies",
        "0",
        rf"(?i)(?:\b(?:{_ANY_CODE})\s*(?:to|in|into|/|->|and)\s*(?:{_ANY_CODE})\b)",
        STRONG,
        "currency exchange rate convert",
        one_of=_CODES,
    ),
    _kind(
        "quantity",
        "0",
        rf"(?i)\d(?<![\d.,]\d)[\d.,]{{0,12}}\s?(?:{_UNITS})\s+(?:to|in|into|as)\s+[a-z]",
        FAIR,
        "unit convert conversion",
    ),
    _kind("date", "-", r"\b(?:19|20)\d\d-\d\d-\d\d\b", WEAK, "date"),
    _kind("time", "0", r"\b\d{1,2}(?::\d\d)?\s?[ap]\.?m\b|\b[0-2]?\d:[0-5]\d\b", WEAK, "time"),
    _kind(
        "place",
        ",",
        r"-?\d{1,3}\.\d{2,}°?\s?[NS]?,\s*-?\d{1,3}\.\d{2,}",
        STRONG,
        "coordinates location latitude longitude map",
    ),
    _kind("phone", "+", r"(?<!\d)\+\d[\d ().-]{7,20}\d", FAIR, "phone number call sms"),
    _kind("path", "/", r"(?<![\w:/.*])(?:~|\.{1,2})?/[\w.-]+", FAIR, "file path"),
    _kind("path", "\\", r"\b[A-Za-z]:\\\w", FAIR, "file path windows"),
    _kind("variable", "_", r"\b[A-Z][A-Z0-9]{1,40}_[A-Z0-9_]{1,60}\b", FAIR, "environment variable setting"),
    _kind("cron", "*", r"(?<!\S)(?:[\d*/,-]{1,12}\s+){4}[\d*/,-]{1,12}(?!\S)", STRONG, "cron schedule job"),
    _kind("colour", "#", r"#(?=[0-9a-fA-F]*\d|[a-fA-F]{6}\b)(?:[0-9a-fA-F]{3}){1,2}\b", FAIR, "color"),
    _kind("number of an issue", "#", r"(?<!\w)#\d{1,6}\b", WEAK, "issue pull request"),
    _kind(
        "key of an issue",
        "-",
        r"\b(?!UTF|SHA|ISO|COVID|GPT|RFC|CVE|AES|MD|BERT|SARS|USB|ERC)[A-Z][A-Z0-9]{1,9}-\d{1,6}\b",
        FAIR,
        "issue ticket",
    ),
    _kind("flight", "0", r"[A-Z](?<!\w.)[A-Z](?<!RS|ID|CO|PM|MP)\s?\d{3,4}\b", WEAK, "flight"),
    _kind("version", ".w", r"(?<![\w.])v?\d+\.\d+\.\d+(?![\w.])", WEAK, "version release"),
    _kind(
        "sql",
        " ",
        r"(?is)\bselect\b.{1,400}\bfrom\b\s+\w|\binsert\s+into\b|\bupdate\s+\S{1,80}\s+set\b|\bdelete\s+from\s+\w|\b(?:create|alter|drop)\s+table\b",
        STRONG,
        "sql query database execute table",
        one_of=" ".join(_STATEMENTS),
    ),
    _kind("kql", "|", r"\|\s*(?:summarize|where|project|extend|take|stats|eval)\b", STRONG, "kql query log execute"),
    _kind(
        "promql",
        "[",
        r"\b(?:rate|irate|increase|sum|avg)\s?\([^()]{0,200}\[\d+[smhd]\]",
        STRONG,
        "prometheus query metric",
    ),
    _kind("cypher", "(", r"(?i)\bmatch\s*\(\s*\w{0,30}\s*[:)]", STRONG, "cypher query graph"),
    _kind("regex", "\\", r"\\[dwsb](?:[+*{]|\b)|\[[a-z0-9]-[a-z0-9]\w*\][+*{]", FAIR, "regex pattern match"),
    _kind("jsonpath", "$", r"\$\.\w|\$\[", STRONG, "json jsonpath query"),
    _kind("json", "{", r"\{\s*[\"']?\w+[\"']?\s*:", WEAK, "json data object"),
    _kind(
        "code",
        "(",
        r"\b(?:def|function|print|console\.log|lambda|import|class|fn|printf|System\.out\.println)\b\s?[\w.:]{0,40}\s?\(",
        FAIR,
        "code run execute",
    ),
)


def kinds_in(text: str) -> list[str]:
    """The kinds of things that a text has, in a fixed order, each once; only its beginning is looked at."""
    return list(dict.fromkeys(kind.name for kind in _kinds_in(text[:_LONGEST])))


def words_of_kinds(text: str) -> Mapping[str, float]:
    """Words of tools for the things that a text has, with how much they count: at most 1, as its own words."""
    shown = text[:_LONGEST]
    words: dict[str, float] = {}
    for kind in _kinds_in(shown):
        for word in kind.words:
            words[word] = max(words.get(word, 0.0), kind.weight)
        if kind.name == "url":
            for host, leads_to in _HOSTS:
                if host in shown:
                    for word in leads_to.split():
                        words[word] = max(words.get(word, 0.0), FAIR)
    return words


_SIGNS = late(r"[^\w\s,.?!'’;-]|\d|[A-Z]_[A-Z]|\S\.\w|[A-Z]-\d|\w-\d")
_DIGIT = late(r"\d")
_POINT = late(r"\.\w")


def _kinds_in(text: str) -> list[_Kind]:
    lower = text.lower()
    if not _SIGNS.search(text) and not any(word in lower for word in _STATEMENTS):
        return []
    signs = {"0": _DIGIT.search(text) is not None, ".w": _POINT.search(text) is not None}
    longest = max(map(len, text.split()), default=0)
    return [
        kind
        for kind in _KINDS
        if (is_there if (is_there := signs.get(kind.needs)) is not None else kind.needs in text or kind.needs in lower)
        and kind.length <= longest
        and (not kind.one_of or any(one in lower for one in kind.one_of))
        and kind.pattern.search(text)
    ]
