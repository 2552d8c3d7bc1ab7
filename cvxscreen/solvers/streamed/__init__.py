"""Solving over data in chunks: passes, reduced problems in memory, one certificate."""
