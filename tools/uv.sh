# shellcheck shell=sh
# Shared by the tools in this folder: `. tools/uv.sh; prepare` in the root of the checkout sets $uv and
# $venv, and `run_module MODULE ARGUMENT...` runs a module of the checkout at $root from any directory.
# Everything is installed inside the checkout, from PyPI.

unset VIRTUAL_ENV # an environment activated in the caller's shell may belong to another project
UV_PYTHON_DOWNLOADS=${UV_PYTHON_DOWNLOADS:-never}
export UV_PYTHON_DOWNLOADS
venv=${UV_PROJECT_ENVIRONMENT:-.venv}

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Print the interpreters of Python 3.13, 3.12 and 3.11, then those of newer versions. Each name is run, because a
# name in PATH may be a shim for a version that is not installed.
pythons() {
    for name in python3 python3.11 python3.12 python3.13 python3.14; do
        "$name" 2>/dev/null -c '
import sys
version = sys.version_info[:2]
version >= (3, 11) and print(version <= (3, 13), "%d.%d" % version, sys.executable)' || :
    done | LC_ALL=C sort -r | cut -d " " -f 3-
}

# Succeed if $1 is a uv that supports the options and the lock file used here.
is_recent_uv() {
    case $("$1" --version 2>/dev/null) in
        "uv 0."[0-6].*) return 1 ;;
        "uv "*) return 0 ;;
        *) return 1 ;;
    esac
}

# Install uv into a virtual environment, because the system's pip may refuse to install; without the venv
# module, install it with --target.
install_uv() {
    "$python" -m venv .cache/uv && .cache/uv/bin/python -m pip install uv && return
    rm -rf .cache/uv
    "$python" -m pip install --target .cache/uv uv
}

find_uv() {
    for uv in uv "$PWD/.cache/uv/bin/uv"; do
        if is_recent_uv "$uv"; then return; fi
    done
    [ -n "$python" ] || return 0
    echo "Installing uv into .cache/uv" >&2
    rm -rf .cache/uv
    log=$(install_uv 2>&1) || fail "uv could not be installed by $python:
$log
Install the venv module (Debian, Ubuntu: apt install python3-venv) or uv itself, then try again."
}

# The first sync uses UV_PYTHON, or else the first interpreter of `pythons`; an existing environment keeps its interpreter.
prepare() {
    python=$(pythons | head -n 1)
    find_uv
    [ -n "$python" ] || python=$("$uv" python find --no-project '>=3.11' 2>/dev/null) ||
        fail "Python 3.11 or newer is needed, and none was found"
    [ -x "$venv/bin/python" ] || export UV_PYTHON="${UV_PYTHON:-$python}"
}

run_module() {
    case $venv in /*) python=$venv/bin/python ;; *) python=$root/$venv/bin/python ;; esac
    if ! "$python" -c 'import pytest' 2>/dev/null; then (cd -- "$root" && prepare && "$uv" sync --quiet --locked); fi
    PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m "$@"
}
