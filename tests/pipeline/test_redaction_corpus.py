"""How much redaction finds, and how often it is wrong (issue 22): figures over texts of our own making.

A third was held out while the detectors were improved. What they did there at that time (95.0 % of the secrets caught,
3.1 % of the other texts wrongly replaced) is what to expect of texts that nobody had seen.
"""

import zlib
from collections import Counter
from collections.abc import Sequence

import pytest

from mcpbridge.pipeline.redaction import redacted
from support.benign_samples import BenignSample, benign_samples
from support.personal_samples import impersonal_samples, personal_samples
from support.provider_samples import provider_look_alikes, provider_secrets
from support.secret_samples import SecretSample, secret_samples

Kinds = tuple[str, ...]
SECRETS = ("secrets",), secret_samples(), benign_samples()
PERSONAL = ("pii",), personal_samples(), impersonal_samples()


def is_held_out(sample: SecretSample | BenignSample) -> bool:
    """Secrets by their format, all others by their text."""
    name = sample.format if sample in SECRETS[1] else sample.text
    return zlib.crc32(name.encode()) % 3 == 0


def is_caught(sample: SecretSample, kinds: Kinds) -> bool:
    """Nothing of the secret is left; of one in several lines, no line is."""
    shown = redacted(sample.text, kinds, lambda kind, value: f"‹{kind}›")
    return not any(line in shown for line in sample.secret.replace("\\n", "\n").split("\n") if line)


def is_left_alone(sample: BenignSample, kinds: Kinds) -> bool:
    """Nothing of it is replaced."""
    return redacted(sample.text, kinds, lambda kind, value: f"‹{kind}›") == sample.text


@pytest.mark.parametrize("part", ["seen", "held out"])
@pytest.mark.parametrize(("kinds", "guilty", "innocent"), [SECRETS, PERSONAL], ids=["secrets", "personal"])
def test_what_is_caught_and_what_is_wrongly_replaced(
    kinds: Kinds, guilty: Sequence[SecretSample], innocent: Sequence[BenignSample], part: str
) -> None:
    guilty = [one for one in guilty if is_held_out(one) == (part == "held out")]
    innocent = [one for one in innocent if is_held_out(one) == (part == "held out")]
    missed = [one for one in guilty if not is_caught(one, kinds)]
    wrong = [one for one in innocent if not is_left_alone(one, kinds)]
    print(f"{kinds[0]}, {part}: {len(guilty) - len(missed)} of {len(guilty)} caught, ", end="")
    print(f"{len(wrong)} of {len(innocent)} wrongly replaced")
    print("  missed:", dict(Counter(one.format for one in missed)), "of", dict(Counter(one.format for one in guilty)))
    print("  wrong:", dict(Counter(one.format for one in wrong)), "of", dict(Counter(one.format for one in innocent)))
    assert len(missed) <= 0.05 * len(guilty), [(one.format, one.text[:200]) for one in missed]
    assert len(wrong) <= 0.02 * len(innocent), [(one.format, one.text[:200]) for one in wrong]


def test_formats_of_further_providers_are_caught_and_what_looks_so_is_not() -> None:
    """Written after the detectors and counted before they were mended by it: 65 of 113 caught, 3 of 105 wrong."""
    guilty, innocent = provider_secrets(), provider_look_alikes()
    missed = [one.text[:200] for one in guilty if not is_caught(one, ("secrets",))]
    wrong = [one.text[:200] for one in innocent if not is_left_alone(one, ("secrets",))]
    print(f"providers: {len(guilty) - len(missed)} of {len(guilty)} caught, {len(wrong)} of {len(innocent)} wrong")
    assert min(len(guilty), len(innocent)) >= 100
    assert len(missed) <= 0.05 * len(guilty), missed
    assert len(wrong) <= 0.02 * len(innocent), wrong


def test_the_corpora_are_as_large_as_promised() -> None:
    """Issue 22: 150 secrets in 25 formats, and as many benign look-alikes."""
    assert len(SECRETS[1]) >= 150
    assert len({one.format for one in SECRETS[1]}) >= 25
    assert len(SECRETS[2]) >= 150
    assert min(len(PERSONAL[1]), len(PERSONAL[2])) >= 40


def test_a_secret_of_the_corpus_is_in_its_text() -> None:
    for sample in (*SECRETS[1], *PERSONAL[1]):
        assert sample.secret in sample.text
