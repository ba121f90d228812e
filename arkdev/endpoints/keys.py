"""API keys: from the environment, or from a file that only its owner can read (SURFACE LT-05).

The key file is ``keys.toml`` beside the user's ``config.toml``, one line for each variable::

    ARK_API_KEY = "..."

The environment wins. No function here puts a key, or what may be one, into a message.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import tomllib
from pathlib import Path

from pydantic import SecretStr

from arkdev.errors import ConfigurationError

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LONGEST_WORD = 16


def user_config_folder() -> Path:
    """``$XDG_CONFIG_HOME/arkdev``, else ``~/.config/arkdev``; it need not exist."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(root) if os.path.isabs(root) else Path.home() / ".config"
    return base / "arkdev"


def parse_key_variable(variable: str, *, where: str) -> str:
    """Return `variable` when it can be the name of an environment variable.

    Raises `ConfigurationError`, without repeating the value, for one that looks like a key: with
    lower-case letters or hyphens, or one long word of capitals and digits.
    """
    is_name = _VARIABLE.fullmatch(variable) is not None
    if not is_name or ("_" not in variable and len(variable) > _LONGEST_WORD):
        raise ConfigurationError(
            "the name of the key's environment variable is not one; it looks like a key itself",
            where=where,
            hint="Put the key into a variable (export ARK_API_KEY=...) and give the variable's "
            "name. If this was a key, it may be in your shell's history: consider replacing it.",
        )
    return variable


def find_api_key(variable: str, *, keys_file: Path) -> SecretStr | None:
    """Return the key named `variable`, or None when neither place has it.

    Raises `ConfigurationError` for a key file that others can read, or that is not TOML, and for a
    key that cannot be sent in an HTTP header.
    """
    value = os.environ.get(variable, "").strip()
    where = f"the environment variable {variable}"
    if not value:
        value = _read_keys(keys_file).get(variable, "").strip()
        where = f"{variable} in {keys_file}"
    if not value:
        return None
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise ConfigurationError(
            "the API key contains characters that no key has (spaces, line ends, or not ASCII)",
            where=where,
            hint="Set it again: copy the key alone.",
        )
    return SecretStr(value)


def read_api_key(variable: str, *, keys_file: Path) -> SecretStr:
    """Return the key named `variable`; a `ConfigurationError` names it when it is missing."""
    key = find_api_key(variable, keys_file=keys_file)
    if key is None:
        raise ConfigurationError(
            f"no API key: the environment variable {variable} is not set",
            hint=f'export {variable}=..., or write the line {variable} = "..." into '
            f"{keys_file} (mode 600).",
        )
    return key


def _read_keys(keys_file: Path) -> dict[str, str]:
    try:
        with keys_file.open("rb") as file:
            _check_mode(os.fstat(file.fileno()).st_mode, keys_file=keys_file)
            keys = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        # the parser's own words may quote the line, and with it the key
        reason = error.strerror if isinstance(error, OSError) else "it is not valid TOML"
        raise ConfigurationError(
            f"the key file cannot be read: {reason}",
            where=str(keys_file),
            hint='Write one line for each variable: ARK_API_KEY = "..."',
        ) from None
    return {name: key for name, key in keys.items() if isinstance(key, str)}


def _check_mode(mode: int, *, keys_file: Path) -> None:
    permissions = stat.S_IMODE(mode)
    if permissions & ~0o600:
        raise ConfigurationError(
            f"the key file's mode is {permissions:03o}, so others may read it",
            where=str(keys_file),
            hint=f"chmod 600 {shlex.quote(str(keys_file))}",
        )
