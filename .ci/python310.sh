#!/usr/bin/env bash
# The function wheel works on Python 3.10 with pydantic and nothing else, as inside a function.
#   bash .ci/python310.sh SCRATCH_FOLDER
set -euo pipefail
scratch=$1
host=$PWD/.venv/bin/python
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
"$host" - "$scratch" <<'WHEEL'
import sys
from pathlib import Path

from arkdev.faas_emulator.packages.function_wheel import function_wheel

function_wheel(Path(sys.argv[1]))
WHEEL
"$scratch/bin/python" -m pip install -qq "$scratch"/arkdev-*.whl
cd "$scratch"
bin/python - <<'CHECK'
import importlib
import pkgutil
import sys

from ark_sdk.resources.pipeline_plugin import rollout

import arkdev.faas_emulator.worker
import arkdev.plugin

assert "site-packages" in arkdev.__file__ and arkdev.rollout is rollout
names = ["arkdev", "arkdev.types", "arkdev.errors", "arkdev.plugin"]
for package in (arkdev.plugin, arkdev.faas_emulator.worker):
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names += [module.name for module in found if not module.name.endswith("__main__")]
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
