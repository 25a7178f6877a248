"""What placeholders say of the secrets that they stand for (issue 22)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.masking.kinds import kind_of_secret
from mcpbridge.pipeline.personal_data import kind_of_personal_data


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ghp_" + "a1B2" * 9, "github-token"),
        ("github_pat_" + "a1B2" * 9, "github-token"),
        ("glpat-" + "a1B2" * 5, "gitlab-token"),
        ("xoxb-123456789012-" + "a1B2" * 6, "slack-token"),
        ("sk_live_" + "a1B2" * 6, "stripe-key"),
        ("sk-ant-api03-" + "a1B2" * 9, "anthropic-key"),
        ("sk-proj-" + "a1B2" * 9, "openai-key"),
        ("AKIA" + "A1B2" * 4, "aws-key"),
        ("AIza" + "a1B2" * 9, "google-key"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "jwt"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII", "private-key"),
        ("$2b$12$" + "a1B2" * 13, "password-hash"),
        ("hvs." + "a1B2" * 9, "vault-token"),
        ("correct horse battery", ""),
        ("sk-", ""),
        ("", ""),
    ],
)
def test_the_kind_of_a_secret(value: str, kind: str) -> None:
    assert kind_of_secret(value) == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ada@example.org", "mail"),
        ("+49 30 1234567", "phone"),
        ("DE89 3704 0044 0532 0130 00", "iban"),
        ("4111 1111 1111 1111", "card"),
        ("123-45-6789", "ssn"),
    ],
)
def test_the_kind_of_personal_data(value: str, kind: str) -> None:
    assert kind_of_personal_data(value) == kind


@given(st.text())
def test_a_kind_fits_into_a_placeholder_and_tells_nothing_of_the_rest_of_the_value(value: str) -> None:
    kind = kind_of_secret(value)
    assert kind == "" or (kind.replace("-", "").isalpha() and kind.islower() and len(kind) <= 24)
