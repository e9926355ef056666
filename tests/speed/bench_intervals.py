"""Process time of the 95 % intervals of a split of RefCOCO's true size, against one draw after the other.

python tests/speed/bench_intervals.py
"""

from time import process_time

import numpy as np

from reftables.scoring.intervals import RESAMPLES, intervals
from reftables.scoring.scores import Ratio

SAMPLES, IMAGES, METRICS = 10_834, 1_500, 8
REPEATS = 5


def draw_by_draw(metrics: dict[str, Ratio], images: list[str]) -> None:
    """Every draw gathers the rows of its images."""
    names, codes = np.unique(images, return_inverse=True)
    rows_of = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        rows = np.concatenate([rows_of[image] for image in rng.integers(len(names), size=len(names))])
        for ratio in metrics.values():
            ratio.numerator[rows].sum() / ratio.denominator[rows].sum()


def main() -> None:
    rng = np.random.default_rng(0)
    images = [f"COCO_train2014_{image:012d}.jpg" for image in rng.integers(IMAGES, size=SAMPLES)]
    metrics = {str(number): Ratio.mean(rng.random(SAMPLES) < 0.5) for number in range(METRICS)}

    begun = process_time()
    draw_by_draw(metrics, images)
    plain = process_time() - begun

    times = []
    for _ in range(REPEATS):
        begun = process_time()
        intervals(metrics, images, n=SAMPLES)
        times.append(process_time() - begun)
    print(f"{SAMPLES} samples, {METRICS} metrics, {RESAMPLES} draws: {min(times):.3f} s; draw by draw {plain:.2f} s")
    print(f"ratio {plain / min(times):.0f}x")


if __name__ == "__main__":
    main()
