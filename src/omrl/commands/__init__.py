"""What each subcommand takes: its arguments, their defaults and the sentences of `--help`.

There is a file for each. Nothing here needs torch, so that `omrl --help` answers at once; who does the work is listed
in `cli.py`.
"""
