#!/usr/bin/env bash
# The wheel as a user gets it: built, installed into an empty environment with a fresh home, and
# used from another folder with each template.   bash .ci/wheel.sh SCRATCH_FOLDER
set -euo pipefail
scratch=$1
python=$PWD/.venv/bin/python
mkdir -p "$scratch/home"

"$python" -m build --wheel --outdir "$scratch" . >"$scratch/build.log" 2>&1 || {
    cat "$scratch/build.log"
    exit 1
}
"$python" -m venv "$scratch/venv"
cd "$scratch"
venv/bin/python -m pip install -qq ./*.whl
export HOME=$scratch/home PATH=$scratch/venv/bin:$PATH
unset ARKDEV_DOCS_DIR ARK_API_KEY ARK_BASE_URL SEARCH_API_KEY

for unwanted in torch transformers vllm ray docker tos volcengine-ark-runtime volcengine-python-sdk; do
    if python -m pip show --quiet "$unwanted" 2>/dev/null; then
        echo "installing arkdev brought $unwanted along"
        exit 1
    fi
done
python - <<'CHECK'
from importlib.resources import files

package = files("arkdev")
assert "site-packages" in str(package), package
for name in ("py.typed", "templates/rl_demo/job.yaml", "templates/rl_search_mcp_demo/job.yaml",
             "templates/minimal/job.yaml"):
    assert package.joinpath(name).is_file(), f"{name} is not in the wheel"
CHECK

for template in rl_demo minimal rl_search_mcp_demo; do
    echo "-- arkdev init $template; arkdev test plugin"
    arkdev init workspace "$scratch/$template" --template "$template"
    cd "$scratch/$template"
    # the packages of rl_demo and minimal come with arkdev; the others are the workspace's own
    if [ "$template" = rl_search_mcp_demo ]; then
        python -m pip install -qq -r requirements.txt
    fi
    arkdev test plugin
done
