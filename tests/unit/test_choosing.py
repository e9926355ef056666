"""Which samples come on a page."""

from collections.abc import Sequence

import pandas as pd

from reftables.choosing import Chosen, Group, choose
from reftables.rows import Task
from reftables.samples import Samples


def samples(grades: Sequence[float], statuses: Sequence[str] | None = None) -> Samples:
    rows = len(grades)
    columns = {"id": range(rows), "image": "a.jpg", "status": statuses or ["ok"] * rows, "robust_mean_iou": grades}
    return Samples(pd.DataFrame(columns))


def rows_of(group: Group, chosen: Sequence[Chosen]) -> list[int]:
    return [one.row for one in chosen if group in one.groups]


def test_worst_and_best_are_the_ends():
    chosen = choose(Task.BOXES, samples([0.5, 0.1, 0.9, 0.2, 0.8]), {}, each=2)
    assert (rows_of(Group.WORST, chosen), rows_of(Group.BEST, chosen)) == ([1, 3], [2, 4])


def test_a_wrong_answer_is_never_among_the_best():
    assert rows_of(Group.BEST, choose(Task.BOXES, samples([0, 0, 0.3]), {}, each=2)) == [2]


def test_what_could_not_be_read_stands_apart():
    chosen = choose(Task.BOXES, samples([0, 0, 0.5], ["unparsed", "refused", "truncated"]), {}, each=5)
    assert (rows_of(Group.UNPARSED, chosen), rows_of(Group.WORST, chosen)) == ([0, 1], [2])


def test_models_disagree_where_their_grades_lie_apart():
    chosen = choose(Task.BOXES, samples([0.9, 0.5, 0.4]), {"other": samples([0.1, 0.5, 0.5])}, each=2)
    assert rows_of(Group.DISAGREE, chosen) == [0, 2]
    assert next(one for one in chosen if one.row == 0).others == {"other": 0.1}


def test_equals_are_not_taken_from_the_top_of_the_file():
    worst = rows_of(Group.WORST, choose(Task.BOXES, samples([0.0] * 1000), {}, each=10))
    assert len(worst) == 10
    assert max(worst) > 500


def test_the_choice_is_the_same_every_time():
    table = samples([0.0] * 100)
    assert choose(Task.BOXES, table, {}, each=5) == choose(Task.BOXES, table, {}, each=5)
