"""Draw the bundled sample: annotations, images and prompts in the benchmarks' own formats, and a manifest."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from reftables.errors import run
from reftables.files import write_atomically
from reftables.manifest import entry, write_manifest

MANIFEST = "manifest.tsv"
# What the rule declares, relative to the sample's folder. The images are vouched for by the manifest,
# which is written last.
OUTPUTS: tuple[str, ...] = (
    "boxes/finetune_sample_val.json",
    "boxes/finetune_sample_test.json",
    "masks/instances.json",
    "masks/refs(unc).p",
    "masks/grefs(unc).json",
    "points/Location/question.json",
    "points/Placement/question.json",
    "points/Unseen/question.json",
    "answers/metadata.jsonl",
    "answers/prompts/00_yaw_vqa.txt",
    "answers/prompts/01_xy2d_vqa.txt",
    "answers/prompts/02_depth_vqa.txt",
    "answers/prompts/03_dis_vqa.txt",
    "answers/prompts/04_lf_vqa.txt",
    "answers/prompts/05_fb_vqa.txt",
    MANIFEST,
)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, required=True, help="folder to write to")
    options.add_argument("--seed", type=int, required=True, help="another seed draws another sample of the same size")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    # Here, because the workflow reads OUTPUTS and must not load Pillow for it.
    from reftables.benchmarks.sample import draw_sample

    args = parser().parse_args(argv)
    files = draw_sample(args.seed)
    images = {name: content for name, content in files.items() if name not in OUTPUTS}
    for name, content in images.items():
        path = args.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name in files.keys() - images.keys():
        write_atomically(args.folder / name, files[name])
    write_manifest(args.folder / MANIFEST, [entry(name, content) for name, content in images.items()])
    print(f"{len(files):,} files, {sum(map(len, files.values())):,} bytes in {args.folder}")


if __name__ == "__main__":
    run(main)
