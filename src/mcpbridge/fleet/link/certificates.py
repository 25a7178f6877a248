"""Certificates of the link, which follow from the fleet's key: who has the key is a member, and nobody else.

The key makes the private key of an authority (HKDF-SHA256, Ed25519), which is the same in all bridges and is never
written down. Each bridge gives itself a certificate that names it, so whoever connects knows that the right one answers
at an address that another had before.
"""

import os
import ssl
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec import Struct

_USE = b"mcpbridge fleet, authority, 1"
_SINCE, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""Whoever has the key can make new ones at any time, so that an end would protect nothing."""


class LinkContexts(Struct, frozen=True):
    """What a bridge shows and asks for on the link."""

    listening: ssl.SSLContext
    connecting: ssl.SSLContext


def host_name_of(member: str) -> str:
    """The name in the certificate of a member."""
    return f"{member}.fleet.invalid"


def link_contexts(key: str, member: str) -> LinkContexts:
    """TLS 1.3 on the link for the bridge called `member`: both sides show a certificate that the key vouches for."""
    authority_key = Ed25519PrivateKey.from_private_bytes(
        HKDF(algorithm=SHA256(), length=32, salt=None, info=_USE).derive(key.encode())
    )
    authority = _authority(authority_key)
    own_key = Ed25519PrivateKey.generate()
    own = _member(member, own_key, authority, authority_key)
    vouching = authority.public_bytes(Encoding.PEM).decode()
    pair = own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + own.public_bytes(Encoding.PEM)
    listening, connecting = _context(ssl.PROTOCOL_TLS_SERVER, vouching), _context(ssl.PROTOCOL_TLS_CLIENT, vouching)
    listening.verify_mode = ssl.CERT_REQUIRED
    listening.num_tickets = 0
    _load(pair, listening, connecting)
    return LinkContexts(listening, connecting)


def _context(side: int, vouching: str) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=vouching)
    return context


def _load(pair: bytes, *contexts: ssl.SSLContext) -> None:
    """OpenSSL reads keys from files alone; this one is there for a moment, and only this user can read it."""
    descriptor, name = tempfile.mkstemp(prefix="mcpb-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pair)
        for context in contexts:
            context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _authority(key: Ed25519PrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcpbridge fleet")])
    known = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, _SINCE, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(known, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False)
    )
    return builder.sign(key, None)


def _member(
    member: str, key: Ed25519PrivateKey, authority: x509.Certificate, authority_key: Ed25519PrivateKey
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, member)])
    vouches = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder(authority.subject, name, key.public_key(), x509.random_serial_number(), _SINCE, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_name_of(member))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(vouches), critical=False)
    )
    return builder.sign(authority_key, None)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
