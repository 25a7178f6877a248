"""Where personal data is in a text: mail addresses, and numbers of phones, accounts, cards and of states for citizens.

Numbers that have check digits count only if these are right; others only in a form that nothing else has, or after a
word that says what they are. Pure. Long texts are searched in slices by the caller.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise


def personal_spans_of(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Where personal data is between these two places; some may overlap."""
    spans: list[tuple[int, int]] = []
    if "@" in text:
        spans += _mails(text, start, end)
    spans += [(one.start() - 3, one.end()) for one in _SOCIAL_SECURITY.finditer(text, start, end)]
    spans += [one.span() for one in _PHONE.finditer(text, start, end)]
    spans += [
        (one.start() - (4 if one[0][0] == ")" else 3), one.end()) for one in _AREA_PHONE.finditer(text, start, end)
    ]
    for one in _WITH_CHECK_DIGITS.finditer(text, start, end):
        if _is_national_id(one[0]) if one.lastgroup else _is_account_or_card(one[0]):
            spans.append(one.span())
    lower = text[start:end].lower()
    if len(lower) == end - start and any(map(lower.__contains__, _WORDS)):
        spans += _named_numbers(start, lower)
    return spans


def kind_of_personal_data(value: str) -> str:
    """`mail`, `phone`, `iban`, `card`, `ssn` or `national-id`."""
    if "@" in value:
        return "mail"
    if value.startswith(("+", "(")):
        return "phone"
    if re.fullmatch(r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}", value):
        return "iban"
    if re.fullmatch(r"\d{3}-\d{2}-\d{4}", value):
        return "ssn"
    plain = re.sub(r"[ -]", "", value)
    if plain.isdecimal() and _is_card(plain):
        return "card"
    found = _WITH_CHECK_DIGITS.fullmatch(value)
    return "national-id" if found is not None and found.lastgroup and _is_national_id(value) else "number"


