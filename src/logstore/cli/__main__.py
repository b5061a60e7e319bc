"""Run the command line as `python -m logstore.cli`."""

from logstore.cli import main

main()
