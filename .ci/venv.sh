#!/bin/sh
# Make .venv when there is none, then install into it.
#   sh .ci/venv.sh SPEC [PYTHON]      SPEC as pip takes it after -e: '.' or '.[dev]'
# Needs Python >= 3.11 with pip, nothing else. Debian's Python has pip but may lack ensurepip:
# then pip comes from the outer Python.
set -eu
spec=$1
wanted=${2:-}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

pick_python() {
    for candidate in ${wanted:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    if [ -n "$wanted" ]; then
        echo "PYTHON=$wanted is not a Python 3.11 or later." >&2
    else
        echo "No Python 3.11 or later found: neither python3 nor python3.11 to python3.14 on PATH." >&2
    fi
    echo "Install one, or name it: make test PYTHON=/path/to/python3" >&2
    return 1
}

if ! is_new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(pick_python)
    echo "Making .venv with $("$python" --version) ..."
    if ! "$python" -m venv --clear .venv >/dev/null 2>&1; then
        "$python" -m venv --clear --without-pip .venv
        "$python" -m pip --python .venv/bin/python install -qq pip
    fi
fi

echo "Installing $spec into .venv (once, and again when pyproject.toml changes) ..."
.venv/bin/python -m pip install -qq -e "$spec"
