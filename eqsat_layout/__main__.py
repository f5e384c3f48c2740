"""``python -m eqsat_layout``: the command line, where its script is not on the path."""

from eqsat_layout.cli.main import main

main()
