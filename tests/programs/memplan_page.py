# SPDX-License-Identifier: MIT
#
# Goal: the page of memplan --html works in a real browser.
# Method: headless Chromium, driven over its pipe: no error in its console, a slider moved by script and another by the
#         keyboard change the total to that of the plan, the page fits a phone, and is dark where the user wants it dark.
# Without a Chromium the test is skipped, and says so.
# usage: memplan_page.py MEMPLAN
import json
import os
import shutil
import subprocess
import sys
import tempfile

memplan = os.path.realpath(sys.argv[1])
browser = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
if not browser:
    print("1..0 # SKIP no Chromium: neither chromium, chromium-browser nor google-chrome is installed")
    sys.exit(0)


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
        self.rest, self.count, self.session, self.errors = b"", 0, None, []

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

    def value(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def open(self, path):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.call("Page.navigate", url="file://" + path)
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


count = 0


def check(good, what, more=""):
    global count
    count += 1
    if not good and more:
        print("# " + more)
    print(("ok" if good else "not ok") + " %d - %s" % (count, what), flush=True)


def planned(world, batch):
    out = subprocess.run([memplan, "--model", "gpt2", "--world", str(world), "--batch", str(batch), "--seq", "256",
                          "--device-memory", "2GiB", "--json"], capture_output=True, check=False)
    return json.loads(out.stdout)["total_bytes"]


def gib(number):
    return "%.3f GiB" % (number / 2**30)


def run(folder):
    page = os.path.join(folder, "plan.html")
    subprocess.run([memplan, "--model", "gpt2", "--world", "8", "--batch", "2", "--seq", "256", "--device-memory", "2GiB",
                    "--html", page], stdout=subprocess.DEVNULL, check=False)
    text = open(page, encoding="utf-8").read()
    outside = text.replace("http://www.w3.org/2000/svg", "")
    check("http://" not in outside and "https://" not in outside, "the page names nothing on a network")
    chrome = Browser(os.path.join(folder, "profile"))
    try:
        total = "document.getElementById('total').textContent"
        chrome.open(page)
        first = chrome.value(total)
        check(first == gib(planned(8, 2)), "the page opens with the total of the plan", first)
        chrome.value("(()=>{const s=document.getElementById('world');s.value=0;s.dispatchEvent(new Event('input'));})()")
        moved = chrome.value(total)
        check(moved == gib(planned(4, 2)) and moved != first, "a slider that moves changes it to that of the other plan", moved)
        chrome.value("document.getElementById('batch').focus()")
        chrome.key("ArrowRight", 39)
        by_key = chrome.value(total)
        check(by_key == gib(planned(4, 4)) and by_key != moved, "an arrow key moves a slider", by_key)
        check(chrome.value("document.getElementById('verdict').textContent").startswith(("FITS", "DOES NOT FIT")),
              "the page says whether it fits")
        check(chrome.value("document.querySelectorAll('.picture svg rect title').length") > 100,
              "rectangles of the picture are named")
        chrome.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=3, mobile=True)
        wide = chrome.value("document.documentElement.scrollWidth")
        check(wide <= 390, "on a phone nothing is wider than the screen", "%s pixels" % wide)
        light = chrome.value("getComputedStyle(document.body).backgroundColor")
        chrome.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        dark = chrome.value("getComputedStyle(document.body).backgroundColor")
        levels = [int(n) for n in dark[dark.index("(") + 1:-1].split(",")[:3]]
        check(light != dark and max(levels) < 64, "it is dark where the user wants it dark", dark)
        check(not chrome.errors, "the console holds no error", "; ".join(chrome.errors))
    finally:
        chrome.close()


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
    run(work)
print("1..%d" % count)
