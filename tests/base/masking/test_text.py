"""What counts as a secret in a text, and what does not (docs/explanation/security.md, Secrets)."""

import re
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcpbridge.base.masking.issued_keys import ISSUED_KEYS, ORDINARY_WORDS
from mcpbridge.base.masking.known_values import Redactor, Redactors, known_only
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.masking.names import IN_SECRET_NAMES, secret_of
from mcpbridge.base.masking.text import PASSES, without_secrets
from mcpbridge.base.masking.values import without_secrets_in
from support.secret_texts import ISSUED, ORDINARY, SECRETS, WHOLE, WORD


@pytest.mark.parametrize(("text", "secret"), (SECRETS | WHOLE).values(), ids=SECRETS | WHOLE)
def test_a_secret_is_masked(text: str, secret: str) -> None:
    masked = without_secrets(text)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("issued", ISSUED.values(), ids=ISSUED)
@pytest.mark.parametrize("around", ["{}", '"{}"', "({})", "x={}", "/{}/", "a\n{}\nb", "{},", "'{}'"])
def test_a_key_that_shows_its_issuer_is_masked_wherever_it_stands(issued: str, around: str) -> None:
    assert issued not in without_secrets(around.format(issued))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: token abc, then", f"Authorization: token {MASK}, then"),
        ("a=1 API_KEY=x9 b=2", f"a=1 API_KEY={MASK} b=2"),
        (f"token {WORD} has expired.", f"token {MASK} has expired."),
        (f"Invalid API key {WORD}: see the manual", f"Invalid API key {MASK}: see the manual"),
        ("connect to postgres://ann:p@ss@db:5432/app failed", f"connect to postgres://{MASK}@db:5432/app failed"),
        ("curl -u ann:hunter2 https://h/x", f"curl -u ann:{MASK} https://h/x"),
        ("--password 'hunter two' --user ann", f"--password '{MASK}' --user ann"),
        (f"GET https://h/v1?q=cats&key={WORD} 403", f"GET https://h/v1?q=cats&key={MASK} 403"),
        ("{Host:db Password:hunter2 Port:5432}", f"{{Host:db Password:{MASK} Port:5432}}"),
    ],
    ids=range(9),
)
def test_the_words_around_a_secret_stay(text: str, masked: str) -> None:
    assert without_secrets(text) == masked


PIECES = [
    *("password", "token", "api_key", "Cookie", "Bearer ", "=", ": ", ":", '"', "'", "\\", '\\"', "{", "}", "[", "]"),
    *(",", " ", "\n", "https://", "@", "?", "&", "sk-abcdef123456", "-----BEGIN PRIVATE KEY-----", MASK, "\x1b[0m"),
    *("--token ", "Authorization: ", "Digest ", "name", "value", "hunter2", "12345678", "eyJ", ".", "-", "<password>"),
    *("</password>", "$", "/", "x", "secret", "%3F", "%3D", "postgres://", " -u ", "ENV ", " is ", "('", "', '", "')"),
    *("redacted", "[", "Some(", "key", "API ", WORD, "mysql -p", ":thin:", "a/b", "\x1b", "[", "31m"),
]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=16).map("".join)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts, st.sampled_from([[], ["hunter2"], ["redacted"], ["hunter2", "secret", "token: "]]))
@example("Authorization: " * 5 + "password", [])
@example("Authorization: " * 50 + "password", [])
@example("password=" * 40 + "hunter2", [])
@example("\x1b[\x1b[0m0m" * 5 + "token=hunter2", [])
def test_masking_twice_is_masking_once(text: str, known: list[str]) -> None:
    redact = Redactor(known)
    once = redact(text)
    assert redact(once) == once
    assert Redactors(redact)(once) == once


def test_a_text_that_was_made_to_need_many_passes_is_masked_whole() -> None:
    assert without_secrets("Authorization: " * (4 * PASSES) + "password") in (
        MASK,
        without_secrets(without_secrets("Authorization: " * (4 * PASSES) + "password")),
    )


HOSTILE = [
    *("eyJ-", "eyJaaaaaaaa.", "token:", "token: ", 'token="', "a-", "Cookie:", "://a:", "<password>", "\\", "sk-"),
    *("password=\\", "?token=", "Bearer ", '{"a":', "password='\"", "-----BEGIN PRIVATE KEY-----", "password: $"),
    *(
        "--token a ",
        "--token-",
        "mysql://u:",
        "mysql -p",
        "name: a value",
        "x.office.com/",
        "-u a:",
        "\nENV ",
        "token ",
    ),
    *(
        "token ",
        "api key ",
        "Authorization: Digest ",
        "('a', '",
        "%3Fa",
        "\x1b[36m",
        "$2b$",
        "0123456789:AA",
        ".atlasv1.",
    ),
    *("PuTTY-User-Key-File-2:", ":thin:a/", "M" * 24 + ".", "Set-Cookie: a", "token: b'", "postgres://:", '--a="', "`"),
    *("token: |\n  ", "token: |\\n a", "| a ", "| token | a1 ", "machine a login b password ", "Authorization: Aa "),
    *("Sec-WebSocket-Protocol: a,", '"kty":"d":"', "docker login ", "1/12345678901:", "sl.a", "v1.0-aa", "A_KEY=aA1"),
    *(
        "a_live_",
        "ab_",
        "AAAAAAAAAAAAAAAAAAAA%2B",
        "passwort lautet ",
        "pass ",
        "mnemonic: abc ",
        "a:5432:c:d\n",
        "oauth:",
    ),
    *(
        "tokens: [a, ",
        "secrets:\n - ",
        "secrets: - a\n - ",
        "<a key='token'>b",
        "<key>token</key><string>",
        "tokens=['a','",
    ),
    *("config set ", "?a=%3Fa=", 'password: """', "pass-", "token `", '<token a="', "password: {", "**Token**: "),
]


