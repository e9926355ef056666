"""When a run gives its server up.

Requests that fail must fail the job only once all others are answered and stored. But a server that is down,
or that turns down whatever it is asked, must not be asked 57,000 times. So a run ends after `HOPELESS`
failures in a row, and these are the rules:

- A request that is turned down for good (HTTP 400) counts only while nothing has ever been answered, by this
  run or in the store: a server that has answered others is up. With `partial: allow` it never counts.
- A request that could not be sent never counts: it says nothing about the server.
- After half of `HOPELESS` the next requests come from the far end of the queue and from anywhere in it, in
  turn: neighbours may share what fails, an image say, and must not hide the good ones behind them.
- Requests under way at the same time fail together, before anything can be asked from elsewhere, so all but one
  of those are allowed on top.
- With `partial: allow`, and something answered before, `PATIENCE` times as many end the run: those still to be
  asked may be just the ones that always fail, and the config lets them.
"""

import random

from reftables.errors import DataError
from reftables.models.faults import NoAnswerError, UnsendableError
from reftables.models.job import Job

HOPELESS = 20
PATIENCE = 10


class Hope:
    """Counts how the requests of a run end. Its caller holds a lock."""

    def __init__(self, job: Job, in_flight: int = 1) -> None:
        self.failures = 0  # in a row
        self.answered = job.answered
        self._model = job.model
        self._partial = job.partial
        self._in_flight = in_flight

    def answer(self) -> None:
        """A request was answered."""
        self.answered, self.failures = True, 0

    def fail(self, error: NoAnswerError) -> None:
        """A request failed, after all its tries."""
        if isinstance(error, UnsendableError):
            return
        is_up = not error.again and (self.answered or self._partial)
        self.failures = 0 if is_up else self.failures + 1

    def place(self, left: int) -> int:
        """Which of the `left` requests of the queue is asked next."""
        if self.failures < HOPELESS // 2:
            return 0
        return left - 1 if self.failures % 2 == 0 else random.randrange(left)

    @property
    def lost(self) -> bool:
        """Whether nothing more should be sent."""
        patience = PATIENCE if self._partial and self.answered else 1
        return self.failures >= HOPELESS * patience + self._in_flight - 1

    def given_up(self, url: str, error: NoAnswerError) -> DataError:
        """What ends the run; `error` is the last failure."""
        message = (
            f"models.{self._model}: the last {self.failures} requests to {url} all failed, the last one with {error}. "
            "Mend that and run again: what is answered is kept."
        )
        if self.answered and not self._partial:
            message += f" Or set models.{self._model}.partial: allow to count such requests as wrong."
        return DataError(message)
