"""Linear maps ``x -> (<a_i, x>)_i``: the only modules that know how data are stored."""
