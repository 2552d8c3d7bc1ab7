"""Solutions along a grid of C or lambda: run, record, checkpoint."""
