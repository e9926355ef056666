"""What the hosts of config/paper.yaml have, at small scale: the drawn sample in each source's own form and place.

Every URL keeps its path; its host becomes the first folder on a server of ours. Sizes and digests are those of
the small files, so everything that is pinned in the config is still pinned.
"""

import hashlib
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from reftables.benchmarks.sample import draw_sample

SAMPLE = draw_sample(7)
REFCOCO = ("refcoco", "refcoco+")
FOLDERS = {"location": "Location", "placement": "Placement", "unseen": "Unseen"}


class Hosts:
    """The files of all hosts that `paper` (the content of config/paper.yaml) names."""

    def __init__(self, paper: Mapping[str, Any]) -> None:
        self._paper = paper
        self.contents = {name: _content(name, entry) for name, entry in paper["downloads"].items()}
        self.images = {
            "coco": _below("images/"),
            "surds": {name: content for name, content in _below("answers/").items() if name.endswith(".webp")},
        }

    @property
    def files(self) -> dict[str, bytes]:
        """Path on the server, unquoted, to content."""
        files = {}
        for name, entry in self._paper["downloads"].items():
            for url in _urls(entry):
                files[_path(url)] = self.contents[name]
        for name, images in self.images.items():
            for url in _urls(self._paper["images"][name]):
                files |= {_path(url).replace("{name}", image): content for image, content in images.items()}
        return files

    def overlay(self, server: str) -> dict[str, Any]:
        """What to lay over paper.yaml: the same URLs on `server`, the digests of the small files, their numbers."""
        downloads: dict[str, Any] = {}
        for name, entry in self._paper["downloads"].items():
            content = self.contents[name]
            real = {
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "md5": hashlib.md5(content).hexdigest(),
            }
            pins = {key: real[key] for key in real if key in entry}
            downloads[name] = {"url": [server + quoted(url) for url in _urls(entry)], **pins}
        images = {
            name: {"url": [server + quoted(url) for url in _urls(entry)]}
            for name, entry in self._paper["images"].items()
        }
        splits = {name: dict.fromkeys(entry["splits"]) for name, entry in self._paper["benchmarks"].items()}
        for name in (*REFCOCO, "refcocog"):
            splits[name] = {split: len(_annotations(split)["annotations"]) for split in splits[name]}
        return {
            "downloads": downloads,
            "images": images,
            "benchmarks": {name: {"splits": numbers} for name, numbers in splits.items()},
        }


def _urls(entry: Mapping[str, Any]) -> list[str]:
    return [entry["url"]] if isinstance(entry["url"], str) else entry["url"]


def quoted(url: str) -> str:
    """A URL as a path on another server."""
    return "/" + url.partition("://")[2]


def _path(url: str) -> str:
    return unquote(quoted(url))


def _below(folder: str) -> dict[str, bytes]:
    return {name.removeprefix(folder): content for name, content in SAMPLE.items() if name.startswith(folder)}


def _content(name: str, entry: Mapping[str, Any]) -> bytes:
    """The content of a download, by its name in the config."""
    kind, _, rest = name.partition("-")
    match kind:
        case "mdetr" if rest == "tarball":
            splits = (str(PurePosixPath(member).name) for member in entry["unpack"])
            return _tar({f"OpenSource/{file}": _annotation_file(file.rpartition("_")[2][:-5]) for file in splits})
        case "mdetr":
            return _annotation_file(rest.rpartition("-")[2])
        case "kosmos2":
            split = rest.rpartition("-")[2]
            return _requests(split) if rest.startswith("requests") else _answers(split)
        case "refer":
            return _refer(rest)
        case "grefcoco":
            return SAMPLE["masks/instances.json"] if rest == "instances" else _groups()
        case "refspatial":
            return _parquet(rest.rpartition("-")[2], scene="indoor" if rest.startswith("expand") else None)
        case "surds" if rest == "metadata":
            return SAMPLE["answers/metadata.jsonl"]
        case "surds":
            return next(content for path, content in SAMPLE.items() if f"_{rest.partition('-')[2]}_vqa" in path)
        case "coco":
            return _coco_zip() if rest == "zip" else _zip({"annotations/instances_train2014.json": b"{}"})
    raise ValueError(f"config/paper.yaml has a download that the tests don't know: {name}")


def _sample_split(split: str) -> str:
    return "val" if split == "val" else "test"


def _annotation_file(split: str) -> bytes:
    return SAMPLE[f"boxes/finetune_sample_{_sample_split(split)}.json"]


def _annotations(split: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_annotation_file(split))
    return content


def _requests(split: str) -> bytes:
    """The authors' request file, with the image root of their own machine."""
    lines = (
        f"[image]/mnt/their/machine/train2014/{image['file_name']}<tab><grounding><phrase>{image['caption']}</phrase>\n"
        for image in _annotations(split)["images"]
    )
    return "".join(lines).encode()


def _answers(split: str) -> bytes:
    """A fairseq log in which every second box is the upper left quarter, the others the whole image."""
    lines = ["INFO | fairseq_cli.generate | loading\n"]
    for number, image in enumerate(_annotations(split)["images"]):
        corner = "0495" if number % 2 else "1023"
        box = f"<object><patch_index_0000><patch_index_{corner}></object>"
        lines.append(f"S-{number}\t{image['caption']}\n")
        lines.append(f"H-{number}\t-0.2\t<image></image><grounding><phrase>{image['caption']}</phrase>{box}\n")
    return "".join(lines).encode()


def _refer(dataset: str) -> bytes:
    refs = pickle.loads(SAMPLE["masks/refs(unc).p"])
    files = {f"{dataset}/instances.json": SAMPLE["masks/instances.json"]}
    if dataset in REFCOCO:
        files[f"{dataset}/refs(unc).p"] = _pickle(_in_two(refs))
    else:
        files |= {f"{dataset}/refs({by}).p": _pickle(refs) for by in ("umd", "google")}
    return _zip(files)


def _in_two(refs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """References whose test split is testA and testB by turns."""
    names = {0: "testA", 1: "testB"}
    return [ref | {"split": "val" if ref["split"] == "val" else names[i % 2]} for i, ref in enumerate(refs)]


def _groups() -> bytes:
    return json.dumps(_in_two(json.loads(SAMPLE["masks/grefs(unc).json"]))).encode()


def _parquet(split: str, *, scene: str | None) -> bytes:
    folder = f"points/{FOLDERS[split]}"
    rows = []
    for question in json.loads(SAMPLE[f"{folder}/question.json"]):
        row = {key: question[key] for key in ("id", "object", "prompt", "suffix", "step")}
        for column, key in (("image", "rgb_path"), ("mask", "mask_path")):
            row[column] = {"bytes": SAMPLE[f"{folder}/{question[key]}"], "path": PurePosixPath(question[key]).name}
        rows.append(row if scene is None else row | {"scene": scene})
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def _coco_zip() -> bytes:
    """All images of the split, also those that nobody names."""
    images = _below("images/")
    unnamed = {f"train2014/COCO_train2014_{i:012}.jpg": bytes(100_000) for i in range(900_000, 900_005)}
    return _zip(images | unnamed, compression=zipfile.ZIP_STORED)


def _pickle(value: object) -> bytes:
    return pickle.dumps(value, protocol=2)


def _zip(files: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return sink.getvalue()


def _tar(files: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return sink.getvalue()
