"""The command line as a stranger and a script meet it: processes, exit codes, what is printed where."""
