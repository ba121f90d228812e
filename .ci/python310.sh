#!/usr/bin/env bash
# What a plugin imports also works on Python 3.10 with pydantic and nothing else, as inside a
# function container.   bash .ci/python310.sh SCRATCH_FOLDER
set -euo pipefail
scratch=$1
python=
for candidate in python3.10 "${PYENV_ROOT:-/nowhere}"/versions/3.10.*/bin/python3.10; do
    if "$candidate" -c '' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "SKIPPED: there is no Python 3.10 on this machine"
    exit 0
fi
"$python" -m venv "$scratch"
"$scratch/bin/python" -m pip install -qq 'pydantic>=2.8,<3'
"$scratch/bin/python" - <<'CHECK'
import importlib
import pkgutil
import sys

import arkdev.faas_emulator.worker
import arkdev.plugin

names = ["arkdev", "arkdev.types", "arkdev.errors"]
for package in (arkdev.plugin, arkdev.faas_emulator.worker):
    names.append(package.__name__)
    found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    names += [module.name for module in found]
leaves = []
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("openai", "aiohttp", "requests", "urllib3"):
            raise
        leaves.append(name)  # loaded when a plugin uses that library
for name in arkdev.__all__:
    getattr(arkdev, name)
print(f"Python {sys.version.split()[0]}: {len(names)} modules, {len(arkdev.__all__)} names; "
      f"these wait for a library: {', '.join(leaves) or 'none'}")
CHECK
