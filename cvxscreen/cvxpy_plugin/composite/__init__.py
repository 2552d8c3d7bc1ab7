"""Losses that can be screened beside a convex part ``g`` of the objective that cannot.

`problem` recognises ``F + g``: a sum of losses F, maxima of affine functions and terms kept as they
are. Affine functions below g (`recognise.max_affine`) make every bound and certificate of F one of
``F + g``. `rounds` predicts or proves, leaves out what is decided, solves what is left and
certifies.
"""
