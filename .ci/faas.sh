#!/usr/bin/env bash
# The FaaS emulator against a real container engine: the tests marked `docker`.
#   bash .ci/faas.sh
# Uses the engine that answers; otherwise starts one with ../shared/tools/docker-engine.sh, where
# there is one, and stops it in the end.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
starter=../shared/tools/docker-engine.sh
export ENGINE_DIR=${ENGINE_DIR:-/tmp/arkdev-engine}

answers() {
    "$python" -c 'import docker; docker.from_env(timeout=5).ping()' >/dev/null 2>&1
}

if ! answers && [ -f "$ENGINE_DIR/env" ]; then
    . "$ENGINE_DIR/env"
fi
if ! answers; then
    if [ ! -f "$starter" ]; then
        echo "no container engine answers, and there is nothing to start one with" >&2
        exit 1
    fi
    starter=$(realpath "$starter")
    trap 'bash "$starter" down' EXIT
    bash "$starter" up
    . "$ENGINE_DIR/env"
fi
ARKDEV_REQUIRE_ENGINES=1 "$python" -m pytest tests/docker -m docker --durations=5
