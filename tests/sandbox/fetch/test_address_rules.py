"""Which addresses are fetched for a model: what attacks write, and what honest pages do (issue 8, address guard)."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpbridge.base.errors import AddressRefused
from mcpbridge.sandbox.fetch import address_rules as resolving
from mcpbridge.sandbox.fetch.address_rules import (
    Guard,
    Reach,
    Target,
    display_url,
    is_own_address,
    reach_of,
    read,
    resolved,
)
from mcpbridge.sandbox.fetch.settings import GuardSettings

PUBLIC = "93.184.216.34"

RESOLVES = {
    "localtest.example.com": ["127.0.0.1"],
    "10-0-0-1.example.com": ["10.0.0.1"],
    "meta.example.com": ["169.254.169.254"],
    "mixed.example.com": [PUBLIC, "127.0.0.1"],
    "mixed-last.example.com": [PUBLIC, "2606:4700::1111", "10.1.2.3"],
    "mixed-first.example.com": ["192.168.1.1", PUBLIC],
    "six.example.com": ["::1"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "compatible.example.com": ["::127.0.0.1"],
    "nat64.example.com": ["64:ff9b::a00:1"],
    "nat64-own.example.com": ["64:ff9b:1::a00:1"],
    "sixtofour.example.com": ["2002:7f00:1::"],
    "teredo.example.com": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "isatap.example.com": ["2606:4700::5efe:a00:1"],
    "isatap-global.example.com": ["2606:4700::200:5efe:7f00:1"],
    "cgn.example.com": ["100.64.0.1"],
    "link.example.com": ["fe80::1"],
    "linkzone.example.com": ["fe80::1%eth0"],
    "unique.example.com": ["fd12:3456::1"],
    "site.example.com": ["fec0::1"],
    "multi.example.com": ["224.0.0.251"],
    "multi6.example.com": ["ff02::fb"],
    "broadcast.example.com": ["255.255.255.255"],
    "zero.example.com": ["0.0.0.0"],
    "zero6.example.com": ["::"],
    "azure.example.com": ["168.63.129.16"],
    "oracle.example.com": ["192.0.0.192"],
    "alibaba.example.com": ["100.100.100.200"],
    "aws6.example.com": ["fd00:ec2::254"],
    "gcp6.example.com": ["fd20:ce::254"],
    "bench.example.com": ["198.18.0.1"],
    "doc.example.com": ["203.0.113.7"],
    "doc6.example.com": ["2001:db8::1"],
    "relay.example.com": ["192.88.99.1"],
    "discard.example.com": ["100::1"],
    "own.example.com": ["198.41.0.4"],
    "segment.example.com": ["5f00::1"],
}
"""What hosts of the tables resolve to; every other host is at a public address."""
OWN = "198.41.0.4"
"""The address of this machine, as the tests have it."""

ATTACKS = [
    # other schemes
    *("file:///etc/passwd", "ftp://example.com/", "gopher://127.0.0.1:70/", "dict://127.0.0.1:2628/"),
    *("ws://example.com", "data:text/html,x", "javascript:alert(1)", "unix:///var/run/docker.sock", "jar:http://example.com!/"),
    "//example.com",
    *("http:example.com", "http:/example.com", "http:///example.com", "https:127.0.0.1", "example.com", "", "http://"),
    *("http+unix://%2Fvar%2Frun%2Fdocker.sock/", "HtTp:/127.0.0.1", "view-source:http://127.0.0.1", "ldap://127.0.0.1"),
    # who is in the URL
    *("http://user@example.com/", "http://user:pass@example.com/", "http://example.com@127.0.0.1/", "http://@example.com"),
    *("http://127.0.0.1:80@example.com/", "http://example.com:80@10.0.0.1:80/", "http://a@b@127.0.0.1/"),
    *("http://example.com%40127.0.0.1/", "http://example.com;@127.0.0.1/", "http://:@127.0.0.1/"),
    # what is read in two ways
    *("http://example.com\\@127.0.0.1/", "http://127.0.0.1\\.example.com/", "http:\\\\127.0.0.1\\", "http://127.0.0.1:80\\@a.com"),
    *("http://1.1.1.1 &@2.2.2.2# @3.3.3.3/", "http://example.com /", " http://example.com/", "http://example.com/ x"),
    *("http://exam\tple.com/", "http://example.com\r\nHost: x", "http://example.com/\n", "http://example.com\0.evil.com/"),
    *("http://example.com/\x7f", "http://\u200b127.0.0.1/", "http://loc\u00adalhost/", "http://example.com/\u202e"),
    *("http://[::1/", "http://::1/", "http://[::1]x/", "http://example.com:80:80/", "http://[example.com]/", "http://[]/"),
    *("http://*.example.com/", "http://a,b.com/", "http://exa$mple.com/", "http://ex..com/", "http://.example.com/"),
    *("http://example.com../", "http://-/", "http://%6c%6f%63%61%6c%68%6f%73%74/", "http://127.0.0.1%00.example.com/"),
    *("http://%31%32%37.0.0.1/", "http://127.0.0.1%2f@example.com/"),
    *("http://" + "a" * 64 + ".com/", "http://" + "a." * 130 + "com"),
    "http://example.com/" + "a" * 9000,
    # ports
    *("http://example.com:0/", "http://example.com:22/", "https://example.com:6379/", "http://example.com:25/"),
    *("http://example.com:65536/", "http://example.com:99999/", "http://example.com:-80/", "http://example.com:8 0/"),
    *("http://example.com:\u0668\u0660/", "http://example.com:80a/", "http://example.com:11211/", "http://1.1.1.1:2375/"),
    # names of this machine and network
    *("http://localhost/", "http://LOCALHOST/", "http://localhost./", "http://LocalHost:8080/", "http://localhost.localdomain/"),
    *("http://a.localhost/", "http://x.y.localhost:80/", "http://printer.local/", "http://printer.local./"),
    *("http://metadata.google.internal/computeMetadata/v1/", "http://metadata.google.internal./", "http://metadata/"),
    *("http://instance-data/latest/meta-data/", "http://ip6-localhost/", "http://kubernetes.default.svc.cluster.local/"),
    *("http://db/", "http://host.docker.internal/", "http://router.lan/", "http://wiki.corp/", "http://x.intranet/"),
    *("http://nas.home/", "http://x.home.arpa/", "http://1.0.0.127.in-addr.arpa/", "http://localho\u017ft/"),
    *("http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/", "http://\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54/"),
    # IPv4, plain and otherwise
    *("http://127.0.0.1/", "http://127.0.0.1:8080/", "http://127.0.0.1./", "http://127.1.2.3/", "http://0.0.0.0/"),
    *("http://127.1/", "http://127.0.1/", "http://0/", "http://0:80/", "http://2130706433/", "http://017700000001/"),
    *("http://0x7f000001/", "http://0x7f.0.0.1/", "http://0x7f.1/", "http://0177.0.0.1/", "http://0177.1/", "http://00000177.0.0.1/"),
    *("http://127.0.0.0x1/", "http://127.0.0.01/", "http://127.000.000.001/", "http://3232235777/", "http://0xA9FEA9FE/"),
    *("http://2852039166/", "http://0251.0376.0251.0376/", "http://169.254.43518/", "http://169.16689662/", "http://0xa9.0xfe.0xa9.0xfe/"),
    *("http://425.510.425.510/", "http://256.256.256.256/", "http://1.2.3.4.5/", "http://4294967296/", "http://1.1.1/"),
    *("http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/v2/credentials", "http://168.63.129.16/", "http://192.0.0.192/"),
    *("http://100.100.100.200/", "http://10.0.0.1/", "http://172.16.0.1/", "http://172.31.255.255/", "http://192.168.0.1/"),
    *("http://100.64.0.1/", "http://100.127.255.255/", "http://198.18.0.1/", "http://192.0.2.1/", "http://224.0.0.1/"),
    *("http://239.255.255.250/", "http://255.255.255.255/", "http://240.0.0.1/", "http://192.88.99.1/", f"http://{OWN}/"),
    *("http://127\u30020\u30020\u30021/", "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/"),
    *("http://\u2460\u2461\u2466.0.0.1/", "http://127\uff0e0\uff0e0\uff0e1/"),
    *("http://\u0661\u0662\u0667.0.0.1/", "http://169\u3002254\u3002169\u3002254/"),
    # IPv6, and what it carries
    *("http://[::1]/", "http://[::]/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000::0001]:8080/", "http://[::ffff:127.0.0.1]/"),
    *("http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:7f00:1]/", "http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/"),
    *("http://[::127.0.0.1]/", "http://[::7f00:1]/", "http://[::ffff:0:127.0.0.1]/", "http://[::ffff:0:10.0.0.1]/"),
    *("http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::10.0.0.1]/", "http://[64:ff9b::8.8.8.8]/"),
    *("http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/", "http://[2001::1]/", "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]/"),
    *("http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[fec0::1]/", "http://[fc00::1]/"),
    *("http://[fd00:ec2::254]/", "http://[fd20:ce::254]/", "http://[ff02::1]/", "http://[2001:db8::1]/", "http://[100::1]/"),
    *("http://[fe80::5efe:127.0.0.1]/", "http://[2606:4700::5efe:10.0.0.1]/", "http://[2606:4700:0:0:200:5efe:a00:1]/"),
    *("http://[2001:10::1]/", "http://[2001:2::1]/", "http://[3fff::1]/", "http://[5f00::1]/", "http://[4000::1]/", "http://[v1.fe80]/"),
    # names that lead there
    *(f"http://{host}/" for host in RESOLVES),
]  # fmt: skip

HONEST = [
    *("http://example.com", "http://example.com/", "https://example.com/", "HTTPS://EXAMPLE.COM/", "http://example.com:80/"),
    *("https://example.com:443/", "http://example.com:8080/x", "https://example.com:8443/", "http://example.com./", "http://example.com:/"),
    *("https://example.com/a/b?c=d&e=f#g", "https://example.com/?url=http://127.0.0.1/", "https://example.com/@user/1"),
    *("https://example.com/a%20b", "https://example.com/%2e%2e/x", "https://example.com/x?q=a@b", "https://example.com/#@127.0.0.1"),
    *("https://en.wikipedia.org/wiki/M%C3%BCnchen", "https://de.wikipedia.org/wiki/M\u00fcnchen", "https://m\u00fcnchen.de/"),
    *("https://xn--mnchen-3ya.de/", "https://sub_domain.example.com/", "https://3com.com/", "https://1.example.com/", "https://127.0.0.1.example.org/"),
    *("http://1.1.1.1/", "https://8.8.8.8/", "https://[2606:4700:4700::1111]/", "http://[2620:fe::fe]:8080/", "https://localhost.example.com/"),
    *("https://internal.example.com/", "https://metadata.example.com/", "https://\u4f8b\u3048.jp/", "https://a.b.c.d.e.example.co.uk/"),
]  # fmt: skip


def refusal(url: str, settings: GuardSettings | None = None) -> str:
    """Why a URL is refused, in full; empty: it is not."""
    guard = Guard(settings or GuardSettings())
    try:
        target = guard.target_of(url)
        answers = [target.address] if target.address else RESOLVES.get(target.host, [PUBLIC])
        guard.check_answers(target, answers, lambda address: address == OWN)
    except AddressRefused as refused:
        return str(refused)
    return ""


def followed(guard: Guard, here: Target, location: str) -> None:
    """Go where a redirect leads, as far as that can be judged."""
    target = guard.redirected(here, location)
    guard.check_answers(target, [target.address or PUBLIC], lambda _: False)


def test_every_attack_is_refused_and_every_honest_address_is_not() -> None:
    assert len(set(ATTACKS)) >= 143
    assert len(set(HONEST)) >= 25
    assert [url for url in ATTACKS if not refusal(url)] == []
    assert {url: why for url in HONEST if (why := refusal(url))} == {}


@pytest.mark.parametrize(
    ("carried", "reach"),
    [
        ("168.63.129.16", Reach.RESERVED),
        ("168.63.129.17", Reach.PUBLIC),
        ("168.63.129.15", Reach.PUBLIC),
        ("100.100.100.200", Reach.RESERVED),
        ("100.128.0.1", Reach.PUBLIC),
        ("127.255.255.255", Reach.LOOPBACK),
        ("128.0.0.1", Reach.PUBLIC),
    ],
)
def test_an_address_inside_another_is_read_to_its_last_bit(carried: str, reach: Reach) -> None:
    number = int(IPv4Address(carried))
    inside = {
        "6to4": (0x2002 << 112) | (number << 80),
        "Teredo": (0x20010000 << 96) | (~number & 0xFFFFFFFF),
        "NAT64": (0x64FF9B << 96) | number,
        "local NAT64": (0x64FF9B0001 << 80) | number,
    }
    for kind, bits in inside.items():
        assert reach_of(str(IPv6Address(bits))) is reach, kind


def test_a_public_host_behind_nat64_is_fetched() -> None:
    """Networks with IPv6 alone answer so for every host with IPv4 alone (RFC 6147)."""
    guard = Guard(GuardSettings())
    target = guard.target_of("http://example.com/")
    assert guard.check_answers(target, ["64:ff9b::808:808"], lambda _: False) == ["64:ff9b::808:808"]


def test_what_is_refused_is_named_without_its_query_and_its_secrets() -> None:
    for url in ("http://127.0.0.1/a?token=hidden", "http://me:hidden@example.com/", "http://example.com:22/#hidden"):
        why = refusal(url)
        assert why
        assert "hidden" not in why
    for url in ("http:me:hidden@example.com", "http:\\\\me:hidden@example.com\\", "ftp://me:hidden@example.com/"):
        assert "hidden" not in refusal(url)
    assert "\r" not in refusal("http://example.com\r\nX: y")
    assert display_url("http://u:p@h.com/p?q#f") == "http://h.com/p"
    assert len(display_url("http://example.com/" + "a" * 500)) == 200


def test_a_host_that_people_allow_may_be_inside_but_credentials_of_clouds_stay_refused() -> None:
    settings = GuardSettings(allow=["10-0-0-1.example.com", "*.corp", "meta.example.com"])
    assert not refusal("http://10-0-0-1.example.com/", settings)
    assert not refusal("http://wiki.corp/", settings)
    assert refusal("http://meta.example.com/", settings)
    assert refusal("http://localtest.example.com/", settings)


def test_a_network_that_people_allow_is_fetched_by_address_and_by_name() -> None:
    settings = GuardSettings(allow=["10.0.0.0/8", "169.254.169.254"])
    assert not refusal("http://10.0.0.1/", settings)
    assert not refusal("http://10-0-0-1.example.com/", settings)
    assert not refusal("http://169.254.169.254/", settings)
    assert refusal("http://192.168.0.1/", settings)
    assert refusal("http://[::ffff:10.0.0.1]/", settings)
    assert refusal("http://167772161/", settings), "other spellings stay refused"


def test_deny_comes_before_allow_and_only() -> None:
    settings = GuardSettings(allow=["10.0.0.0/8"], deny=["10.0.0.1", "*.example.com", PUBLIC], only=["example.com"])
    assert "deny" in refusal("http://10.0.0.1/", settings)
    assert "deny" in refusal("http://a.example.com/", settings)
    assert "deny" in refusal("http://example.com/", settings), "its address is denied"


def test_only_what_is_listed_is_fetched_where_there_is_such_a_list() -> None:
    settings = GuardSettings(only=["example.com", "*.example.org"])
    assert not refusal("http://example.com/", settings)
    assert not refusal("http://a.b.example.org/", settings)
    assert "only" in refusal("http://example.org/", settings)
    assert "only" in refusal("http://www.example.com/", settings)
    assert "only" in refusal("http://1.1.1.1/", settings)
    networks = GuardSettings(only=["1.1.1.0/24", "93.184.0.0/16"])
    assert not refusal("http://1.1.1.1/", networks)
    assert not refusal("http://example.com/", networks)
    assert "only" in refusal("http://8.8.8.8/", networks)


def test_addresses_are_listed_as_they_are_written_in_urls() -> None:
    settings = GuardSettings(allow=["[fd12::1]", "Wiki.Example.COM."])
    assert settings.allow == ["fd12::1/128", "wiki.example.com"]
    assert not refusal("http://[fd12::1]/", settings)


def test_ports_can_be_set() -> None:
    settings = GuardSettings(ports=[443, 9000])
    assert not refusal("http://example.com:9000/", settings)
    assert "port 80" in refusal("http://example.com/", settings)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allow", ["http://example.com"]),
        ("allow", ["10.0.0.0/33"]),
        ("deny", ["*"]),
        ("deny", ["a b"]),
        ("only", ["m\u00fcnchen.de"]),
        ("only", [""]),
        ("ports", [0]),
        ("ports", [70000]),
        ("ports", []),
        ("allow", ["10.1.2.3/8"]),
    ],
)
def test_settings_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        GuardSettings.model_validate({key: value})


def test_what_people_wrote_may_be_inside_if_it_is_written_plainly() -> None:
    guard = Guard(GuardSettings())
    for url in ("http://localhost:9000/x", "http://127.0.0.1:1234", "http://db:22/", "http://[::1]:5000/"):
        target = guard.target_of(url, is_trusted=True)
        assert guard.check_answers(target, ["127.0.0.1"], lambda _: True)
    for url in ("file:///etc/passwd", "http://a@localhost/", "http://0x7f.1/", "http://localhost:0/"):
        with pytest.raises(AddressRefused):
            guard.target_of(url, is_trusted=True)


def test_trust_does_not_follow_a_redirect_to_another_host() -> None:
    guard = Guard(GuardSettings())
    here = guard.target_of("http://localhost:9000/x", is_trusted=True)
    assert guard.redirected(here, "/y").is_trusted
    assert not guard.redirected(here, "http://example.com/").is_trusted
    for location in ("http://localhost:9001/", "http://127.0.0.1:9000/", "http://169.254.169.254/"):
        with pytest.raises(AddressRefused):
            followed(guard, here, location)


@pytest.mark.parametrize(
    "location",
    [
        *("http://example.com/", "//10.0.0.1/", "file:///etc/passwd", "https://a@example.com/", "/a b", "/\x00"),
        *("\\\\127.0.0.1\\", "https://0x7f.1/", "https://example.com:22/", "https://x:y:z/", "javascript:1"),
        "https://[::1]/",
    ],
)
def test_redirects_are_judged_as_first_addresses_are_and_stay_encrypted(location: str) -> None:
    guard = Guard(GuardSettings())
    here = guard.target_of("https://example.org/start?token=hidden")
    with pytest.raises(AddressRefused) as refused:
        followed(guard, here, location)
    assert "hidden" not in str(refused.value)


@given(st.ip_addresses(v=4))
def test_an_address_is_dialled_only_if_python_and_the_table_agree_that_it_is_public(address: IPv4Address) -> None:
    if not refusal(f"http://{address}/"):
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_outside_of_public_unicast_is_dialled(address: IPv6Address) -> None:
    if not refusal(f"http://[{address}]/"):
        assert address in ip_network("2000::/3")
        assert address.is_global
        assert address.sixtofour is None
        assert address.teredo is None


@given(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.sampled_from(["http://", "https://", "http://127.0.0.1", "http://example.com", "http://[", ""]),
)
def test_any_text_is_either_refused_or_read_as_a_public_place(text: str, start: str) -> None:
    guard = Guard(GuardSettings())
    try:
        target = guard.target_of(start + text)
    except AddressRefused:
        return
    assert target.url.scheme in ("http", "https")
    assert target.port in (80, 443, 8080, 8443)
    assert not target.url.userinfo
    assert "." in target.host or ip_address(target.address)


def test_this_machine_knows_its_own_addresses() -> None:
    assert is_own_address("127.0.0.1")
    assert resolving._is_source("127.0.0.1"), "the way where programs may bind to any address"
    assert not resolving._is_source("192.0.2.77")
    assert not is_own_address("192.0.2.77")
    assert not is_own_address("2001:db8::77")


async def test_the_systems_resolver_is_asked() -> None:
    assert "127.0.0.1" in await resolved("localhost", 80)


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://h.example/", 80),
        ("https://h.example/", 443),
        ("http://h.example:443/", 443),
        ("https://h.example:80/", 80),
        ("https://h.example:65535/", 65535),
        ("http://h.example:1/", 1),
    ],
)
def test_the_port_is_that_of_the_scheme_unless_the_url_says_one(url: str, port: int) -> None:
    assert read(url, is_trusted=False).port == port


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_a_port_that_there_is_not_is_refused(port: int) -> None:
    with pytest.raises(AddressRefused):
        read(f"http://h.example:{port}/", is_trusted=False)


def test_a_host_has_253_characters_at_most_and_only_labels() -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert read(f"http://{longest}/", is_trusted=False).host == longest
    for host in (f"{longest}b", f"{'a' * 64}.example", "good.-bad.example", "good.bad-.example", "good..example"):
        with pytest.raises(AddressRefused):
            read(f"http://{host}/", is_trusted=False)


@pytest.mark.parametrize("text", ["http://h.example/a b", "http://h.example/a\\b", "http://h.example/a\u202eb"])
def test_a_url_with_characters_that_no_url_has_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused, match="no spaces, backslashes"):
        read(text, is_trusted=False)
