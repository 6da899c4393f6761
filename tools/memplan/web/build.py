# SPDX-License-Identifier: MIT
#
# Makes the page of memplan: the planner as WebAssembly, by Debian's emscripten, with its host, in one HTML file.
# Jansson comes as source from Debian's archive, the first time. The build of evenodd never runs this: it embeds the
# committed page. `tools/dev page` starts it.
# usage: build.py FOLDER PAGE        makes PAGE, with what is in between in FOLDER
#        build.py --stale PAGE       prints the sources that PAGE was not made of; status 1 if there are any
import base64
import concurrent.futures
import glob
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
WEB = "tools/memplan/web"
JANSSON = "dump error hashtable hashtable_seed load memory pack_unpack strbuffer strconv utf value version".split()
# Rooms of the planner, and of other rooms what it needs.
PATTERNS = [
    "runtime/plan/*.c", "runtime/plan/*/*.c", "layers/transformer/*.c", "buffers/[bflp]*.c", "base/[clsv]*.c",
    "layers/backends.c", "layers/checks.c", "layers/rope_table.c", "layers/cuda/planned.c", "layers/cuda/scratch_bytes.c",
    "layers/cpu/planned.c", "layers/cpu/attention*.c", "layers/cpu/embedding.c", "layers/cpu/loss.c", "layers/cpu/norm.c",
    "layers/cpu/products/packed.c",
    "tools/memplan/reply.c", "tools/memplan/*/*.c", "tools/interchange/model_*.c",
    "tools/interchange/config/*.c",
    "tools/shared/json_output.c", "tools/shared/option_values.c", "tools/shared/page.c", "tools/shared/problem.c",
    "tools/shared/word_distance.c", "tools/planning/budget*.c",
    "tools/planning/options.c", "tools/planning/predict.c", "tools/planning/rates.c",
    "tools/planning/reduction_text.c", "tools/planning/settings.c",
]
# Files, and measured figures.
LEFT_OUT = {"tools/memplan/" + name for name in (
    "report/compare.c", "published/choices.c", "published/megatron_runs.c",
    "published/published.c", "published/steps.c")} | {"tools/interchange/model_file.c"}
FLAGS = ["-Os", "-mbulk-memory", "-std=gnu11", "-D_GNU_SOURCE", "-Wno-everything"]
LINK = ["-Os", "-mbulk-memory", "-sSTANDALONE_WASM", "-sALLOW_MEMORY_GROWTH=1", "-sTOTAL_STACK=1MB"]
EMBEDDED = ["tools/memplan/plan/devices.json", "tools/shared/embed.awk"]
PAGE_PARTS = ["page.html", "page.css", "page.js", "settings.js", "picture.js", "host.js", "worker.js", "build.py"]


def sources():
    found = {path for pattern in PATTERNS for path in glob.glob(pattern, root_dir=ROOT)}
    return sorted(found - LEFT_OUT)


