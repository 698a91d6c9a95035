"""Names in Python's own errors, which show where a function was defined."""

from types import FunctionType

__all__ = ["name_methods"]


def name_methods(*classes):
    """Give classes methods of their own name in place of inherited ones of the package.

    Python writes "PrivateMTL.fit() got an unexpected keyword argument" then, and not the name of an
    internal base.
    """
    package = __name__.partition(".")[0]
    own = []
    for cls in classes:
        methods = {}
        for base in reversed(cls.__mro__):
            methods |= vars(base)
        for name, method in methods.items():
            if (name == "__init__" or not name.startswith("_")) and type(method) is FunctionType:
                if method.__module__.partition(".")[0] == package and name not in vars(cls):
                    own.append((cls, name, method))
    for cls, name, method in own:  # after all were read: classes may inherit from each other
        setattr(cls, name, _called(method, f"{cls.__qualname__}.{name}"))


def _called(function, qualname):
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    copy.__module__, copy.__dict__ = function.__module__, dict(vars(function))
    copy.__annotations__, copy.__qualname__ = dict(function.__annotations__), qualname
    return copy
