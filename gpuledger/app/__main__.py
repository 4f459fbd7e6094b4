"""`python -m gpuledger.app`: the command line."""

from gpuledger.app.cli import main

main()
