"""TensorFlow's private names behind `enable_check_numerics`, and those that make the gate cheap; see internals.py."""

import sys
from collections.abc import Callable
from typing import Any

from tfdb.internals import current_graph, is_xla, private


class NumericsCheck:
    """The program's own `tf.debugging.enable_check_numerics`, which can be set aside on all threads at once.

    Its callback passes over the types of ops that its module lists as safe: set aside, that list holds every type.
    The callback itself stays where the program put it, so that enabling and disabling it work as ever.
    """

    def __init__(self) -> None:
        self.kept: Any = None

    def set_aside(self, heard: Callable[[], None]) -> None:
        """Check nothing from now on; `heard` is called once, when the program has it enabled.  Idempotent."""
        module = self.module()
        if self.kept is None:
            self.kept, module.SAFE_OPS = module.SAFE_OPS, Everything(heard)

    def put_back(self) -> None:
        """Check as the program asked for.  Idempotent."""
        if self.kept is not None:
            self.module().SAFE_OPS, self.kept = self.kept, None

    def module(self) -> Any:
        """The module behind `tf.debugging.enable_check_numerics`."""
        private("debug.lib.check_numerics_callback", "SAFE_OPS")
        return sys.modules["tensorflow.python.debug.lib.check_numerics_callback"]


class Everything:
    """A container of everything, which calls `heard` the first time that it is asked."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self.heard: Callable[[], None] | None = heard

    def __contains__(self, item: object) -> bool:
        heard, self.heard = self.heard, None
        if heard is not None:
            heard()
        return True


numerics_check = NumericsCheck()


def eagerly() -> Callable[[], bool]:
    """The function that says whether ops run at once on this thread; TensorFlow's own, in one call and not three."""
    private("eager.context", "executing_eagerly")
    module: Any = sys.modules["tensorflow.python.eager.context"]
    if not hasattr(module, "_context") or not hasattr(module.context(), "_thread_local_data"):
        return private("eager.context", "executing_eagerly")

    def executing() -> bool:
        context = module._context
        return context._thread_local_data.is_eager if context is not None else module.executing_eagerly()

    return executing


def under_xla() -> bool:
    """Whether this thread traces a function that XLA compiles."""
    graph = current_graph()
    return graph is not None and is_xla(graph)


def trace_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The trace that a call of a compiled `tf.function` will run, traced now if need be; raises as the call."""
    with private("eager.polymorphic_function.polymorphic_function", "OptionalXlaContext")(True):
        return function.get_concrete_function(*args, **kwargs)
