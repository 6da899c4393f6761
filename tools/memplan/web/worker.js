/* SPDX-License-Identifier: MIT */
'use strict';
let module;

onmessage = async event => {
  const {id, wasm, words, files} = event.data;
  if (wasm)
    module = memplanModule(wasm);
  if (!words)
    return;
  try {
    const ready = await module, begun = performance.now();
    const answer = memplanRun(ready, words, files);
    postMessage({id, ms: performance.now() - begun, ...answer});
  } catch (error) {
    postMessage({id, ms: 0, status: 2, err: 'this browser cannot run the planner: ' + error, out: '', svg: ''});
  }
};
