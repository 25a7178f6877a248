"""Write what the bridge runs with as a CycloneDX document: python scripts/release/sbom.py [--out FILE].

Everything in it comes from `requirements.lock`: names, versions, the SHA-256 of every file that may be installed, on
which systems a package is installed, and what needs it. Extras are not in the lock, so they are not in the document
either; nor are licenses. The same lock, version and SOURCE_DATE_EPOCH give the same bytes.
"""

import argparse
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "mcpbridge"
SPEC = "1.6"
"""The version of CycloneDX: ECMA-424."""

_PINNED = re.compile(r"(?P<name>[a-z0-9][a-z0-9-]*)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))?(?: \\)?")
_HASH = re.compile(r"    --hash=sha256:(?P<digest>[0-9a-f]{64})(?: \\)?")
_VIA = re.compile(r"    # (?:via\s+|  )(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?: \([^)]*\))?")
_OTHER = re.compile(r"#.*|    # via|")
"""Lines that carry nothing: the head, and the first of several `via`."""
_VERSION = re.compile(r'__version__ = "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned package of the lock."""

    name: str
    version: str
    marker: str
    """Where it is installed (PEP 508); empty: everywhere."""
    digests: tuple[str, ...]
    """SHA-256 of each file of this version."""
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL, which also is the reference in the document."""
        return f"pkg:pypi/{self.name}@{self.version.replace('+', '%2B')}"


def read_lock(lines: Iterable[str]) -> list[Package]:
    """The packages of a lock as `make lock-dependencies` writes it.

    Raises:
        ValueError: a line is something else, or a package has no hash.
    """
    packages: list[Package] = []
    name, version, marker, digests, needed_by = "", "", "", list[str](), list[str]()

    def finish() -> None:
        if name and not digests:
            raise ValueError(f"{name} has no hash")
        if name:
            packages.append(Package(name, version, marker, tuple(digests), tuple(needed_by)))

    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip("\n")
        if found := _PINNED.fullmatch(line):
            finish()
            name, version, marker = found["name"], found["version"], found["marker"] or ""
            digests, needed_by = [], []
        elif found := _HASH.fullmatch(line):
            digests.append(found["digest"])
        elif found := _VIA.fullmatch(line):
            needed_by.append(found["name"])
        elif not _OTHER.fullmatch(line):
            raise ValueError(f"line {number} of the lock cannot be read: {line!r}")
    finish()
    return packages


def document(packages: Sequence[Package], version: str, seconds: int) -> dict[str, Any]:
    """The CycloneDX document. `seconds`: the time that it carries, since 1970."""
    references = {package.name: package.purl for package in packages} | {PROJECT: PROJECT}
    needs: dict[str, list[str]] = {reference: [] for reference in references.values()}
    for package in packages:
        for other in package.needed_by:
            needs[references[other]].append(package.purl)
    body: dict[str, Any] = {
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "pre-build"}],  # of the lock, not of an environment
            "tools": {"components": [{"type": "application", "name": "scripts/release/sbom.py", "version": version}]},
            "component": {
                "type": "application",
                "bom-ref": PROJECT,
                "name": PROJECT,
                "version": version,
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": [_component(package) for package in packages],
        "dependencies": [{"ref": one, "dependsOn": sorted(others)} for one, others in sorted(needs.items())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": SPEC, "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {"$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json"} | head | body


def to_text(packages: Sequence[Package], version: str, seconds: int) -> str:
    """The document as it is written to a file."""
    return json.dumps(document(packages, version, seconds), indent=2) + "\n"


def project_version(root: Path) -> str:
    """The version of the bridge below `root`, read without importing it."""
    found = _VERSION.search((root / "src/mcpbridge/base/version.py").read_text("utf-8"))
    assert found is not None, "the build reads the same line"
    return found[1]


def _component(package: Package) -> dict[str, Any]:
    files = {
        "type": "distribution",
        "url": f"https://pypi.org/project/{package.name}/{package.version}/#files",
        "comment": "the SHA-256 of every file that may be installed",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.digests],
    }
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "externalReferences": [files],
    }
    if package.marker:
        component["properties"] = [{"name": f"{PROJECT}:environment-marker", "value": package.marker}]
    return component


def main() -> int:
    """Write the document of this checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="where to write it (default: standard output)")
    out = parser.parse_args().out
    packages = read_lock((ROOT / "requirements.lock").read_text("utf-8").splitlines())
    text = to_text(packages, project_version(ROOT), int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    if out:
        Path(out).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
