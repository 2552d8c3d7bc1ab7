"""What every layer uses: checks of arguments, rounding, limits, memory, tables, compiled loops."""
