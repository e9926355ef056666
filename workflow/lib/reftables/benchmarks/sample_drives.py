"""The driving part of the bundled sample: records and pictures in SURDS's form, and prompts of our own wording.

The camera stands 1.6 m above a flat road and looks along it; x runs right, z ahead, in metres. A
vehicle's yaw is in degrees clockwise from the camera's own direction, which counts as North.
"""

from itertools import pairwise
from math import cos, hypot, radians, sin
from random import Random
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

from reftables.benchmarks.sample_scenes import COLOURS, encode_image
from reftables.files import dump_json

SIZE_WH = (1600, 900)
# Objects in each record. Six pairs of objects would make six questions a task: 3 + 1 pairs make four,
# and the single objects must be at least as many as the pairs.
RECORDS = (1, 2, 1, 1, 3, 1, 1, 1)
CAMERAS = ("CAM_FRONT", "CAM_BACK", "CAM_FRONT_LEFT")

_FOCAL, _CAMERA_HEIGHT, _HORIZON = 1250.0, 1.6, 450.0
_VEHICLES = {"car": (1.8, 4.4, 1.5), "van": (2.0, 5.2, 2.2), "bus": (2.6, 9.0, 3.2)}  # width, length, height in m
_DIRECTIONS = ("North", "Northeast", "East", "Southeast", "South", "Southwest", "West", "Northwest")
_YAWS = {45 * eighth: name for eighth, name in enumerate(_DIRECTIONS)}
_DEPTHS = ((5.5, 7.0), (8.0, 14.0), (16.0, 26.0))  # near, middle, far: each has its own kind of distractors

_SKY, _ROAD, _LINE, _GLASS, _LAMP = (203, 206, 208), (118, 118, 121), (226, 226, 226), (62, 66, 70), (246, 246, 240)


class Vehicle(NamedTuple):
    """One vehicle on the road."""

    colour: str
    kind: str
    yaw: int
    x: float  # m, of its middle
    z: float

    @property
    def bbox_xyxy(self) -> tuple[int, int, int, int]:
        """The box of its front-facing outline, in whole pixels."""
        width, length, height = _VEHICLES[self.kind]
        turn = radians(self.yaw)
        seen = abs(cos(turn)) * width + abs(sin(turn)) * length
        scale = _FOCAL / self.z
        middle, ground = SIZE_WH[0] / 2 + scale * self.x, _HORIZON + scale * _CAMERA_HEIGHT
        box = (middle - scale * seen / 2, ground - scale * height, middle + scale * seen / 2, ground)
        return round(box[0]), round(box[1]), round(box[2]), round(box[3])


def answers_files(seed: int, root: str) -> dict[str, bytes]:
    """Path to content of all files below `root`."""
    files = {f"{root}/prompts/{name}": text.encode() for name, text in PROMPTS.items()}
    lines = []
    for number, count in enumerate(RECORDS):
        vehicles = _random_vehicles(Random(f"{seed} answers {number}"), number, count)
        camera = CAMERAS[number % len(CAMERAS)]
        name = f"image/{camera}/sample_{number:04}_{camera}.webp"
        files[f"{root}/{name}"] = encode_image(_draw(vehicles), "WEBP", quality=60, method=0)
        lines.append(dump_json(_record(name, vehicles)))
    files[f"{root}/metadata.jsonl"] = "".join(f"{line}\n" for line in lines).encode()
    return files


