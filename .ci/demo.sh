#!/bin/sh
# What a newcomer would type first, each command shown before it runs.
set -eu
bin=$(cd "$1" && pwd)
PATH=$bin:$PATH
export PATH

say_and_run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/arkdev-demo.XXXXXX")
say_and_run arkdev init workspace "$folder/weather" --template rl_demo
say_and_run cd "$folder/weather"
say_and_run arkdev test plugin
say_and_run arkdev test plugin --sample 0
printf '\nThe workspace stays. To go on with it:\n\n  cd %s\n  . %s/activate\n  arkdev runs\n\nTo train on this machine, without a GPU:\n\n  pip install "arkdev[local]"\n  arkdev train --backend local\n' \
    "$folder/weather" "$bin"
