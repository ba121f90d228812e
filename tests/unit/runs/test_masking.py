"""Known secrets are masked however they are written."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

import pytest

from arkdev.runs.masking import masked_text, masked_urls, usable_secrets

SECRET = 'Zq7+abC/9dEf==xy"é'
SECRETS = usable_secrets([SECRET])


@pytest.mark.parametrize(
    "written",
    [
        quote(SECRET),
        quote(SECRET, safe=""),
        re.sub("%..", lambda code: code[0].lower(), quote_plus(SECRET)),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
    ],
)
def test_encoded_forms_are_masked(written: str) -> None:
    assert masked_text(f"a {written} b", secrets=SECRETS) == "a *** b"


@pytest.mark.parametrize("before", ["", "u:", "me:", "user:"])
@pytest.mark.parametrize("after", ["", "a", "ab"])
def test_base64_of_a_text_with_the_secret_is_masked(before: str, after: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        written = encode(f"{before}{SECRET}{after}".encode()).decode()
        assert len(masked_text(written, secrets=SECRETS)) < len(before + after) * 4 // 3 + 12


def test_an_innocent_text_stays() -> None:
    text = "Zq7 plus abC, 9dEf"
    assert masked_text(text, secrets=SECRETS) == text


def test_users_and_passwords_in_urls_are_masked() -> None:
    line = 'HTTP Request: GET http://user:PASS@host/p?to=a@b "HTTP/1.1 200 OK"'
    assert masked_urls(line) == 'HTTP Request: GET http://***@host/p?to=a@b "HTTP/1.1 200 OK"'