def _record(name: str, vehicles: list[Vehicle]) -> dict[str, Any]:
    boxes = [vehicle.bbox_xyxy for vehicle in vehicles]
    return {
        "file_name": name,
        "descs": [f"{vehicle.colour} {vehicle.kind}" for vehicle in vehicles],
        "xy2Ds": [[(x0 + x1) // 2, (y0 + y1) // 2] for x0, y0, x1, y1 in boxes],
        "xyz3Ds": [[v.x, round(_CAMERA_HEIGHT - _VEHICLES[v.kind][2] / 2, 2), v.z] for v in vehicles],
        "bboxes2D": [list(box) for box in boxes],
        "categories": [vehicle.kind for vehicle in vehicles],
        "yaws": [float(vehicle.yaw) for vehicle in vehicles],
        "yaw_descs": [_YAWS[vehicle.yaw] for vehicle in vehicles],
        "depths": [vehicle.z for vehicle in vehicles],
        "distances": [round(hypot(vehicle.x, vehicle.z), 2) for vehicle in vehicles],
    }


def _random_vehicles(rng: Random, number: int, count: int) -> list[Vehicle]:
    """Vehicles of different colours, whole in the picture, none before another."""
    colours = rng.sample(sorted(COLOURS), count)
    while True:
        vehicles = [_random_vehicle(rng, colour, _DEPTHS[(number + i) % 3]) for i, colour in enumerate(colours)]
        boxes = [vehicle.bbox_xyxy for vehicle in vehicles]
        whole = all(x0 >= 0 and y0 >= 0 and x1 <= SIZE_WH[0] and y1 <= SIZE_WH[1] for x0, y0, x1, y1 in boxes)
        by_column = sorted(boxes)
        if whole and all(left[2] + 8 <= right[0] for left, right in pairwise(by_column)):
            return vehicles


def _random_vehicle(rng: Random, colour: str, depths: tuple[float, float]) -> Vehicle:
    z = round(rng.uniform(*depths), 2)
    x = round(rng.uniform(-0.6, 0.6) * z, 2)
    return Vehicle(colour, rng.choice(sorted(_VEHICLES)), rng.choice(sorted(_YAWS)), x, z)


def _draw(vehicles: list[Vehicle]) -> Image.Image:
    width, height = SIZE_WH
    image = Image.new("RGB", SIZE_WH, _SKY)
    draw = ImageDraw.Draw(image)
    horizon = round(_HORIZON)
    draw.rectangle((0, horizon, width, height), fill=_ROAD)
    for foot in (-500, 2100):
        draw.line((width // 2, horizon, foot, height), fill=_LINE, width=6)
    for vehicle in sorted(vehicles, key=lambda v: -v.z):
        _draw_vehicle(draw, vehicle)
    return image


def _draw_vehicle(draw: ImageDraw.ImageDraw, vehicle: Vehicle) -> None:
    """A body in the vehicle's colour; its windscreen sits towards where it goes, lamps show it coming nearer."""
    x0, y0, x1, y1 = vehicle.bbox_xyxy
    width, height = x1 - x0, y1 - y0
    turn = radians(vehicle.yaw)
    draw.rectangle((x0, y0, x1 - 1, y1 - 1), fill=COLOURS[vehicle.colour])
    middle = (x0 + x1) / 2 + round(sin(turn), 3) * width * 0.22
    pane = (middle - width * 0.22, y0 + height * 0.12, middle + width * 0.22, y0 + height * 0.45)
    draw.rectangle([round(value) for value in pane], fill=_GLASS)
    if cos(turn) < -0.5:
        size = max(2, round(height * 0.1))
        for left in (x0 + size, x1 - 2 * size):
            draw.rectangle((left, y1 - 3 * size, left + size, y1 - 2 * size), fill=_LAMP)


_TAIL = "\nThink it over between <think> and </think>, then write {what} between <answer> and </answer>.\n"
_CHOICE = _TAIL.format(what="one of these options, word for word,")

# File name to text. The slots are filled in the order the benchmark gives its arguments.
PROMPTS = {
    "00_yaw_vqa.txt": (
        "This is the view of a camera that faces {}.\nIn which compass direction does {} face?\n\n"
        "Options:\n- {}\n- {}\n- {}\n- {}\n" + _CHOICE
    ),
    "01_xy2d_vqa.txt": (
        "This picture is 1600 pixels wide and 900 pixels high.\nAt which pixel is the middle of {}?\n"
        + _TAIL.format(what="its coordinates as [x, y]")
    ),
    "02_depth_vqa.txt": (
        "This is the view of a camera on a car.\nHow far ahead of the camera is {}?\n\n"
        "Options:\n- {}\n- {}\n- {}\n" + _CHOICE
    ),
    "03_dis_vqa.txt": (
        "This is the view of a camera on a car. Compare {} with {}.\nWhich of them is {}, seen from the camera?\n\n"
        "Options:\n- {}\n- {}\n- Almost the same\n" + _CHOICE
    ),
    "04_lf_vqa.txt": (
        "This is the view of a camera on a car.\nWhich is further to the {} in the picture, {} or {}?\n\n"
        "Options:\n- {}\n- {}\n- Almost the same\n" + _CHOICE
    ),
    "05_fb_vqa.txt": (
        "This is the view of a camera on a car.\nAlong the road, is {} {} {}?\n\n"
        "Options:\n- Yes\n- No\n- Almost the same in terms of front-back position\n" + _CHOICE
    ),
}
