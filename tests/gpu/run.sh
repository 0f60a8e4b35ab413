#!/bin/sh
# Tries on this machine's GPUs what gpu_magic relies on, and leaves report.json and seen.md beside this file.
#
#     ./run                              the first Python @PYTHON_VERSION@ that has PyTorch
#     PYTHON=/opt/env/bin/python ./run   another one
#
# It needs no network, no root and no pip, installs nothing outside this folder, and takes up to 8 minutes.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
wanted=@PYTHON_VERSION@

fits() { # a Python of the version, with the modules that are named
    "$1" -c '
import importlib.util, sys
wanted, *modules = sys.argv[1:]
is_one = "%d.%d" % sys.version_info[:2] == wanted and all(map(importlib.util.find_spec, modules))
sys.exit(not is_one)' "$wanted" ${2:-} 2>/dev/null
}

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || { echo "$PYTHON is not Python $wanted, for which the wheels here are." >&2; exit 2; }
else
    for modules in torch ''; do
        for candidate in python python3 "python$wanted"; do
            [ -z "${PYTHON:-}" ] && fits "$candidate" $modules && PYTHON=$candidate
        done
    done
    [ -n "${PYTHON:-}" ] || { echo "There is no Python $wanted here, for which the wheels are: PYTHON=… $0" >&2; exit 2; }
fi

# Where this folder can't be written to, all goes to a new one.
to=$here
[ -w "$here" ] || { to=$(mktemp -d); echo "$here can't be written to; all goes to $to."; }
[ -e "$to/installed/complete" ] || {
    rm -rf "$to/installed"
    "$PYTHON" "$here/unpack.py" "$here/wheels" "$to/installed"
    touch "$to/installed/complete"
}
export PYTHONPATH="$here:$to/installed${PYTHONPATH:+:$PYTHONPATH}"
cd "$here"
exec "$PYTHON" -m tests.gpu "$to" "$@"
