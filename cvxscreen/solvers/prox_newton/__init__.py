"""Proximal Newton steps under an L1 term, and the loop around them over features and terms."""
