"""The error family. It follows what the caller does next, not what went wrong:

    TpuctlError                exit 1   the command failed
      UserError                exit 2   the spec, the arguments or a permission must be mended; no call was made
      RetryLaterError          exit 1   the same again after `after_s`
      ElsewhereError           exit 1   another zone may work
      StaleError               exit 1   observe again: the decision no longer holds
      BusyError                exit 4   another pass holds the lock
      PartialError             exit 3   part of the work failed or is unknown, the rest was done
      BugError                 exit 1   cannot happen; report it

Rooms derive their own classes from these. A message says what happened, to which object, and what to do.
"""

from __future__ import annotations


class TpuctlError(Exception):
    """`str(error)` is for people, one paragraph, without a trailing newline."""

    exit_code = 1


class UserError(TpuctlError):
    exit_code = 2


class RetryLaterError(TpuctlError):
    def __init__(self, message: str, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


class ElsewhereError(TpuctlError):
    """This zone cannot help; another one might."""


class StaleError(TpuctlError):
    """The world moved between the decision and the deed."""


class BusyError(TpuctlError):
    exit_code = 4


class PartialError(TpuctlError):
    exit_code = 3


class BugError(TpuctlError):
    """A state that the design excludes."""
