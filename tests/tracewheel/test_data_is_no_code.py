"""Every place where data could become code is in the table of docs/security.md, with who decides what is loaded there."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = re.compile(r"<!-- loaders: begin -->(.*)<!-- loaders: end -->", re.DOTALL)
LOADS = {  # calls that import, run, start, unpickle, fetch, or compile a pattern or a template
    "import_module", "import_class", "load_class", "__import__", "spec_from_file_location", "exec", "eval", "run_module",
    "run_path", "Popen", "create_subprocess_exec", "create_subprocess_shell", "execv", "execve", "execvp", "posix_spawn",
    "urlopen", "CDLL", "from_pretrained", "load_dataset", "from_string", "apply_chat_template", "FileSystemLoader",
}  # fmt: skip
OF_MODULES = {
    "subprocess": {"run", "call", "check_call", "check_output"},
    "os": {"system", "popen"},
    "torch": {"load"},
    "yaml": {"load"},
    "httpx": {"get", "post", "stream", "Client", "AsyncClient"},
    **{name: {"load", "loads", "Unpickler"} for name in ("pickle", "marshal", "dill", "cloudpickle")},
}
PATTERNS = {"compile", "search", "match", "fullmatch", "findall", "finditer", "sub", "split"}


def is_loader(call: ast.Call, constants: set[str]) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    if owner in ("re", "regex", "re2") and name in PATTERNS:
        return bool(call.args) and not is_written(call.args[0], constants)
    if name == "eval" and owner:  # a model's, which sets its mode
        return False
    return name in LOADS or name in OF_MODULES.get(owner, ())


def is_written(pattern: ast.expr, constants: set[str]) -> bool:
    """Whether a pattern is written in the module: a text, or texts and constants put together."""
    names = {node.id for node in ast.walk(pattern) if isinstance(node, ast.Name)}
    calls = [node for node in ast.walk(pattern) if isinstance(node, ast.Call)]
    return not calls and names <= constants


@functools.cache
def sources() -> dict[str, ast.Module]:
    rooms = [*(ROOT / name for name in ("tracewheel", "flows", "tasks")), *ROOT.glob("plugins/*/tracewheel_*")]
    paths = (path for room in rooms for path in sorted(room.rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_bytes()) for path in paths}


def calls_in(tree: ast.Module) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def loaders() -> set[str]:
    found = set()
    for name, tree in sources().items():
        targets = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
        assigned = {target.id for target in targets if isinstance(target, ast.Name)}
        if any(is_loader(call, assigned) for call in calls_in(tree)):
            found.add(name)
    return found


def test_the_table_names_every_place_and_no_other():
    table = TABLE.search((ROOT / "docs/security.md").read_text())
    assert table
    listed = re.findall(r"`((?:tracewheel|flows|tasks|plugins)/[\w/]+\.py)`", table[1])
    assert len(listed) == len(set(listed))
    found = loaders()
    assert sorted(found - set(listed)) == [], "say in docs/security.md who decides what is loaded here"
    assert sorted(set(listed) - found) == [], "nothing is loaded here any more"


# Loaders made of `SafeLoader`: one refuses aliases, one reads keys as texts.
SAFE_YAML = ("plugins/worlds/tracewheel_worlds/harbor/directory.py", "tracewheel/config/loading.py")


def test_nothing_is_unpickled_or_trusted_unseen():
    for name, tree in sources().items():
        for call in calls_in(tree):
            called, given = ast.unparse(call.func), {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert called not in ("pickle.load", "pickle.loads", "yaml.unsafe_load", "os.system", "os.popen"), name
            assert called != "yaml.load" or name in SAFE_YAML, name
            assert called != "torch.load" or given["weights_only"] == "True", name
            assert all(given.get(word, "False") == "False" for word in ("shell", "trust_remote_code", "allow_pickle")), name
