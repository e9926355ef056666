"""Requests in batches, where one is at fault or the memory too small: what all backends of this machine share."""

from collections.abc import Sequence

import pytest
import torch

from reftables.errors import DataError
from reftables.models import local
from reftables.rows import Prediction, Request, Status

pytestmark = pytest.mark.torch

REQUESTS = [Request(number, f"{number}.png", "mug") for number in range(11)]


class Model:
    """Answers with ids; at fault are the requests in `guilty`, and more than `fits` at once are too many."""

    def __init__(self, *, guilty: Sequence[int] = (), fits: int = 100, error: Exception | None = None) -> None:
        self.guilty = guilty
        self.fits = fits
        self.error = error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.sizes: list[int] = []

    def answer(self, batch: Sequence[Request]) -> list[int]:
        self.sizes.append(len(batch))
        if len(batch) > self.fits:
            raise self.error
        for request in batch:
            if request.id in self.guilty:
                raise local.SampleError(f"{request.image}: not a readable\nimage.")
        return [request.id for request in batch]


def answers(model: Model, size: int) -> list[int | Prediction]:
    return list(local.answer_in_batches(REQUESTS, size, model.answer))


@pytest.mark.parametrize("size", [1, 4, 11, 100])
@pytest.mark.parametrize("guilty", [[], [0], [10], [3, 4], [0, 2, 4, 6, 8, 10], list(range(11))], ids=str)
def test_requests_at_fault_are_named_in_their_place_and_all_others_answered(size: int, guilty: list[int]) -> None:
    found = answers(Model(guilty=guilty), size)
    named = {
        number: Prediction(id=number, status=Status.ERROR, finish_reason=f"{number}.png: not a readable image.")
        for number in guilty
    }
    assert found == [named.get(number, number) for number in range(11)]


def test_a_request_at_fault_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    answers(Model(guilty=[7]), 4)
    assert capsys.readouterr().err == "request 7 can't be answered: 7.png: not a readable image.\n"


def allocation_error() -> Exception:
    """What torch raises on this processor."""
    try:
        torch.empty(10**15)
    except RuntimeError as error:
        return error
    raise AssertionError("a petabyte was there")


EXHAUSTED = {
    "GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "GPU, outside torch's allocator": RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be ..."),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "Mac": RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GB, max allowed: 18.1 GB)."),
    "processor": allocation_error(),
    "Python": MemoryError(),
}


@pytest.mark.parametrize("error", EXHAUSTED.values(), ids=EXHAUSTED.keys())
def test_too_little_memory_halves_the_batch_and_loses_no_answer(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Model(fits=3, error=error)
    assert answers(model, 8) == list(range(11))
    assert model.sizes == [8, 4, 2, 2, 2, 2, 2, 1]
    assert "out of memory with 8 requests at once: going on with 4" in capsys.readouterr().err


@pytest.mark.parametrize("error", EXHAUSTED.values(), ids=EXHAUSTED.keys())
def test_too_little_memory_for_one_request_names_it_and_says_what_to_do(error: Exception) -> None:
    with pytest.raises(DataError, match=r"^0\.png: out of memory with this request alone, id 0 \(.+\)\. Choose a dev"):
        answers(Model(fits=0, error=error), 8)


def test_too_little_memory_is_no_fault_of_a_request() -> None:
    # A prediction would be wrong for good where gaps are allowed; on another device there is an answer.
    with pytest.raises(DataError) as caught:
        answers(Model(fits=0), 1)
    assert not isinstance(caught.value, local.SampleError)


def test_faults_and_little_memory_together_lose_no_answer() -> None:
    found = answers(Model(guilty=[2, 9], fits=2), 11)
    assert [answer.id if isinstance(answer, Prediction) else answer for answer in found] == list(range(11))
    assert [answer.id for answer in found if isinstance(answer, Prediction)] == [2, 9]


def test_an_error_of_the_code_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        answers(Model(fits=0, error=RuntimeError("mat1 and mat2 shapes cannot be multiplied")), 8)
