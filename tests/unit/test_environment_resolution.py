"""uv's own texts (taken from real runs) → class of the failure table."""

from __future__ import annotations

import pytest

from orchestrator.records.failures import FailureClass as C
from orchestrator.sandbox.resolution import MAX_EXPLANATION, resolver_failure

NO_SOLUTION = "error: No solution found when resolving dependencies\n  cause: "
NO_BUILD = (
    "\n\nhint: Wheels are required for `{0}` because building from source is disabled "
    "for all packages (i.e., with `--no-build`)\n"
)

TEXTS = [
    (
        "import name that exists as a source stub",
        NO_SOLUTION + "Because all versions of sklearn have no usable wheels and you require "
        "sklearn, we can conclude that your requirements are unsatisfiable."
        + NO_BUILD.format("sklearn"),
        C.DEPENDENCY_NOT_FOUND,
        "sklearn is what is imported; the package is called scikit-learn",
    ),
    (
        "a marker that speaks as the engine would",
        NO_SOLUTION + "Because there is no version of numpy{platform_machine != 'No space left on "
        "device' and platform_version != 'Failed to fetch'}==99.0 and you require "
        "numpy{platform_machine != 'No space left on device' and platform_version != 'Failed to "
        "fetch'}==99.0, we can conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_NOT_FOUND,
        "no version of numpy fits numpy==99.0",
    ),
    (
        "no such package",
        NO_SOLUTION + "Because zzz-not-real was not found in the package registry and you require "
        "zzz-not-real, we can conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_NOT_FOUND,
        "no package zzz-not-real exists",
    ),
    (
        "standard library",
        NO_SOLUTION + "Because pickle was not found in the package registry and you require "
        "pickle, we can conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_NOT_FOUND,
        "pickle is a module of Python's standard library",
    ),
    (
        "import name that is no package",
        NO_SOLUTION + "Because cv2 was not found in the package registry and you require cv2, "
        "we can conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_NOT_FOUND,
        "opencv-python-headless",
    ),
    (
        "no such version, exact",
        NO_SOLUTION + "Because there is no version of scikit-learn==99.0.0 and you require "
        "scikit-learn==99.0.0, we can conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_NOT_FOUND,
        "no version of scikit-learn fits scikit-learn==99.0.0",
    ),
    (
        "no such version, range",
        NO_SOLUTION + "Because only scikit-learn<=1.9.1 is available and you require "
        "scikit-learn>=9, we can conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_NOT_FOUND,
        "no version of scikit-learn fits scikit-learn>=9 (the index has scikit-learn<=1.9.1)",
    ),
    (
        "conflict with a dependency",
        NO_SOLUTION + "Because pandas==2.2.2 depends on numpy{python_full_version < '3.12'}"
        ">=1.23.2 and you require pandas==2.2.2, we can conclude that you require numpy>=1.23.2.\n"
        "         And because you require numpy==1.19.5, we can conclude that your requirements "
        "are unsatisfiable.",
        C.DEPENDENCY_CONFLICT,
        "And because you require numpy==1.19.5",
    ),
    (
        "conflict with itself",
        NO_SOLUTION + "you require pandas<1 and pandas>=2, which are incompatible",
        C.DEPENDENCY_CONFLICT,
        "you require pandas<1 and pandas>=2",
    ),
    (
        "source only",
        NO_SOLUTION + "Because docopt==0.6.2 has no usable wheels and you require docopt==0.6.2, "
        "we can conclude that your requirements are unsatisfiable." + NO_BUILD.format("docopt"),
        C.DEPENDENCY_UNAVAILABLE,
        "no wheel of docopt fits this platform",
    ),
    (
        "wheels of other Pythons only",
        NO_SOLUTION + "Because tensorflow==1.15.0 has no wheels with a matching Python ABI tag "
        "(e.g., `cp311`) and you require tensorflow==1.15, we can conclude that your requirements "
        "are unsatisfiable.\n\nhint: You require CPython 3.11 (`cp311`), but we only found wheels "
        "for `tensorflow` (v1.15.0) with the following Python ABI tags: `cp27m`, `cp37m`",
        C.DEPENDENCY_UNAVAILABLE,
        "no wheel of tensorflow fits this platform",
    ),
    (
        "wheels only deep in the reasoning",
        NO_SOLUTION + "Because scikit-learn==1.5.0 depends on numpy>=1.19.5 and numpy==1.19.5 has "
        "no usable wheels, we can conclude that scikit-learn==1.5.0 depends on numpy>=1.20.0.\n"
        "         And because you require scikit-learn==1.5.0 and numpy<1.20, we can conclude that "
        "your requirements are unsatisfiable." + NO_BUILD.format("numpy"),
        C.DEPENDENCY_UNAVAILABLE,
        "no wheel of numpy",
    ),
    (
        "needs a later Python",
        NO_SOLUTION + "Because the requested Python version (>=3.11) does not satisfy "
        "Python>=3.12 and newthing==3.0 depends on Python>=3.12, we can conclude that "
        "newthing==3.0 cannot be used.\n         And because you require newthing==3.0, we can "
        "conclude that your requirements are unsatisfiable.",
        C.DEPENDENCY_UNAVAILABLE,
        "needs Python >=3.12, this is >=3.11",
    ),
    (
        "connection refused",
        "error: Request failed after 3 retries in 6.8s\n"
        "  cause: Failed to fetch: http://127.0.0.1:9/simple/six/\n"
        "  cause: error sending request for url (http://127.0.0.1:9/simple/six/)\n"
        "  cause: client error (Connect)\n  cause: tcp connect error\n"
        "  cause: Connection refused (os error 111)\n",
        C.INDEX_UNAVAILABLE,
        "Connection refused (os error 111)",
    ),
    (
        "no DNS",
        "error: Request failed after 3 retries in 1.5s\n"
        "  cause: Failed to fetch: https://nohost.invalid/simple/six/\n  cause: dns error\n"
        "  cause: failed to lookup address information: Name or service not known\n",
        C.INDEX_UNAVAILABLE,
        "Name or service not known",
    ),
    (
        "server error",
        "error: Failed to fetch: http://127.0.0.1:8765/simple/six/\n  cause: HTTP status server "
        "error (503 Service Unavailable) for url (http://127.0.0.1:8765/simple/six/)\n",
        C.INDEX_UNAVAILABLE,
        "503",
    ),
    (
        "forbidden",
        NO_SOLUTION + "Because six was not found in the package registry and you require six, we "
        "can conclude that your requirements are unsatisfiable.\n\nhint: An index "
        "(http://127.0.0.1:8765/simple) returned a 403 Forbidden error. Check that the index URL "
        "is correct and the credentials are valid.",
        C.INDEX_UNAVAILABLE,
        "",
    ),
    (
        "credentials",
        NO_SOLUTION + "Because six was not found in the package registry and you require six, we "
        "can conclude that your requirements are unsatisfiable.\n\nhint: An index URL "
        "(http://127.0.0.1:8765/simple) could not be queried due to a lack of valid "
        "authentication credentials (401 Unauthorized)",
        C.INDEX_UNAVAILABLE,
        "",
    ),
    (
        "hangs",
        "error: Failed to fetch: http://127.0.0.1:8765/slow/six/\n  cause: error sending request "
        "for url (http://127.0.0.1:8765/slow/six/)\n  cause: operation timed out\n",
        C.INDEX_UNAVAILABLE,
        "operation timed out",
    ),
    (
        "cut in the middle",
        "error: Failed to fetch: http://127.0.0.1:8765/cut/six/\n  cause: error decoding response "
        "body for url (x)\n  cause: end of file before message length reached\n",
        C.INDEX_UNAVAILABLE,
        "end of file",
    ),
    (
        "other hash than locked",
        "error: Failed to download `six==1.17.0`\n  cause: Hash mismatch for `six==1.17.0`\n\n"
        "         Expected:\n           sha256:00\n\n         Computed:\n           sha256:47\n",
        C.INDEX_UNAVAILABLE,
        "six==1.17.0 with another hash",
    ),
    (
        "disk full at download",
        "error: Failed to write to the client cache\n  cause: failed to write to file "
        "`/cache/x`: No space left on device (os error 28)\n",
        C.HOST_DISK_FULL,
        "disk was full",
    ),
    (
        "a package that does not build",
        "error: Failed to build `tool==2.2.0`\n  cause: The build backend returned an error\n"
        "  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)\n\n"
        "         [stderr]\n         Failed to fetch: dns error, No space left on device\n"
        "         RuntimeError: no compiler\n         set CC\n\n"
        "hint: Build failures usually indicate a problem with the package\n",
        C.DEPENDENCY_UNAVAILABLE,
        "tool==2.2.0 can't be built here: RuntimeError: no compiler",
    ),
    (
        "an import name that refuses to build",
        "error: Failed to build `sklearn==0.0.post12`\n"
        "  cause: The build backend returned an error",
        C.DEPENDENCY_NOT_FOUND,
        "the package is called scikit-learn",
    ),
    (
        "what a build needs is not served",
        "error: Failed to build `docopt==0.6.2`\n  cause: Failed to resolve requirements from "
        "`setup.py` build\n  cause: Failed to fetch: http://127.0.0.1:9/simple/setuptools/\n",
        C.INDEX_UNAVAILABLE,
        "did not answer",
    ),
    ("something new", "error: Something nobody has seen\n", C.UNKNOWN, "Something nobody has seen"),
    ("nothing said", "", C.UNKNOWN, "no output"),
]


@pytest.mark.parametrize(
    ("text", "failure_class", "says"),
    [pytest.param(*row[1:], id=row[0]) for row in TEXTS],
)
def test_resolver_texts(text, failure_class, says):
    failure = resolver_failure(text)
    assert failure.failure_class is failure_class
    assert says in failure.sentence


def test_a_long_explanation_keeps_head_and_end():
    text = NO_SOLUTION + "\n".join(f"line {i} unsatisfiable" for i in range(500))
    (evidence,) = resolver_failure(text).evidence
    assert evidence.excerpt.startswith("line 0 ")
    assert evidence.excerpt.endswith("line 499 unsatisfiable")
    assert len(evidence.excerpt) <= MAX_EXPLANATION + 3


def test_what_one_signs_in_with_is_not_kept():
    text = "error: Failed to fetch: https://me:secret@index.invalid/simple/six/\n"
    assert "secret" not in resolver_failure(text).model_dump_json()
