"""Which networks addresses lead into (RFC 6890; docs/explanation/security.md, Addresses that models choose)."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.fetch.address_rules import Reach, reach_of


@pytest.mark.parametrize(
    ("reach", "addresses"),
    [
        (Reach.PUBLIC, ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]),
        (Reach.PRIVATE, ["10.0.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1"]),
        (Reach.PRIVATE, ["64:ff9b::a00:1", "2002:a00:1::", "64:ff9b:1::a00:1"]),
        (Reach.LOOPBACK, ["127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1"]),
        (
            Reach.RESERVED,
            ["169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255"],
        ),
        (Reach.RESERVED, ["168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "ff02::1"]),
        (Reach.RESERVED, ["64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:1:2:3:4:5601:5601", "100.100.100.200"]),
    ],
)
def test_an_address_reaches_as_far_as_what_it_carries(reach: Reach, addresses: list[str]) -> None:
    assert {address: reach_of(address) for address in addresses} == dict.fromkeys(addresses, reach)


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "0x7f.1", "1.2.3.4:80", "[::1]"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        reach_of(text)


@given(st.ip_addresses(v=4))
def test_carrying_an_address_hides_nothing(address: IPv4Address) -> None:
    for prefix in ("::ffff:0:0", "64:ff9b::"):
        carried = IPv6Address(int(IPv6Address(prefix)) | int(address))
        assert reach_of(str(carried)) >= reach_of(str(address))
    if int(address) > 1:
        assert reach_of(str(IPv6Address(int(address)))) >= reach_of(str(address))
