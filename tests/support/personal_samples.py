"""Texts with personal data, and texts that only look so. No number belongs to a person: check digits are worked out."""

from collections.abc import Iterator

from support.benign_samples import BenignSample
from support.secret_samples import SecretSample


def personal_samples() -> list[SecretSample]:
    """Mail addresses, phone numbers, bank accounts, cards, and numbers of states for their citizens."""
    return [SecretSample(kind, text.replace("@@", value), value) for kind, value, text in _personal()]


def _personal() -> Iterator[tuple[str, str, str]]:
    for value, text in (
        ("ada.lovelace@mail-host.org", "Write to @@ for details."),
        ("b.ernoulli+news@uni-basel.ch", "From: Bernoulli <@@>"),
        ("x_y-z@sub.domain.co.uk", '{"email": "@@"}'),
        ("Grace@navy.mil", "@@; cc the rest"),
        ("o'brien@pub.ie", "mailto:@@"),
        ("jose.garcia@correo.es", "name,mail\nJosé,@@\n"),
        ("1999@numbers.com", "contact=@@&x=1"),
        ("lee@firma.technology", "(@@)"),
    ):
        yield "mail", value, text
    for value, text in (
        ("+49 30 901820", "Call @@ before noon."),
        ("+1 (415) 555-2671", "phone: @@"),
        ("+1-202-456-1111", '{"phone": "@@"}'),
        ("+442079460958", "tel:@@"),
        ("+33 1 70 18 99 00", "Tél. @@"),
        ("+41 44 668 18 00", "@@ (office)"),
        ("(415) 555-2671", "Phone: @@"),
        ("415-555-2671", "call me at @@ tomorrow"),
        ("030 901820-17", "Telefon: @@"),
        ("+91 98765 43210", "mobile @@"),
        ("+86 138 1234 5678", "@@"),
        ("4915112345678", '{"phone": @@}'),
        ("4915112345678", '{"name": "Ada", "mobile": "@@"}'),
        ("4915112345678", '{"whatsapp": @@, "count": 3}'),
    ):
        yield "phone", value, text
    for value, text in (
        ("DE89370400440532013000", "IBAN @@"),
        ("DE89 3704 0044 0532 0130 00", "pay to @@ please"),
        ("GB29 NWBK 6016 1331 9268 19", "@@"),
        ("FR1420041010050500013M02606", '{"iban": "@@"}'),
        ("CH93 0076 2011 6238 5295 7", "account: @@."),
        ("NL91ABNA0417164300", "a,b\n1,@@\n"),
        ("NO9386011117947", "to @@"),
    ):
        yield "iban", value, text
    for value, text in (
        ("4111 1111 1111 1111", "card @@"),
        ("4012888888881881", "paid with @@ on Monday"),
        ("5555-5555-5555-4444", '{"pan": "@@"}'),
        ("378282246310005", "amex @@"),
        ("6011111111111117", "@@"),
        ("3530111333300000", "JCB: @@"),
        ("2223 0031 2200 3222", "number @@ valid to 12/29"),
    ):
        yield "card", value, text
    for value, text in (
        ("219-09-9999", "SSN @@"),
        ("219-09-9998", '{"ssn": "@@"}'),
        ("AB 12 34 56 C", "NI number: @@"),
        ("756.9217.0769.85", "AHV @@"),
        ("1 85 05 78 006 084 91", "NIR: @@"),
        ("12345678Z", "DNI @@"),
        ("RSSMRA85T10A562S", "codice fiscale @@"),
        ("529.982.247-25", "CPF @@"),
        ("86095742719", "Steuer-ID: @@"),
    ):
        yield "national-id", value, text


def impersonal_samples() -> list[BenignSample]:
    """What mail addresses, phone numbers, accounts and cards are mistaken for."""
    return [BenignSample("impersonal", text) for text in _IMPERSONAL]


_IMPERSONAL = (
    "git@github.com:acme/site.git",
    "npm install @types/node@22.1.0",
    "uses: actions/setup-node@v4",
    "image@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "@dataclass @property @app.route('/x')",
    "icon@2x.png",
    "postgres://app@db/shop",
    "ssh root@10.0.0.7",
    "2026-03-04 10:22:11",
    "2026-03-04T10:22:11+01:00",
    "10.20.30.40 and 192.168.100.200",
    "version 4.15.0-20260304",
    "ISBN 978-3-16-148410-0",
    "order 4006381333931",
    "card 4111 1111 1111 1112",
    "total 1234567890123456 bytes",
    "1772619731123456",
    "trace 4bf92f3577b34da6a3ce929d0e0e4736",
    "5b1f3a0e-9c7d-4e3b-8f60-2d4c5a6b7e8f",
    "invoice 2026-000-417",
    "DE89370400440532013001",
    "GB00 TEST 0000 0000 0000 00",
    "pages 100-200, lines 1200-1345",
    "1,234,567.89 EUR",
    "3.14159265358979",
    "lat 52.520008, lon 13.404954",
    "0123456789",
    "000-00-0000",
    "999-99-9999",
    "666-12-3456",
    "port 8080, pid 48213, uid 1000",
    "range +10 -20 +30",
    "x = 415 - 555 - 2671 * 2",
    "sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "part no. 8471-AB-3302-KX",
    "build 20260304.1 of 10.0.19045.3803",
    "diff --git a/x b/x\n@@ -12,7 +12,9 @@ def f():",
    "timestamp 1772619731",
    "phone model SM-G998B/DS",
    "ABCDEF12G34H567I is a serial",
    "row 1 2 3 4 5 6 7 8 9 10 11 12 13",
    "0.5 0.25 0.125 0.0625 0.03125",
    "5555-5555-5555-4445",
    "tel: none",
    '{"count": 4915112345678}',
    '{"at": 1772619731120, "ean": "4006381333931", "ms": 1772619731112}',
    '{"phone_id": 4915112345678, "user": 4915112345678}',
    '{"telemetry": 4915112345678}',
    '{"mobile_sessions": 4915112345678}',
    "mail: n/a",
    "8.8.8.8:53 -> 10.1.2.3:51820",
)