_SOCIAL_SECURITY = re.compile(
    r"-(?<=\d{3}-)(?<![\w-]\d{3}-)(?<!000-)(?<!666-)(?<!9\d\d-)(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"
)
"""From its first hyphen on, which three digits are before."""
_MAIL_HOST = re.compile(r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_MAIL_USER = re.compile(r"[\w.+'-]{1,64}\Z")
_FILES = ("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "avif", "css", "json", "html")
"""What ends the names of files such as `icon@2x.png`, and no host's."""
_PHONE = re.compile(r"\+(?<![\w+]\+)\d{1,3}(?:[ .()/-]{0,2}\d){6,13}(?!\w)")
_AREA_PHONE = re.compile(
    r"[-.)](?:(?<=\([2-9]\d\d\)) ?[2-9]\d\d[-. ]|(?<=[2-9]\d\d-)(?<![\w+.-]\d\d\d-)[2-9]\d\d-"
    r"|(?<=[2-9]\d\d\.)(?<![\w+.-]\d\d\d\.)[2-9]\d\d\.)\d{4}(?![\w-])"
)
"""As they are written in North America; from the sign after the area on."""
_WITH_CHECK_DIGITS = re.compile(
    r"[A-Z0-9](?:(?<=[A-Z])(?<!\w[A-Z])(?:"
    r"(?P<uk>(?<=[A-CEGHJ-PR-TW-Z])[A-CEGHJ-NPR-TW-Z](?: ?\d\d){3} ?[A-D](?![\w-]))"
    r"|(?P<italy>[A-Z]{5}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z](?!\w))|(?P<spain>(?<=[XYZ])\d{7}-?[A-Z](?![\w-]))"
    r"|[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w))"
    r"|(?<=\d)(?<![\w-]\d)(?:(?<!\.\d)(?:(?P<switzerland>(?<=7)56\.\d{4}\.\d{4}\.\d\d(?![\w.]))"
    r"|(?P<brazil>\d\d\.\d{3}\.\d{3}-\d\d(?![\w-]))|(?P<in_spain>\d{7}-?[A-Z](?![\w-])))|(?:[ -]?\d){12,18}(?![\w-])))"
)
"""Patterns begin with a sign or a class of signs, and look at the sign before afterwards: most places cost nothing."""


def _mails(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for host in _MAIL_HOST.finditer(text, start, end):
        user = _MAIL_USER.search(text, max(0, host.start() - 64), host.start())
        if user is None or host[0].rpartition(".")[2].lower() in _FILES:
            continue
        is_account = text.endswith("://", 0, user.start()) or (user[0] == "git" and text.startswith(":", host.end()))
        if not is_account:  # of a server, such as `git@github.com:`
            first = user.start() + len(user[0]) - len(user[0].lstrip("'"))
            yield first, host.end()


def _is_account_or_card(text: str) -> bool:
    plain = re.sub(r"[ -]", "", text)
    if plain.isdecimal():
        return _is_card(plain) or (len(plain) == 15 and _is_of_france(plain))
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1  # ISO 13616


_CARDS = re.compile(
    r"4\d{15}(?:\d{3})?|(?:5[1-5]|2[2-7]|35)\d{14}|3[47]\d{13}|3[0689]\d{12}(?:\d{2})?|(?:5[06-9]|6\d)\d{12,17}"
)
"""How numbers of cards begin, by their length; times in milliseconds and numbers of goods have thirteen digits."""


def _is_card(plain: str) -> bool:
    return _CARDS.fullmatch(plain) is not None and _has_luhn_digit(plain)


def _has_luhn_digit(plain: str) -> bool:
    doubled = [int(one) * (1 + place % 2) for place, one in enumerate(reversed(plain))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0  # ISO/IEC 7812-1


# -- numbers of states


_NO_PREFIXES = ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")
"""That no insurance number of the United Kingdom begins with."""


def _is_national_id(text: str) -> bool:
    """By its check digit, where it has one."""
    if text.startswith("756."):
        digits = [int(one) for one in text if one.isdigit()]
        return sum(one * (1 + 2 * (place % 2)) for place, one in enumerate(digits)) % 10 == 0  # as EAN-13
    if "." in text:
        return _is_of_brazil([int(one) for one in text if one.isdigit()])
    plain = re.sub(r"[ -]", "", text)
    if re.fullmatch(r"[XYZ\d]\d{7}[A-Z]", plain):
        number = int(plain[:8].translate(str.maketrans("XYZ", "012")))
        return plain[8] == "TRWAGMYFPDXBNJZSQVHLCKE"[number % 23]
    return _is_of_italy(plain) if len(plain) == 16 else plain[:2] not in _NO_PREFIXES


def _is_of_france(digits: str) -> bool:
    return digits[0] in "12" and int(digits[13:]) == 97 - int(digits[:13]) % 97


def _is_of_brazil(digits: list[int]) -> bool:
    if all(one == other for one, other in pairwise(digits)):
        return False
    sums = (sum(one * (size + 1 - place) for place, one in enumerate(digits[:size])) for size in (9, 10))
    return [one * 10 % 11 % 10 for one in sums] == digits[9:]


_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)


def _is_of_italy(plain: str) -> bool:
    values = [int(one) if one.isdigit() else ord(one) - ord("A") for one in plain]
    return sum(_ODD[one] if place % 2 == 0 else one for place, one in enumerate(values[:15])) % 26 == values[15]


# -- numbers under a name


_PHONES = frozenset({"phone", "telephone", "telefon", "telefono", "tel", "mobile", "cellphone", "fax", "whatsapp"}) | {
    *("msisdn", "smartphone", "landline", "handy", "handynummer", "telefonnummer", "phonenumber", "mobilenumber"),
}
_IDS = frozenset({"ssn", "bsn", "pesel", "aadhaar", "personnummer", "cpf", "nino", "curp", "passport", "iban"}) | {
    *("steuernummer", "steuerid", "ahv", "svnr", "taxid", "nationalid", "cardnumber", "creditcard", "accountnumber"),
}
_ID_PAIRS = {(kind, last) for kind in ("tax", "national", "identity", "citizen") for last in ("id", "number", "no")} | {
    *(("card", "number"), ("credit", "card"), ("debit", "card"), ("account", "number"), ("bank", "account")),
    *(("security", "number"), ("insurance", "number"), ("identity", "card"), ("license", "number")),
}
_NUMBERS = frozenset(
    {"number", "no", "nr", "num", "nummer", "home", "work", "office", "private", "primary", "secondary"}
)
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@lru_cache(maxsize=4096)
def names_a_person(name: str) -> bool:
    """Whether a number under this name is that of a phone, an account, a card or a citizen: `phone`, `taxId`.

    `phone_id` and `mobile_count` are about something else.
    """
    words = [word.lower() for word in _NAME_WORD.findall(name[:80])]
    while len(words) > 1 and words[-1] in _NUMBERS and words[-2] in _PHONES | _IDS:
        words.pop()
    if not words:
        return False
    last = words[-1].removesuffix("s") if words[-1].endswith("s") and len(words[-1]) > 4 else words[-1]
    return last in _PHONES or last in _IDS or (len(words) > 1 and (words[-2], last) in _ID_PAIRS)


# -- numbers after a word for them


_PHONE_WORDS = ("phone", "telefon", "tel", "mobile", "mobil", "cell", "fax", "handy", "whatsapp", "me at", "us at")
_ID_WORDS = (
    *("ssn", "social security", "steuer", "tax id", "tax_id", "national id", "national_id", "passport", "pesel", "bsn"),
    *("aadhaar", "personnummer", "nhs", "identity card", "reisepass", "ausweis", "taxpayer", "insurance number"),
)
_WORDS = (*_PHONE_WORDS, *_ID_WORDS)
_BETWEEN = r"[^\w+(\n]{1,4}(?:(?:is|number|no|nr|id)\b[^\w+(\n]{1,4}){0,2}"
_NAMED_PHONE = re.compile(
    rf"\b(?:{'|'.join(_PHONE_WORDS)})(?:[_-]?(?:number|nummer|no|nr))?{_BETWEEN}"
    r"(\(?\d(?:[ .()/-]{0,2}\d){6,13})(?!\w)"
)
_NAMED_ID = re.compile(
    rf"\b(?:{'|'.join(_ID_WORDS)})(?:[_-]?(?:number|nummer|identifikationsnummer|no|nr|id))?{_BETWEEN}"
    r"((?=(?:[ .a-z-]{0,3}\d){5})[a-z0-9](?:[ ./-]?[a-z0-9]){5,17})(?!\w)"
)
_DATE = re.compile(r"\d{4}[-./]\d\d?[-./]\d\d?|\d\d?[-./]\d\d?[-./]\d{4}|\d+\.\d+\.\d+\.\d+")


def _named_numbers(start: int, lower: str) -> Iterator[tuple[int, int]]:
    for pattern in (_NAMED_PHONE, _NAMED_ID):
        for one in pattern.finditer(lower):
            if not _DATE.match(one[1]):
                yield start + one.start(1), start + one.end(1)