def fingerprint(path):
    """Comments and blank space do not count in C."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    if path.endswith((".c", ".h")):
        text = re.sub(r"/\*.*?\*/|\s+", " ", text, flags=re.S)
        text = re.sub(r" +", " ", text)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def stale(page):
    """Why the page is not of these sources, a line each."""
    with open(page, encoding="utf-8") as file:
        listed = re.search(r'<script type="text/plain" id="sources">\n(.*?)</script>', file.read(), re.S)
    if not listed:
        return [page + " has no list of sources"]
    known = dict(reversed(line.split(" ", 1)) for line in listed.group(1).splitlines())
    reasons = [path + " is new" for path in sources() if path not in known]
    for path, hashed in known.items():
        if not os.path.exists(os.path.join(ROOT, path)):
            reasons.append(path + " is gone")
        elif fingerprint(path) != hashed:
            reasons.append(path + " is another")
    return reasons


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"page: {' '.join(command[:3])} ... failed:\n{done.stdout}{done.stderr}"[:4000])


def get_jansson(folder):
    """Its sources, of the version whose header is installed."""
    found = glob.glob(folder + "/jansson-*/src")
    if found:
        return found[0]
    for part in ("state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN) deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)",
                             "Created-By: Packages"], capture_output=True, text=True, check=True).stdout
    with open(folder + "/sources.list", "w", encoding="utf-8") as file:  # of the archives that this machine has anyway
        file.writelines(sorted({line.split(" ", 1)[1] + "\n" for line in listed.splitlines()
                                if line.split(" ", 1)[0] in ("Debian", "Ubuntu") and line.split()[-1] == "main"}))
    options = [f"-oDir::Etc::sourcelist={folder}/sources.list", "-oDir::Etc::sourceparts=/dev/null",
               f"-oDir::State={folder}/state", "-oDir::State::status=/var/lib/dpkg/status", f"-oDir::Cache={folder}/cache"]
    run("apt-get", *options, "update", cwd=folder)
    run("apt-get", *options, "source", "--download-only", "jansson", cwd=folder)
    run("tar", "xf", glob.glob(folder + "/jansson_*.orig.tar.*")[0], cwd=folder)
    return glob.glob(folder + "/jansson-*/src")[0]


def headers(folder):
    include = folder + "/include"
    os.makedirs(include, exist_ok=True)
    for name in ("xxhash.h", "jansson.h", "jansson_config.h"):
        found = glob.glob("/usr/include/" + name) + glob.glob("/usr/include/*/" + name)
        if not found:
            sys.exit(f"page: {name} is not installed; tools/dev setup installs it")
        if not os.path.exists(include + "/" + name):
            shutil.copy(found[0], include)
    os.makedirs(include + "/tools", exist_ok=True)
    table = subprocess.run(["awk", "-f", EMBEDDED[1], EMBEDDED[0]], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    header = include + "/tools/memplan_devices.h"
    if not os.path.exists(header) or open(header, encoding="utf-8").read() != table:
        with open(header, "w", encoding="utf-8") as file:
            file.write(table)
    with open(include + "/jansson_private_config.h", "w", encoding="utf-8") as file:
        file.write("#define HAVE_STDINT_H 1\n#define HAVE_UNISTD_H 1\n#define INITIAL_HASHTABLE_ORDER 3\n")
    return include


def compile_one(source, output, flags):
    """Returns what it was made of."""
    listing = output[:-2] + ".d"
    if os.path.exists(output) and os.path.exists(listing):
        with open(listing, encoding="utf-8") as file:
            made_of = file.read().replace("\\\n", " ").split(":", 1)[1].split()
        made_of.append(os.path.relpath(__file__, ROOT))  # with its flags
        if all(os.path.exists(os.path.join(ROOT, path)) and
               os.path.getmtime(os.path.join(ROOT, path)) < os.path.getmtime(output) for path in made_of):
            return made_of[:-1]
    run("emcc", *flags, "-MMD", "-MF", listing, "-c", source, "-o", output, cwd=ROOT)
    with open(listing, encoding="utf-8") as file:
        return file.read().replace("\\\n", " ").split(":", 1)[1].split()


def compile_all(folder):
    """The module, and the files of this project in it."""
    jansson, include = get_jansson(folder), headers(folder)
    flags = FLAGS + ["-I", WEB, "-I", ".", "-I", "include", "-I", include]
    jobs = [(source, folder + "/" + source.replace("/", "_")[:-1] + "o", flags) for source in sources()]
    flags = FLAGS + ["-DHAVE_CONFIG_H", f"-ffile-prefix-map={jansson}=jansson", "-I", include]
    jobs += [(f"{jansson}/{name}.c", f"{folder}/jansson_{name}.o", flags) for name in JANSSON]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made_of = list(pool.map(lambda job: compile_one(*job), jobs))
    run("emcc", *LINK, *[output for _, output, _ in jobs], "-o", folder + "/memplan.wasm", cwd=ROOT)
    ours = {os.path.normpath(path) for paths in made_of for path in paths if not os.path.isabs(path)}
    return folder + "/memplan.wasm", sorted(ours - {".."})


def part(name):
    """A file without its licence, which the page's own sources have."""
    with open(os.path.join(ROOT, WEB, name), encoding="utf-8") as file:
        text = file.read()
    return re.sub(r"^(/\* SPDX.*?\*/|<!-- SPDX.*?-->)\n", "", text, flags=re.S)


def compose(wasm, files):
    with open(wasm, "rb") as file:
        packed = base64.b64encode(gzip.compress(file.read(), 9, mtime=0)).decode()
    listed = "".join(f"{fingerprint(path)} {path}\n" for path in sorted(files + EMBEDDED + [f"{WEB}/{name}" for name in PAGE_PARTS]))
    places = {"css": part("page.css"), "sources": listed, "worker": part("host.js") + part("worker.js"),
              "wasm": "".join(packed[i:i + 120] + "\n" for i in range(0, len(packed), 120)),
              "script": part("page.js") + part("settings.js") + part("picture.js")}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place.group(1)], part("page.html"))


def main():
    if sys.argv[1] == "--stale":
        reasons = stale(sys.argv[2])
        print("".join(reason + "\n" for reason in reasons), end="")
        return 1 if reasons else 0
    folder, page = (os.path.abspath(path) for path in sys.argv[1:])
    os.makedirs(folder, exist_ok=True)
    text = compose(*compile_all(folder))
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"page: {page}, {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
