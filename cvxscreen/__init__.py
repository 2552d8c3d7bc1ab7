"""cvxscreen: make a large regularised problem small without changing its answer."""
