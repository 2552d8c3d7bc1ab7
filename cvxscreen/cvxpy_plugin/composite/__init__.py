"""Losses that can be screened beside a convex part ``g`` of the objective that cannot.

`problem` recognises ``F + g``: a sum of losses F, maxima of affine functions (see
`recognise.max_affine`) and terms kept as they are. `minorant` bounds g from below by affine
functions, which makes every bound and certificate of F one of ``F + g``. `rounds` predicts or
proves, leaves out what is decided, solves what is left and certifies.
"""
