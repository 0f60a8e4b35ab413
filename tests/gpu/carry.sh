#!/bin/sh
# Makes a folder that tries all claims on a machine without network:
#
#     tests/gpu/carry.sh FOLDER [PYTHON_VERSION] [MACHINE] [PACKAGE ...]
#     tests/gpu/carry.sh build/gpu-kit 3.12 x86_64 bitsandbytes
#
# The packages are added without what they depend on. There, `PYTHON=/path/to/python FOLDER/run` tries the claims, or
# with the first Python of that version on the PATH. It needs PyTorch beside that Python, an NVIDIA GPU and about ten
# minutes, and writes report.json, which goes into tests/gpu/reports. It needs no pip, no root, and writes nothing
# outside of the folder. `run -k "checkpoint or parking"` tries some. `timeout -s INT 280 run` ends it in time, and
# still leaves the report. Run this script with a Python that is no newer than that one.
set -eu
cd "$(dirname "$0")/../.."
folder=${1:?"usage: $0 FOLDER [PYTHON_VERSION] [MACHINE] [PACKAGE ...]"} version=${2:-3.12} machine=${3:-x86_64}
python=${BIN:-.venv/bin}/python
shift "$(($# < 3 ? $# : 3))"
rm -rf "$folder/wheels" "$folder/site" "$folder/tests" "$folder/benchmarks"
mkdir -p "$folder/wheels" "$folder/tests" "$folder/benchmarks"
# Wheels, which `run` unpacks, because they are a fifth as large as what is in them.
download() {
    "$python" -m pip download --quiet --dest "$folder/wheels" --only-binary=:all: --implementation cp \
        --python-version "$version" --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_24_$machine" --platform "manylinux_2_28_$machine" "$@"
}
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder/wheels" .
download "$folder"/wheels/gpu_magic-*.whl ipykernel pytest
# The debugger and what only a page loads
rm -f "$folder"/wheels/debugpy-* "$folder"/wheels/widgetsnbextension-* "$folder"/wheels/jupyterlab_widgets-*
[ $# = 0 ] || download --no-deps "$@"
cp -r tests/gpu "$folder/tests/"
rm -rf "$folder"/tests/gpu/reports "$folder"/tests/gpu/test_[!c]*.py "$folder"/tests/gpu/__pycache__ \
    "$folder"/tests/gpu/programs/__pycache__
touch "$folder/tests/__init__.py" # a package, found before a "tests" that another package has left in site-packages
cp benchmarks/__init__.py benchmarks/measure.py benchmarks/readers.py "$folder/benchmarks/"
cat >"$folder/pytest.ini" <<'INI'
[pytest]
addopts = --import-mode=importlib -p no:cacheprovider
pythonpath = .
markers =
    gpu
    timeout
INI
cat >"$folder/run" <<RUN
#!/bin/sh
cd "\$(dirname "\$0")"
python="\${PYTHON:-python$version}"
[ -d site ] || {
    rm -rf unpacked
    for wheel in wheels/*.whl; do "\$python" -m zipfile -e "\$wheel" unpacked || exit; done
    "\$python" -m compileall -q -j 0 unpacked || echo "some files do not compile"
    mv unpacked site
}
export PYTHONPATH="\$PWD/site\${PYTHONPATH:+:\$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
exec "\$python" -m pytest -m gpu -rs --gpu-report report.json tests/gpu "\$@"
RUN
chmod +x "$folder/run"
