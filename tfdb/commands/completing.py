"""Completion and the toolbar at both prompts: matchers in IPython's completer, pdb's own completion in plain."""

from __future__ import annotations

import re
from typing import Any

from tfdb import completion as candidates
from tfdb import render
from tfdb.commands.base import PromptBase

WORD = re.compile(r"\S*$")


class CompletingPrompt(PromptBase):
    """Mixed in before a pdb class; neither prompt nor completion changes what commands do."""

    @property
    def completion(self) -> candidates.Completion:
        """The candidates at this stop."""
        return candidates.Completion(self)

    def completenames(self, text: str, line: str, begidx: int, endidx: int) -> list[str]:
        """The plain prompt's completion of a command's name (cmd's door)."""
        return self.completion.candidates(line[:endidx], text)

    def complete(self, text: str, state: int) -> Any:
        """The plain prompt's completion (readline's door): tfdb's candidates, then pdb's."""
        if state == 0:
            import readline

            line = readline.get_line_buffer()[: readline.get_endidx()]
            word = WORD.search(line)
            whole = word[0] if word else text
            start = len(whole) - len(text)
            own = [each[start:] for each in self.completion.candidates(line, whole)]
            super().complete(text, 0)
            found = list(dict.fromkeys([*own, *(getattr(self, "completion_matches", None) or ())]))
            setattr(self, "completion_matches", found)  # noqa: B010  # cmd's own
        matches = getattr(self, "completion_matches", ())
        return matches[state] if state < len(matches) else None

    def pt_init(self, pt_session_options: Any = None) -> None:
        """IPython's terminal prompt: with the toolbar, and with tfdb's names in its completer."""
        chosen = {"bottom_toolbar": self.bottom_toolbar, **(pt_session_options or {})}
        super().pt_init(chosen)
        completer = self._ptcomp.ipy_completer
        completer.custom_matchers.insert(0, self.matcher())

    def matcher(self) -> Any:
        """A matcher for IPython's completer; after a command that takes names of its own, the only one."""
        try:
            from IPython.core.completer import SimpleCompletion, context_matcher
        except ImportError:  # before IPython 8.6 a matcher gets the word alone
            return lambda text: self.completion.candidates(text, text)

        @context_matcher()
        def tfdb_matcher(context: Any) -> dict[str, Any]:
            line = context.text_until_cursor
            word = WORD.search(line)
            whole = word[0] if word else ""
            found = [
                SimpleCompletion(each, type=candidates.kind_of(line, each))
                for each in self.completion.candidates(line, whole)
            ]
            command = line.split(" ")[0]
            if "." in whole and command not in candidates.OWN_NAMES:  # attributes are IPython's
                found = []
            named = command in candidates.OWN_NAMES or (command in candidates.EXPRESSION_COMMANDS and "." not in whole)
            alone = bool(found) and (named or whole.startswith("-"))
            return {"completions": found, "matched_fragment": whole, "suppress": alone}

        return tfdb_matcher

    def bottom_toolbar(self) -> str | None:
        """The line below IPython's prompt at a graph stop; none elsewhere."""
        return render.shorten(candidates.toolbar(self.graph_stop), render.terminal_width()) or None
