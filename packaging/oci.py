#!/usr/bin/env python3
"""oci.py - makes a container image from the tar archive of a root directory, without a container
engine. The image is an OCI image layout in a tar archive. It also has the manifest.json of
`docker save`, so `podman load`, `docker load` and skopeo can read it.

  oci-layout, index.json           the layout, with one image
  blobs/sha256/DIGEST              layer (gzip), config and manifest, named by their SHA-256
  manifest.json                    the same image for docker load

Usage: oci.py ROOT.tar --tag NAME:VERSION --command PROGRAM --out FILE [--created SECONDS]
       [--directory DIR]"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile

OCI = "application/vnd.oci.image."


def descriptor(kind, data, **more):
    """Returns the reference to a blob that a layout contains."""
    return {
        "mediaType": OCI + kind,
        "digest": "sha256:" + hashlib.sha256(data).hexdigest(),
        "size": len(data),
        **more,
    }


def blob(row):
    """Returns the name of the file of a blob."""
    return "blobs/" + row["digest"].replace(":", "/")


def image(root, args):
    """Returns the files of the layout: name -> bytes."""
    created = datetime.datetime.fromtimestamp(args.created, datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    layer = gzip.compress(root, 6, mtime=0)
    config = json.dumps(
        {
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": [args.command],
                "WorkingDir": args.directory,
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": ["sha256:" + hashlib.sha256(root).hexdigest()],
            },
            "history": [{"created": created, "created_by": "packaging/oci.py"}],
        }
    ).encode()
    layer_row, config_row = descriptor("layer.v1.tar+gzip", layer), descriptor(
        "config.v1+json", config
    )
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": OCI + "manifest.v1+json",
            "config": config_row,
            "layers": [layer_row],
        }
    ).encode()
    version = args.tag.rsplit(":", 1)[1]
    # the annotations are those of "docker save"; podman reads the name of the image from them
    manifest_row = descriptor(
        "manifest.v1+json",
        manifest,
        annotations={
            "io.containerd.image.name": f"docker.io/library/{args.tag}",
            "org.opencontainers.image.ref.name": version,
        },
    )
    docker = [{"Config": blob(config_row), "RepoTags": [args.tag], "Layers": [blob(layer_row)]}]
    return {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "manifest.json": json.dumps(docker).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [manifest_row]}).encode(),
        blob(layer_row): layer,
        blob(config_row): config,
        blob(manifest_row): manifest,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--directory", default="/data")
    parser.add_argument("--created", type=int, default=0)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    if not all(args.tag.rpartition(":")[::2]):
        sys.exit(f"oci.py: --tag {args.tag}: want NAME:VERSION")
    if not tarfile.is_tarfile(args.root):
        sys.exit(f"oci.py: {args.root} is no tar archive of a root directory")
    with tarfile.open(args.out, "w", format=tarfile.USTAR_FORMAT) as out:
        for name, data in sorted(image(args.root.read_bytes(), args).items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, args.created
            out.addfile(entry, io.BytesIO(data))
    print(args.out)


if __name__ == "__main__":
    main()
