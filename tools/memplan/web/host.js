/* SPDX-License-Identifier: MIT
 *
 * Runs memplan, compiled to WebAssembly, as a program: words in, status and texts out. The page runs it in a worker, the tests
 * in node. It needs neither files nor a network; each run is an instance of its own, as a program is a process of its own.
 */
'use strict';

/* The module from what the page holds: base64 of gzip. */
async function memplanModule(base64) {
  const packed = Uint8Array.from(atob(base64.replace(/\s/g, '')), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

/* `files`: names and texts; as JSON they are standard input. */
function memplanRun(module, words, files) {
  const encoder = new TextEncoder(), decoder = new TextDecoder(), ended = {};
  const args = ['memplan', ...words].map(word => encoder.encode(word + '\0'));
  const texts = {1: '', 2: ''};
  let instance, status = 0, rest = encoder.encode(JSON.stringify(files || {}));
  const view = () => new DataView(instance.exports.memory.buffer);
  const bytes = (at, count) => new Uint8Array(instance.exports.memory.buffer, at, count);
  const put = (at, number) => view().setUint32(at, number, true);
  const pieces = (list, count) => Array.from({length: count}, (_, i) =>
    bytes(view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)));
  const wasi = {
    args_sizes_get(count, size) {
      put(count, args.length);
      put(size, args.reduce((sum, arg) => sum + arg.length, 0));
      return 0;
    },
    args_get(list, at) {
      for (const arg of args) {
        put(list, at);
        bytes(at, arg.length).set(arg);
        list += 4;
        at += arg.length;
      }
      return 0;
    },
    fd_write(file, list, count, written) {
      let sum = 0;
      for (const piece of pieces(list, count)) {
        texts[file] += decoder.decode(piece.slice());
        sum += piece.length;
      }
      put(written, sum);
      return 0;
    },
    fd_read(file, list, count, read) {
      let sum = 0;
      for (const piece of pieces(list, count)) {
        const part = rest.subarray(0, piece.length);
        piece.set(part);
        rest = rest.subarray(part.length);
        sum += part.length;
      }
      put(read, sum);
      return 0;
    },
    fd_fdstat_get(file, at) {
      bytes(at, 24).fill(0);
      return 0;
    },
    fd_close: () => 0,
    fd_seek: () => 70, /* a pipe */
    environ_sizes_get(count, size) {
      put(count, 0);
      put(size, 0);
      return 0;
    },
    environ_get: () => 0,
    clock_time_get(clock, precision, at) { /* none: a search says nothing of its progress */
      bytes(at, 8).fill(0);
      return 0;
    },
    proc_exit(code) {
      status = code;
      throw ended;
    },
  };
  instance = new WebAssembly.Instance(module, {wasi_snapshot_preview1: wasi, env: {emscripten_notify_memory_growth() {}}});
  try {
    instance.exports._start();
  } catch (error) {
    if (error !== ended)
      throw error;
  }
  const at = texts[1].indexOf('\n<svg '); /* JSON has no such line */
  return {status, err: texts[2], out: at < 0 ? texts[1] : texts[1].slice(0, at + 1), svg: at < 0 ? '' : texts[1].slice(at + 1)};
}
