# SPDX-License-Identifier: MIT
#
# Goal: the page of memplan works in a real browser, from the disk: its settings, its picture, its address, and its looks.
# Method: headless Chromium, driven over its pipe. Each control is set, and the total is that of memplan for the command line
#         that the page shows. Borders of screenshots and boxes of texts at 400 and 1,400 pixels show what is cut off.
# Without a Chromium the test is skipped, and says so.
# usage: memplan_browser.py MEMPLAN
import base64
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from tap import finish, result, skip_all

memplan = os.path.realpath(sys.argv[1])
browser = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
if not browser:
    skip_all("no Chromium: neither chromium, chromium-browser nor google-chrome is installed")


class Browser:
    """Chromium with a pipe on descriptors 3 (to it) and 4 (from it); messages end with a NUL."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.out, out_write = os.pipe()

        def descriptors():
            first, second = os.dup(to_read), os.dup(out_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", "--user-data-dir=" + folder, "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(out_write)
        self.rest, self.count, self.session, self.errors, self.requests = b"", 0, None, [], []

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.out, 1 << 20)
            if not piece:
                raise EOFError("Chromium has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("text", "exception"))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        return message

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(method + ": " + answer["error"]["message"])
                return answer["result"]

    def value(self, script, waits=False):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=waits)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def open(self, path, address=""):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network", "DOM", "Accessibility"):
            self.call(domain + ".enable")
        self.call("Page.navigate", url="file://" + path + address)
        while self.read().get("method") != "Page.loadEventFired":
            pass

    def key(self, name, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (EOFError, OSError, RuntimeError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


RATES = json.dumps({"products_flops_per_s": 98e9, "memory_bytes_per_s": 22.2e9, "disk_bytes_per_s": 0.63e9, "link_bytes_per_s": 22.2e9})
DEVICES = json.dumps({"devices": [{"name": "card", "like": "H100", "memory_bytes": {"value": 30e9, "source": "a test"}}]})
# What is not drawn within its own box, or beyond the window. A text that scrolls is whole.
CUT_OFF = """(() => {
  const wide = innerWidth, bad = [];
  const name = node => node.tagName + '#' + node.id + ' ' + node.textContent.slice(0, 30);
  for (const node of document.querySelectorAll('body *')) {
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (!box.width || node.closest('script,datalist,select,details:not([open]) pre'))
      continue;
    if (box.left < -0.5 || box.right > wide + 0.5)
      bad.push(name(node) + ' lies beyond the window');
    if (node.scrollWidth > node.clientWidth + 1 && node.clientWidth && style.overflowX === 'hidden' && !node.closest('svg'))
      bad.push(name(node) + ' is cut off');
  }
  for (const svg of document.querySelectorAll('#picture > svg'))
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBBox(), room = svg.viewBox.baseVal;
      if (box.x < 0 || box.x + box.width > room.width || box.y + box.height > room.height)
        bad.push('in the picture: ' + text.textContent);
    }
  return bad;
})()"""


def check(good, what, *more):
    result(good, what, more)


def pixels(png):
    """The colours of a picture of 8 bits a channel, as a set."""
    at, data, width, depth = 8, b"", 0, 0
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, depth = struct.unpack(">I", png[at + 8:at + 12])[0], {2: 3, 6: 4}[png[at + 17]]
        data += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    data, colours, stride = zlib.decompress(data), set(), width * depth
    before = bytearray(stride)
    for row in range(len(data) // (stride + 1)):
        kind, line = data[row * (stride + 1)], bytearray(data[row * (stride + 1) + 1:(row + 1) * (stride + 1)])
        for i in range(stride):
            left, up = line[i - depth] if i >= depth else 0, before[i]
            corner = before[i - depth] if i >= depth else 0
            nearest = min((abs(up - corner), left), (abs(left - corner), up), (abs(left + up - 2 * corner), corner),
                          key=lambda pair: pair[0])[1]
            line[i] = (line[i] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        before = line
        colours |= {bytes(line[i:i + 3]) for i in range(0, stride, depth)}
    return colours


class Page:
    def __init__(self, chrome, folder):
        self.chrome, self.folder = chrome, folder

    def settle(self):
        """Until the worker has answered everything."""
        for _ in range(600):
            if self.chrome.value("typeof lists === 'object' && !running && !waiting.length && !addressTimer && !!document.body.dataset.state"):
                return
            time.sleep(0.05)
        raise RuntimeError("the page does not answer")

    def text(self, name):
        return self.chrome.value("document.getElementById(%s).textContent" % json.dumps(name))

    def set(self, name, value):
        self.chrome.value("(() => { const c = document.getElementById(%s); if (c.type === 'checkbox') c.checked = %s; else "
                          "c.value = %s; c.dispatchEvent(new Event('input', {bubbles: true})); })()"
                          % (json.dumps(name), json.dumps(bool(value)), json.dumps(str(value))))
        self.settle()

    def planned(self):
        """What memplan says to the command line of the page: the JSON, or its error."""
        words = shlex.split(self.text("command"))[1:]
        done = subprocess.run([memplan, *words, "--json"], capture_output=True, text=True, check=False, cwd=self.folder)
        return done.stdout if done.returncode < 2 else done.stderr.splitlines()[0].replace("memplan: ", "")

    def agrees(self):
        planned = self.planned()
        if planned.startswith("{"):
            return self.text("problem") == "" and self.chrome.value("last.json") == planned and \
                self.text("total").startswith("%.2f GiB" % (json.loads(planned)["total_bytes"] / 2**30))
        return self.text("problem") == planned


def check_settings(page):
    steps = [("ranks", 16), ("batch", 4), ("seq", 2048), ("dtype", "fp32"), ("recompute", "cheap"), ("strategy", "zero2"),
             ("strategy", "zero3"), ("device", "A100-40GB"), ("device", "H100"), ("memory", 40), ("tokens", "1T"), ("price", 2.5),
             ("system", "megatron"), ("global-batch", 64), ("tp", 2), ("pp", 2), ("cp", 2), ("virtual-stages", 2),
             ("sequence-parallel", True), ("recompute", "all"), ("model", "mixtral-8x7b"), ("cp", ""), ("ep", 4),
             ("system", "fsdp2"), ("ep", ""), ("more", "--set num_hidden_layers=8"), ("strategy", "zero9"), ("strategy", "")]
    wrong, before, same = [], page.text("command"), []
    for name, value in steps:
        page.set(name, value)
        if not page.agrees():
            wrong.append("%s = %s: %s; %s; %s" % (name, value, page.text("command"), page.text("problem"), page.text("total")))
        if page.text("command") == before or (value is not True and str(value) not in page.text("command") and name != "memory"):
            same.append("%s = %s" % (name, value))
        before = page.text("command")
    check(not wrong, "each control changes the plan to that of the command line (%d steps)" % len(steps), *wrong)
    check(not same, "each control changes the command line, which has its value", *same)


def check_state(page, file):
    chrome = page.chrome
    page.set("batch", 3)
    command, address = page.text("command"), chrome.value("location.hash")
    chrome.open(file, address)
    page.settle()
    check(page.text("command") == command and page.agrees(), "the address holds the settings", command, page.text("command"))
    with open(os.path.join(page.folder, "config.json"), encoding="utf-8") as config:
        text = config.read()
    page.set("config", text)
    check("config.json" in page.text("command") and page.agrees(), "a config.json that is pasted is planned",
          page.text("command"), page.text("problem"), page.planned())
    chrome.open(file, chrome.value("location.hash"))
    page.settle()
    check(page.chrome.value("document.getElementById('config').value.length") > 100 and page.agrees(),
          "the address holds the config, too")
    page.set("config", "")
    document = chrome.call("DOM.getDocument")["root"]["nodeId"]
    node = chrome.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    chrome.call("DOM.setFileInputFiles", nodeId=node, files=[os.path.join(page.folder, "config.json")])
    time.sleep(0.5)
    page.settle()
    check("config.json" in page.text("command") and page.agrees(), "a config.json that is chosen is planned")


def check_budget(page, file):
    """A budget with its rates: sliders, files that are dropped, the address; the table adds up with what lies elsewhere."""
    chrome, wrong = page.chrome, []
    chrome.open(file, "#--model+gpt2+--ranks+2+--seq+512+--kernels+cpu")
    page.settle()
    page.set("rank-budget", 154)
    check("--budget 756MiB" in page.text("command") and page.agrees() and "needs --rates" in page.text("problem"),
          "a budget without rates is refused as memplan does", page.text("command"), page.text("problem"))
    for text in (RATES, DEVICES):
        chrome.value("(() => { const data = new DataTransfer(); data.items.add(new File([%s], %s)); document.dispatchEvent(new "
                     "DragEvent('drop', {dataTransfer: data, cancelable: true})); })()"
                     % (json.dumps(text), json.dumps("rates.json" if text == RATES else "devices.json")))
        time.sleep(0.3)
        page.settle()
    check("--rates rates.json --devices devices.json" in page.text("command") and page.agrees() and
          page.text("choice").startswith("The budget chooses recompute"), "dropped rates and devices are known by their names",
          page.text("command"), page.text("problem"), page.text("choice"))
    for name, value in (("rank-budget", 156), ("budget", "900MiB"), ("kernels", "cuda"), ("host-budget", 190), ("device", "card"),
                        ("strategy", "zero2"), ("budget", "2GiB,2GiB")):
        page.set(name, value)
        rows = chrome.value("[...document.querySelectorAll('#rows .bytes')].map(cell => +cell.textContent.replace(/,/g, ''))")
        if not page.agrees() or sum(rows[:-1]) != rows[-1]:
            wrong.append("%s = %s: %s; %s; %s" % (name, value, page.text("command"), page.text("problem"), rows))
    check(not wrong, "each budget plans as the command line does, and the parts add up", *wrong)
    check(chrome.value("document.getElementById('rank-budget').value") == "177", "the slider follows the text",
          chrome.value("document.getElementById('rank-budget').value"))
    command, choice = page.text("command"), page.text("choice")
    chrome.open(file, chrome.value("location.hash"))
    page.settle()
    check(page.text("command") == command and page.text("choice") == choice and choice and page.agrees(),
          "the address holds budget, rates and devices", command, page.text("command"), page.text("choice"))


def check_picture(page):
    chrome = page.chrome
    chrome.value("document.getElementById('picture').focus()")
    texts = []
    for key, code in (("ArrowRight", 39), ("ArrowRight", 39), ("ArrowUp", 38), ("ArrowDown", 40), ("ArrowLeft", 37)):
        chrome.key(key, code)
        texts.append(page.text("readout"))
    check(all("live then: " in text for text in texts) and len(set(texts)) > 2, "arrow keys name rows of the picture", *texts)
    chrome.value("(() => { const row = document.querySelectorAll('.rows rect')[3]; const box = row.getBoundingClientRect(); "
                 "document.getElementById('readout').textContent = ''; row.dispatchEvent(new PointerEvent('pointerdown', "
                 "{bubbles: true, pointerType: 'touch', clientX: box.x + 1, clientY: box.y})); })()")
    check("live then: " in page.text("readout"), "a touch names a row", page.text("readout"))
    colours = "[...document.querySelectorAll('%s')].map(n => getComputedStyle(n).fill)"
    table, rows = (set(chrome.value(colours % selector)) for selector in ("#rows tr:not(:last-child) td:last-child rect", ".rows rect"))
    check(len(table & rows) >= 6, "table and arena have the same colours", table, rows)
    saved = chrome.value("new Promise(done => { const make = URL.createObjectURL; URL.createObjectURL = blob => { blob.text().then("
                         "done); return make(blob); }; document.getElementById('save-svg').click(); })", True)
    check(saved.startswith("<svg") and saved.rstrip().endswith("</svg>") and "<title>" in saved, "the picture is saved as SVG")


def check_looks(page):
    chrome = page.chrome
    chrome.call("Emulation.setScrollbarsHidden", hidden=True)
    for width in (400, 1400):
        chrome.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        time.sleep(0.3)
        page.settle()
        cut = chrome.value(CUT_OFF)
        check(not cut, "at %d pixels nothing is cut off" % width, *cut)
        wide, high = chrome.value("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        borders = set()
        for x in (0, wide - 3):
            clip = {"x": x, "y": 0, "width": 3, "height": high, "scale": 1}
            shot = chrome.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
            borders |= pixels(base64.b64decode(shot["data"]))
        check(wide <= width and len(borders) == 1, "at %d pixels nothing reaches the borders of a screenshot" % width, wide, borders)
    background = "getComputedStyle(document.body).backgroundColor"
    light = chrome.value(background)
    chrome.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = chrome.value(background)
    levels = [int(n) for n in dark[dark.index("(") + 1:-1].split(",")[:3]]
    check(light != dark and max(levels) < 64, "it is dark where the user wants it dark", dark)
    nodes = chrome.call("Accessibility.getFullAXTree")["nodes"]
    kinds = ("button", "textbox", "combobox", "slider", "spinbutton", "checkbox", "link", "ComboBoxMenuButton", "DisclosureTriangle")
    inputs = [node for node in nodes if not node.get("ignored") and node.get("role", {}).get("value") in kinds]
    nameless = [node["role"]["value"] for node in inputs if not node.get("name", {}).get("value")]
    check(len(inputs) >= 25 and not nameless, "every control has a name for those who do not see it (%d)" % len(inputs), nameless)


def run(folder):
    file = os.path.join(folder, "plan.html")
    for name, text in (("rates.json", RATES), ("devices.json", DEVICES)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as written:
            written.write(text)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as config:
        json.dump({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192,
                   "rms_norm_eps": 1e-5, "head_dim": 64, "tie_word_embeddings": True}, config)
    subprocess.run([memplan, "--model", "gpt2", "--ranks", "8", "--batch", "2", "--seq", "256", "--device-memory", "4GiB",
                    "--html", file], stdout=subprocess.DEVNULL, check=False)
    chrome = Browser(os.path.join(folder, "profile"))
    page = Page(chrome, folder)
    try:
        chrome.open(file)
        page.settle()
        check(page.text("command") == "memplan --model gpt2 --ranks 8 --batch 2 --seq 256 --device-memory 4GiB" and page.agrees(),
              "the page opens with the settings of the program", page.text("command"), page.text("total"), page.text("problem"))
        check(page.text("verdict").startswith("FITS"), "the page says whether it fits", page.text("verdict"))
        chrome.value("document.getElementById('memory').focus()")
        chrome.key("ArrowLeft", 37)
        page.settle()
        check("--device-memory 3.5GiB" in page.text("command") and page.agrees(), "an arrow key moves the slider", page.text("command"))
        check_picture(page)
        check_settings(page)
        check_state(page, file)
        check_budget(page, file)
        check_looks(page)
        others = [url for url in chrome.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
        check(not others, "nothing is asked of a network", *others)
        check(not chrome.errors, "the console holds no error", *chrome.errors)
    finally:
        chrome.close()


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
    run(work)
finish()
