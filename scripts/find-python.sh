#!/bin/sh
# Print the first Python on the path that is 3.11 or later and can make virtual environments.
for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
    then
        command -v "$name"
        exit 0
    fi
done
