"""Keys of a federation, made in a folder: `python -m tracewheel_federated.flower.keys FOLDER HOST CLIENT...`.

| file | who has it |
|---|---|
| `authority.key` | the server's operator alone |
| `authority.pem` | everybody: it says who the server is |
| `server.pem`, `server.key` | the server |
| `clients/NAME/client.key` | that client alone; with `authority.pem` beside it, the folder is what it is handed |
| `clients/NAME.pub` | the server |

What is there is kept. A client that makes its own pair hands over the public key only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

YEARS = 2


def make(folder: Path, host: str, clients: list[str]) -> None:
    """Make what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "authority.pem").is_file():
        authority = ec.generate_private_key(ec.SECP384R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tracewheel federation")])
        signed = _certificate(name, name, authority).add_extension(x509.BasicConstraints(True, None), critical=True)
        _write_key(authority, folder / "authority.key")
        _write_certificate(signed.sign(authority, hashes.SHA256()), folder / "authority.pem")
        own = ec.generate_private_key(ec.SECP384R1())
        of_server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        signed = _certificate(of_server, name, own).add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        _write_key(own, folder / "server.key")
        _write_certificate(signed.sign(authority, hashes.SHA256()), folder / "server.pem")
    for client in clients:
        handed = folder / "clients" / client
        if (folder / "clients" / f"{client}.pub").is_file():
            continue
        handed.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        _write_key(key, handed / "client.key")
        shutil.copyfile(folder / "authority.pem", handed / "authority.pem")
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        (folder / "clients" / f"{client}.pub").write_bytes(public)


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
    )


def _names(host: str) -> list[x509.GeneralName]:
    try:
        found: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(host))]
    except ValueError:
        found = [x509.DNSName(host)]
    local = ipaddress.ip_address("127.0.0.1")
    return [*found, *([x509.IPAddress(local)] if host != str(local) else []), x509.DNSName("localhost")]


def _write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    form = serialization.PrivateFormat.OpenSSH if path.name == "client.key" else serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text)


def _write_certificate(certificate: x509.Certificate, path: Path) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
