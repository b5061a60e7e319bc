"""Define the commands of the command line, with one module for each family of commands."""
