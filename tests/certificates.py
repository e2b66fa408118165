"""A certificate for connections with TLS, made by openssl."""

import subprocess

import pytest


def make_certificate(folder):
    """(certificate, its key), paths as text; it is its own authority."""
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run([*openssl, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("openssl is not here to make a certificate")
    return certificate, key
