"""What every mixin of commands may count on: the pdb that it is mixed into, told to the type checker alone."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pdb
    from types import FrameType

    from tfdb.linehooks import Hit
    from tfdb.session import Session
    from tfdb.stopping import GraphStop

    class PromptBase(pdb.Pdb):
        """pdb as the mixins see it, with what `prompt.Commands` adds."""

        session: Session
        graph_stop: GraphStop | None
        wreck: Any
        curframe: FrameType
        curframe_locals: dict[str, Any]
        quitting: bool
        breaks: dict[str, list[int]]
        botframe: Any
        stopframe: Any
        stoplineno: int

        currentbp: Any
        do_why: Any
        displaying: Any
        execution: Any
        here: Any
        page: Any
        substitutes: Any
        activations_here: Any
        tapes_here: Any
        target: Any
        undisturbed: Any
        value_of: Any
        views: Any
        wreck_frame: Any
        _ptcomp: Any
        use_rawinput: bool

        def _getval(self, arg: str) -> Any: ...
        def _getval_except(self, arg: str, frame: Any = None) -> Any: ...
        def _error_exc(self) -> None: ...
        def _add_to_breaks(self, filename: str, lineno: int) -> None: ...
        def _prune_breaks(self, filename: str, lineno: int) -> None: ...
        def _set_stopinfo(self, *arguments: Any, **options: Any) -> None: ...
        def pt_init(self, pt_session_options: Any = None) -> None: ...
        def evaluate(self, expression: str) -> Any: ...
        def in_colour(self) -> bool: ...
        def is_hidden(self, frame: FrameType) -> bool: ...
        def step_in_eager(self, frame: FrameType | None) -> None: ...
        def trace_function(self) -> Any: ...
        @property
        def graph_hit(self) -> Hit | None: ...

else:

    class PromptBase:
        """Nothing: the pdb class comes last in the bases of the debugger."""
