"""Where a requirement comes from: whether a function can fetch it from there (field case 7.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from posixpath import basename
from urllib.parse import parse_qsl, unquote, urlsplit

from packaging.utils import canonicalize_name

from arkdev.faas_emulator.requirement_files.platforms import Target
from arkdev.runs.masking import MASK, has_secret_name

OWN_NAMES = frozenset({"arkdev", "ark-sdk"})
"""Distributions that arkdev's function wheel stands for."""

VENDOR = "copy its package into the workspace, or publish it and name a version"
EDITABLE = f"list without it (`uv pip freeze --exclude-editable`); if plugins import it, {VENDOR}"

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SCP = re.compile(r"(git\+)?[\w.-]+@[\w.-]+:")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_VERSION = re.compile(r"-(v?\d|latest\b).*")
_SIGNATURES = re.compile(r"(?i)(^|[-_])(sig|signature|credential|token|security-token)$")
_QUERY = re.compile(r"\?[^#\s]*")
_USER = re.compile(r"(?<=://)([^/\s]*@|[^/\s:@]+:(?!\d+(/|$))[^\s@]*@)")
"""User and password, also ones with an ``@`` or a ``/`` that should have been quoted."""


@dataclass(frozen=True)
class Finding:
    """What is wrong with a line, or may be; `advice` says what to do."""

    message: str
    advice: str
    is_problem: bool = True
    """False: it can be installed, but not with the same result each time."""


def shown(text: str) -> str:
    """Return a line as it may be shown: without users, passwords and queries of URLs."""
    return _QUERY.sub(f"?{MASK}", _USER.sub(f"{MASK}@", text)) if "://" in text else text


def is_path(text: str) -> bool:
    """Whether a line, without its options, names a file or folder of this machine."""
    word = text.partition(" @ ")[0].partition(";")[0].strip()
    if _DRIVE.match(word) or word.startswith((".", "/", "~", "\\")):
        return True
    if _URL.match(word) or "@" in word or " " in word:
        return False
    return "/" in word or "\\" in word or word.lower().endswith(_ARCHIVES)


def is_url(text: str) -> bool:
    """Whether a line is a URL with no name before it."""
    return not _DRIVE.match(text) and bool(_URL.match(text) or _SCP.match(text))


def name_of(source: str) -> str:
    """Return the normalised distribution name that a URL or a path tells of; "" when none.

    >>> [name_of("https://h/ark_sdk-0.2.11.tar.gz"), name_of("git+https://h/foo.git@main")]
    ['ark-sdk', 'foo']
    """
    source, _, fragment = source.partition("#")
    egg = dict(parse_qsl(fragment)).get("egg", "")
    if egg:
        return str(canonicalize_name(egg.partition("[")[0]))
    name = basename(unquote(source.partition("?")[0]).replace("\\", "/").rstrip("/"))
    name = name.partition("@")[0].partition("[")[0].removesuffix(".git")
    for suffix in _ARCHIVES:
        name = name.removesuffix(suffix)
    name = _VERSION.sub("", name)
    return str(canonicalize_name(name)) if re.fullmatch(r"[\w.-]+", name) else ""


def of_path(path: str, *, target: Target) -> Iterator[Finding]:
    """Judge a requirement that is a path of this machine."""
    yield Finding("a path of this machine, which the function does not have", VENDOR)
    if path.count("-") >= 4:  # else it is no wheel of anybody's
        yield from _of_wheel(path, target=target)


def of_url(url: str, *, target: Target) -> Iterator[Finding]:
    """Judge a requirement that is a URL."""
    scheme = url.partition(":")[0].lower()
    if scheme == "file" or scheme.endswith("+file"):
        yield from of_path(url, target=target)
        return
    if scheme in ("ssh", "git+ssh") or _SCP.match(url):
        yield Finding(
            "fetched over ssh, for which the function has no key",
            "write git+https://HOST/OWNER/REPOSITORY@COMMIT of a public repository; of a private "
            f"one, {VENDOR}",
        )
        return
    yield from credentials(url)
    if scheme.startswith(("hg+", "svn+", "bzr+")):
        yield Finding(f"needs {scheme.partition('+')[0]}; only git is there", VENDOR)
    elif scheme.startswith("git+"):
        yield from _of_git(url)
    elif scheme in ("http", "https"):
        if not _has_host(url):
            yield Finding("is no whole URL", "write https://HOST/PATH")
        yield from _of_wheel(url, target=target)
    else:
        yield Finding(f"{scheme}: is no address that pip reads", "write an https URL")


def credentials(url: str) -> Iterator[Finding]:
    """Find users, passwords, tokens and signatures in a URL."""
    query = parse_qsl(url.partition("?")[2].partition("#")[0])
    has_secret = _USER.search(url) or any(
        has_secret_name(key) or _SIGNATURES.search(key) for key, _ in query
    )
    if has_secret:
        yield Finding(
            "has credentials in its URL; a requirements file is no place for them",
            "use an address that needs none, or copy the package into the workspace; if the file "
            "was shared, replace the credentials",
        )


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _of_git(url: str) -> Iterator[Finding]:
    path = url.partition("#")[0].partition("://")[2].partition("/")[2]
    revision = path.partition("@")[2]
    if not _COMMIT.fullmatch(revision):
        named = f"{revision!r} may be a branch or a tag, which move" if revision else "no commit"
        yield Finding(
            f"not pinned to a commit ({named})", "end it with @ and the 40 digits", is_problem=False
        )


def _of_wheel(source: str, *, target: Target) -> Iterator[Finding]:
    name = basename(unquote(source.partition("#")[0].partition("?")[0]).replace("\\", "/"))
    if name.lower().endswith(".whl") and (problem := target.wheel_problem(name)):
        yield Finding(problem, "name the version alone (package==1.2), and pip picks the right one")
