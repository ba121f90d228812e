"""What holds for every test."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def few_certificate_authorities(tmp_path_factory):
    """Let a client read one certificate authority, not all of the machine's.

    Building a client takes 2 ms then and not 40 to 90. No test leaves this machine.
    """
    if importlib.util.find_spec("certifi") is None:
        yield
        return
    import certifi

    end = "-----END CERTIFICATE-----\n"
    text = Path(certifi.where()).read_text(encoding="utf-8")
    file = tmp_path_factory.mktemp("tls") / "one.pem"
    file.write_text(text[text.index("-----BEGIN") : text.index(end) + len(end)], encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield
