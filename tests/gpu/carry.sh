#!/bin/sh
# Makes a folder that tries all claims on a machine without network: tests/gpu/carry.sh FOLDER [3.12] [x86_64]
#
# There, ./run uses the first Python of that version, or PYTHON=/path/to/python ./run. It needs PyTorch beside that
# Python, an NVIDIA GPU and about 6 minutes, and writes report.json, which goes into tests/gpu/reports. It needs no pip,
# no root, and installs nothing outside of the folder. Run this script with a Python that is no newer than that one.
set -eu
cd "$(dirname "$0")/../.."
folder=${1:?"usage: $0 FOLDER [PYTHON_VERSION] [MACHINE]"} version=${2:-3.12} machine=${3:-x86_64}
python=${BIN:-.venv/bin}/python
mkdir -p "$folder/tests"
wheel=$(mktemp -d)
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheel" .
"$python" -m pip install --quiet --target "$folder/site" --only-binary=:all: --implementation cp \
    --python-version "$version" --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
    --platform "manylinux_2_28_$machine" "$wheel"/*.whl ipykernel pytest
rm -r "$wheel"
cp -r tests/gpu "$folder/tests/"
rm -rf "$folder"/tests/gpu/reports "$folder"/tests/gpu/test_reports.py "$folder"/tests/gpu/__pycache__
touch "$folder/tests/__init__.py" # a package, found before a "tests" that another package has left in site-packages
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
export PYTHONPATH="\$PWD/site\${PYTHONPATH:+:\$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
exec "\${PYTHON:-python$version}" -m pytest -m gpu -rs --gpu-report report.json tests/gpu "\$@"
RUN
chmod +x "$folder/run"
