"""Define the commands of the command line, a module for each family."""
