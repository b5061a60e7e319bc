#!/bin/sh
# Print a Python that is 3.11 or later and can make virtual environments: $PYTHON, or the first one
# on the path. Nothing is printed when there is none; with --or-complain, an error is.
for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
    then
        command -v "$name"
        exit 0
    fi
done
[ "$1" != --or-complain ] || echo "Python 3.11 or later with the module venv is needed" >&2
[ "$1" != --or-complain ]
