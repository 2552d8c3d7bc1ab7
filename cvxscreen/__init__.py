"""cvxscreen: make a large regularised problem small without changing its answer.

Importing the package registers ``prob.solve(method="screen")`` with CVXPY and does nothing else:
every public name is imported when it is first used, from where ``__init__.pyi`` says it lives.
"""

import lazy_loader

from cvxscreen.registration import register

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register()
