"""`python -m gpuledger.app`: the command line."""

from gpuledger.app.start import main

main()
