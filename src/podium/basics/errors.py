"""How a command ends when it does not end well."""

STOPPED = 75  # exit status: a signal stopped the command, and the same command resumes


class PodiumError(Exception):
    """A mistake that the user can correct: one sentence with what happened, where, and what to do."""

    in_all_processes = False  # true: every process of a group raises it, and the first one reports it

    def _render_traceback_(self) -> list[str]:
        """Shows the sentence alone in a notebook: IPython asks for this."""
        return [f"PodiumError: {self}"]


class InUse(PodiumError):
    """Another process works on what this one needs: later it may be free."""


class MissingFiles(PodiumError):
    """Images or labels that a competition must have are not there: they may still be in an archive."""


class NoSpaceLeft(PodiumError):
    """The disk, or the user's share of it, is full."""
