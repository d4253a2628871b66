"""What can go wrong with the store, by what the caller does next.

StoreError
  StoreMissingError    there is none: nothing is known, which is not the same as "there is nothing"
  StoreDamagedError    unreadable: stop; the copy stays where it is until somebody asks for a rebuild
  StoreTooNewError     written by a newer tpuctl: upgrade this one
  StoreFullError       the disk is full: nothing of the transaction was kept; make room, then again
  StoreBusyError       another process writes for longer than the time limit: again later
  LeaseTakenError      that slice is not to be had
  SliceHeldError       that slice may not be deleted while a run holds it
"""

from __future__ import annotations

from tpuctl.base.errors import StaleError, TpuctlError, UserError


class StoreError(TpuctlError):
    pass


class StoreMissingError(StoreError):
    pass


class StoreDamagedError(StoreError):
    pass


class StoreTooNewError(StoreError, UserError):
    exit_code = 2


class StoreFullError(StoreError):
    pass


class StoreBusyError(StoreError):
    pass


class LeaseTakenError(StaleError):
    """A slice is leased, not READY, or marked for deletion. None of the leases asked for was taken."""


class SliceHeldError(StaleError):
    """A lease holds the incarnation, so its deletion was not marked."""
