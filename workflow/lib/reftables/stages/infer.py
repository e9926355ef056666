"""Predict one split with one model: what the store has is taken from it, only the rest is asked."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from reftables.errors import DataError, preview, run
from reftables.files import check_ids, read_requests, read_truth, without_garbage_collection, write_predictions
from reftables.manifest import image_digests
from reftables.models.job import Job
from reftables.rows import Prediction, Request, Status, Task, limited, parse_answer_format
from reftables.shards import WHOLE, Shard

if TYPE_CHECKING:
    from reftables.store import Store


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", required=True)
    options.add_argument("--benchmark", required=True)
    options.add_argument("--split", required=True)
    options.add_argument("--task", type=Task, required=True)
    options.add_argument("--identity", type=json.loads, required=True, help="what decides a prediction, as JSON")
    options.add_argument("--execution", type=json.loads, default={}, help="what does not, as JSON")
    options.add_argument("--format", type=parse_answer_format, required=True, help="the model's answer format, as JSON")
    options.add_argument("--requests", required=True, help="request file")
    options.add_argument("--truth", help="truth file, for backends that may see it and for --limit")
    options.add_argument("--manifest", help="manifest of the images, for backends that open them")
    options.add_argument("--manifest-root", help="folder its names are relative to")
    options.add_argument("--limit", type=int, help="only the first samples")
    options.add_argument("--shard", type=Shard.parse, default=WHOLE, help="only this part, as 0-of-3")
    options.add_argument("--partial", action="store_true", help="missing answers are wrong, not an error")
    options.add_argument("--store", type=Path, required=True, help="folder of the store of this model and benchmark")
    options.add_argument("--predictions", required=True, help="prediction file to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    backend = import_module(f"reftables.models.{args.identity['backend']}")
    with without_garbage_collection():
        requests = read_requests(args.requests, prompt=args.format.prompt)
        truth = read_truth(args.truth) if args.truth else None
    if args.limit is not None and truth is not None:
        requests = requests[: len(limited(truth, args.limit))]
    job = Job(
        model=args.model,
        benchmark=args.benchmark,
        split=args.split,
        task=args.task,
        form=args.format,
        identity=args.identity,
        execution=args.execution,
        truth=truth if backend.READS_TRUTH else None,
        partial=args.partial,
    )
    if check := getattr(backend, "check", None):
        check(job)
    if backend.STORED:
        digests = image_digests(args.manifest, args.manifest_root, {request.image for request in requests})
        requests = args.shard.part_of(requests, lambda request: digests[request.image])
        predictions = predict_through_store(backend, requests, job, digests, args.store, args.shard)
    else:
        with without_garbage_collection():
            predictions = list(backend.predict(requests, job))
    check_ids(args.requests, [p.id for p in predictions], [request.id for request in requests])
    refuse_errors(predictions, job, stored=backend.STORED)
    write_predictions(args.predictions, predictions)


def predict_through_store(
    backend: ModuleType,
    requests: Sequence[Request],
    job: Job,
    digests: Mapping[str, str],
    folder: Path,
    shard: Shard = WHOLE,
) -> list[Prediction]:
    """Predictions of all `requests`; each distinct one the store lacks is asked once and kept as soon as answered."""
    # Here, because they bring filelock: most models of a table cost nothing and need neither.
    from reftables.lease import gpu_lease
    from reftables.store import Store, key_of, locked

    keys = {
        r.id: key_of({"backend": job.identity["backend"], **backend.decides(r, job, digests[r.image])})
        for r in requests
    }
    with locked(folder, job.split, shard), Store(folder, job.split, shard) as store:
        store.read()
        misses: dict[str, Request] = {}
        for request in requests:
            if keys[request.id] not in store:
                misses.setdefault(keys[request.id], request)
        print(f"{len(requests):,} requests, {len(misses):,} to ask, the rest from the store", flush=True)
        failed: dict[str, Prediction] = {}
        job = replace(job, answered=any(key in store for key in keys.values()))
        if misses:  # a model is loaded, a connection opened, on the first miss only
            with gpu_lease(job.execution.get("gpu", 0)):
                for prediction in backend.predict(list(misses.values()), job):
                    key = keys[prediction.id]
                    if prediction.status is Status.ERROR:
                        failed[key] = prediction
                    else:
                        store.append(key, prediction)
        return [_answer(request.id, keys[request.id], store, failed) for request in requests]


def _answer(request_id: int, key: str, store: "Store", failed: Mapping[str, Prediction]) -> Prediction:
    if key in store:
        return store.get(key, request_id)
    reason = failed[key].finish_reason if key in failed else None
    return Prediction(id=request_id, status=Status.ERROR, finish_reason=reason)


def _reason(prediction: Prediction) -> str:
    return prediction.finish_reason or "no reason given"


def refuse_errors(predictions: Sequence[Prediction], job: Job, *, stored: bool) -> None:
    """Fail when requests failed, unless the config allows gaps; what was answered is in the store by now."""
    failed = [prediction for prediction in predictions if prediction.status is Status.ERROR]
    if failed and not job.partial:
        reasons = preview([reason for reason, _ in Counter(map(_reason, failed)).most_common()], most=3)
        remedy = "Run again: only these are asked again. Or set" if stored else "Mend the answers, or set"
        raise DataError(
            f"{job.model} on {job.benchmark}/{job.split}: {len(failed):,} of {len(predictions):,} requests failed "
            f"({reasons}), ids {preview(p.id for p in failed)}. {remedy} "
            f"models.{job.model}.partial: allow to count them as wrong."
        )


if __name__ == "__main__":
    run(main)
