#!/usr/bin/env bash
# Training on this machine: installs arkdev[local] and the metric sinks into an environment of its own (2 GB, once) and
# runs the tests marked `local`.
#   bash .ci/local.sh                     ARKDEV_LOCAL_DIR=FOLDER chooses where it lives
#   bash .ci/local.sh install             the environment alone
set -euo pipefail
cd "$(dirname "$0")/.."
home=${ARKDEV_LOCAL_DIR:-$PWD/.cache/local}
export PIP_DISABLE_PIP_VERSION_CHECK=1
if [ ! -f "$home/.installed" ] || ! cmp -s pyproject.toml "$home/.installed"; then
    rm -rf "$home"
    .venv/bin/python -m venv "$home"
    nice "$home/bin/python" -m pip install -qq -e '.[dev,local,mlflow,tensorboard,trackio,wandb]'
    cp pyproject.toml "$home/.installed"
fi
[ "${1:-}" = install ] && exit
ARKDEV_REQUIRE_ENGINES=1 "$home/bin/python" -m pytest tests/local -m local --durations=5
