"""From intervals to verdicts, to a reduced problem and back, and for how long verdicts hold."""