@pytest.mark.parametrize(
    ("start", "unit"),
    [*(("", unit) for unit in HOSTILE), *(("password", unit) for unit in (" ", "\t", "-", "=", " for")), ("eyJ", "a.")],
)
def test_a_text_four_times_as_long_takes_about_four_times_as_long(start: str, unit: str) -> None:
    """Servers write what is masked. Processor time is compared, since steps of `re` cannot be counted."""

    def cost(size: int) -> float:
        text, best = start + unit * (size // len(unit)), float("inf")
        for _ in range(3):
            began = time.process_time()
            without_secrets(text)
            best = min(best, time.process_time() - began)
        return best

    short = cost(20_000)
    assert cost(80_000) < 10 * short + 0.02  # a quadratic search takes sixteen times as long


def test_values_are_masked_by_their_names() -> None:
    """An error's `data` is JSON: the name of a member says what its value is."""
    data = {
        "password": "x",
        "headers": [{"name": "X-Api-Key", "value": "abc"}, {"name": "Accept", "value": "abc"}],
        "argv": ["run", "--token", "abc", "--port", "80"],
        "usage": {"total_tokens": 12345},
        "token_type": "bearer",
        "auth": {"pin": 1234, "expires_in": 3600},
        "text": f"token={WORD}",
        "fine": [1.5, None, True, "words"],
    }
    masked = without_secrets_in(data, Redactor())
    assert masked == data | {
        "password": MASK,
        "headers": [{"name": "X-Api-Key", "value": MASK}, {"name": "Accept", "value": "abc"}],
        "argv": ["run", "--token", MASK, "--port", "80"],
        "auth": {"pin": MASK, "expires_in": 3600},
        "text": f"token={MASK}",
    }
    assert without_secrets_in(masked, Redactor()) == masked
    ordinary = {"usage": {"total_tokens": 12345}, "fine": [1.5, None, True, "words"]}
    assert without_secrets_in(ordinary, Redactor()) is ordinary


def test_what_is_nested_too_deep_is_masked_as_a_whole() -> None:
    value: object = "fine"
    for _ in range(100):
        value = [value]
    assert MASK in str(without_secrets_in(value, Redactor()))


def test_in_data_only_the_known_values_are_masked() -> None:
    """Nothing of a result that succeeded is lost: a key in it may be what was asked for."""
    redact = Redactors(Redactor(["configured-value"]), Redactor(["another-value"]), lambda text: text.upper())
    text = f"token={WORD} configured-value another-value"
    assert known_only(redact)(text) == f"TOKEN={WORD.upper()} [REDACTED] [REDACTED]"
    assert known_only(Redactor(["configured-value"]))(f"token={WORD}") == f"token={WORD}"
    assert not re.search(WORD, Redactor()(f"token={WORD}"))


@given(
    st.lists(
        st.sampled_from(
            [*IN_SECRET_NAMES, "api", "id", "next", "Key", "SESSION", "s", "_", "-", "e", "Word", "w\u212a"]
        ),
        max_size=5,
    )
)
def test_a_text_that_names_no_secret_is_known_by_parts_of_words(words: list[str]) -> None:
    """Only texts with such a part are searched for names, which takes most of the time."""
    name = "".join(words)
    if secret_of(name) is not None:
        assert any(part in name.lower() for part in IN_SECRET_NAMES)


@given(st.lists(st.sampled_from([*PIECES, *ISSUED.values()]), max_size=8))
def test_no_key_that_shows_its_issuer_is_left_beside_others(pieces: list[str]) -> None:
    """Only places that are long enough for a key are searched for one."""
    masked = without_secrets("".join(pieces))
    for key in re.finditer(ISSUED_KEYS, masked):
        assert ORDINARY_WORDS.fullmatch(key[0])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot read ${secret:github} in env.TOKEN", "cannot read ${secret:github} in env.TOKEN"),
        ("Authorization: Bearer ${secret:team/github.1}", "Authorization: Bearer ${secret:team/github.1}"),
        ("${secret: hunter22}", "${secret: [redacted]}"),
        ("{secret: hunter22}", "{secret: [redacted]}"),
        ("${API_KEY:-hunter2222}", "${API_KEY:[redacted]}"),
    ],
)
def test_the_name_of_a_stored_secret_is_none(text: str, shown: str) -> None:
    """`${secret:NAME}` of a configuration says where a secret is (issue 22)."""
    assert without_secrets(text) == shown
