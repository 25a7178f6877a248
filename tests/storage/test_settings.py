"""Where the server of a store of kind `redis` is, as people write it."""

import pytest
from pydantic import ValidationError

from mcpbridge.storage.settings import StoreSettings, redis_address


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("rediss://ann:s3cret@redis.example.com:6380/3", "rediss://redis.example.com:6380/3"),
        ("redis://:s3cret@[::1]:1/", "redis://[::1]:1/0"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock"),
    ],
)
def test_an_address_is_displayed_without_user_and_password(url: str, place: str) -> None:
    settings = StoreSettings(kind="redis", url=url)
    address = redis_address(settings)
    assert address.without_password == place
    for text in (repr(address), repr(settings), str(settings)):
        assert "s3cret" not in text
        assert "ann" not in text


def test_addresses_of_several_servers() -> None:
    behind = redis_address(
        StoreSettings(kind="redis", url="rediss+sentinel://ann:a%2Fb@one,[::1]:3/ours/4", sentinel_password="s3")
    )
    assert (behind.kind, behind.nodes) == ("sentinel", (("one", 26379), ("::1", 3)))
    assert (behind.service, behind.database, behind.is_tls, behind.password) == ("ours", 4, True, "a/b")
    assert behind.without_password == "rediss+sentinel://one:26379,[::1]:3/ours/4"
    assert "s3" not in repr(behind)
    cluster = redis_address(StoreSettings(kind="redis", url="redis+cluster://one:7000,two"))
    assert (cluster.kind, cluster.nodes, cluster.without_password) == (
        *("cluster", (("one", 7000), ("two", 6379))),
        "redis+cluster://one:7000,two:6379",
    )


def test_user_password_and_database_are_those_of_the_url_or_of_their_keys() -> None:
    of_url = redis_address(StoreSettings(kind="redis", url="redis://ann:a%2Fb@h/5"))
    assert (of_url.username, of_url.password, of_url.database) == ("ann", "a/b", 5)
    of_keys = redis_address(StoreSettings(kind="redis", url="unix:///s?db=4", username="bob", password="p@/w"))
    assert (of_keys.username, of_keys.password, of_keys.database, of_keys.path) == ("bob", "p@/w", 4, "/s")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        (None, "needs `url`"),
        ("http://s3cret@h", "must begin with"),
        ("localhost:6379", "must begin with"),
        ("redis+sentinel://s3cret@h/mymaster/0", "needs a `password`"),
        ("redis+sentinel://:s3cret@h/", "what the Sentinels call the server"),
        ("redis+sentinel://:s3cret@h:port/mymaster", "no valid hosts and ports"),
        ("redis+sentinel://:s3cret@h,/mymaster", "no valid hosts and ports"),
        ("redis+sentinel://:s3cret@h/mymaster/name", "number of a database"),
        ("redis+cluster://:s3cret@h/0", "has no databases"),
        ("redis-cluster://h", "must begin with"),
        ("redis://one:1,two:2/0", "names several servers"),
        ("redis://:s3cret@h:port/0", "no valid host and port"),
        ("redis:///0", "names no host"),
        ("unix://", "names no path"),
        ("redis://h/name", "number of a database"),
        ("redis://h/0?ssl_cert_reqs=none", "number of a database"),
        ("redis://ann@h/0", "needs a `password`"),
    ],
)
def test_a_wrong_address_is_refused_and_not_repeated(url: str | None, what: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StoreSettings(kind="redis", url=url)
    messages = [error["msg"] for error in refused.value.errors()]
    assert what in messages[0]
    assert "s3cret" not in messages[0]


def test_a_reference_to_a_secret_that_was_not_read_yet_is_no_mistake() -> None:
    assert StoreSettings(kind="redis", url="redis://:${file:/run/secrets/redis}@h/0")


def test_an_address_goes_with_its_kind() -> None:
    with pytest.raises(ValidationError, match='go with `kind = "redis"`'):
        StoreSettings(url="redis://h")
