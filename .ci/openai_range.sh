#!/usr/bin/env bash
# Client wrapping with the oldest and the newest openai that pyproject.toml allows.
#   bash .ci/openai_range.sh SCRATCH_FOLDER
set -euo pipefail
scratch=$1
python=$PWD/.venv/bin/python
range=$("$python" -c '
import re, tomllib
dependencies = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
print(*[re.sub("^openai", "", name) for name in dependencies if re.match("openai[^a-z]", name)])
')
oldest=$(printf '%s' "$range" | sed -E 's/.*>=([0-9.]+).*/\1/')

marked=$(grep -rl openai_range tests/contract --include='*.py')

check() { # check NAME REQUIREMENT
    "$python" -m venv "$scratch/$1"
    "$scratch/$1/bin/python" -m pip install -qq -e . pytest pytest-asyncio "$2"
    "$scratch/$1/bin/python" -c '
import sys, openai
print(f"-- openai {openai.__version__}, Python {sys.version.split()[0]}")'
    # what other packages say of each other at the ends of the range is not ours to mend
    # (only the files that have such tests: others import packages that these environments lack)
    "$scratch/$1/bin/python" -m pytest $marked -m openai_range -W default
}

check oldest "openai==$oldest"
check newest "openai$range"
