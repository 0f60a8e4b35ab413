#!/bin/sh
# Sees to what the tests need that pip does not install: a compiler, and Chromium, which this installs where it may.
may=
if [ "$(id -u)" = 0 ]; then
    sudo= may=yes
else
    sudo='sudo '
    sudo -n true 2>/dev/null && may=yes
fi

missing=
command -v gcc >/dev/null || missing="$missing gcc"
command -v g++ >/dev/null || missing="$missing g++"
compilers=$missing
if [ -n "$CHROMIUM" ]; then
    command -v "$CHROMIUM" >/dev/null || { echo "make test: CHROMIUM=$CHROMIUM is no program." >&2; exit 1; }
else
    command -v chromium >/dev/null || missing="$missing chromium"
fi
[ -n "$missing" ] || exit 0

command="${sudo}apt-get update && ${sudo}apt-get install --yes --no-install-recommends$missing"
if [ -z "$compilers" ] && [ -n "$may" ] && command -v apt-get >/dev/null; then
    echo "make test: installing Chromium, in which the panel is tested."
    export DEBIAN_FRONTEND=noninteractive
    sh -c "$command" >/dev/null && command -v chromium >/dev/null && exit 0
fi
echo "make test: missing:$missing. Debian: $command (another Chromium: CHROMIUM=path make test)" >&2
exit 1
