"""Certificates for tests: an authority, and what it signs for a broker and its clients."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


class Authority:
    """Writes what it signs into a folder, in PEM."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        own = self._builder(self.name, self.key, DAY).add_extension(x509.BasicConstraints(True, None), True)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.file = self._write(f"{name}.pem", own.add_extension(usage, True).sign(self.key, hashes.SHA256()))

    def sign(self, name: str, life: timedelta = DAY, password: str = "", address: str = "127.0.0.1") -> tuple[str, str]:
        """The files of a certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(subject, key, life)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
            .add_extension(x509.ExtendedKeyUsage(usages), False)
            .sign(self.key, hashes.SHA256())
        )
        closing: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, closing)
        key_file = self.folder / f"{name}.key"
        key_file.write_bytes(text)
        return self._write(f"{name}.pem", certificate), str(key_file)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + life)
        )

    def _write(self, file: str, certificate: x509.Certificate) -> str:
        (self.folder / file).write_bytes(certificate.public_bytes(Encoding.PEM))
        return str(self.folder / file)
