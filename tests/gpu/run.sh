#!/bin/sh
# Tries the claims that gpu_magic relies on, on this machine's GPUs. Writes report.json and seen.md beside this file.
#
#     ./run                              with the first Python @PYTHON_VERSION@ that has PyTorch
#     PYTHON=/opt/env/bin/python ./run   with another Python
#
# It needs no network, no root and no pip, installs nothing outside this folder, and runs for up to 8 minutes.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
wanted=@PYTHON_VERSION@

fits() { # whether a Python has the version and the named modules
    "$1" -c '
import importlib.util, sys
wanted, *modules = sys.argv[1:]
is_one = "%d.%d" % sys.version_info[:2] == wanted and all(map(importlib.util.find_spec, modules))
sys.exit(not is_one)' "$wanted" ${2:-} 2>/dev/null
}

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || { echo "$PYTHON is not Python $wanted. The wheels here need Python $wanted." >&2; exit 2; }
else
    for modules in torch ''; do
        for candidate in python python3 "python$wanted"; do
            [ -z "${PYTHON:-}" ] && fits "$candidate" $modules && PYTHON=$candidate
        done
    done
    [ -n "${PYTHON:-}" ] || {
        echo "No Python $wanted found. The wheels here need it. Try PYTHON=/path/to/python$wanted $0" >&2
        exit 2
    }
fi

# If this folder is not writable, all files go to a new folder.
to=$here
[ -w "$here" ] || { to=$(mktemp -d); echo "$here is not writable. All files go to $to."; }
[ -e "$to/installed/complete" ] || {
    rm -rf "$to/installed"
    "$PYTHON" "$here/unpack.py" "$here/wheels" "$to/installed"
    touch "$to/installed/complete"
}
export PYTHONPATH="$here:$to/installed${PYTHONPATH:+:$PYTHONPATH}"
cd "$here"
exec "$PYTHON" -m tests.gpu "$to" "$@"
