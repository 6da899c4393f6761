// SPDX-License-Identifier: MIT
//
// Runs the WebAssembly of a page of memplan under node, as the page's worker does. Settings come on standard input, as JSON:
// [{words, files}, ...]; answers go to standard output: [{status, out, err, ms}, ...].
// usage: node memplan_page.mjs PAGE
import fs from 'fs';

const page = fs.readFileSync(process.argv[2], 'utf8');
const part = id => new RegExp(`<script type="text/plain" id="${id}">\n([^]*?)</script>`).exec(page)[1];
const host = new Function('let onmessage;' + part('worker') + ';return {memplanModule, memplanRun}')();
const module = await host.memplanModule(part('wasm'));
const answers = JSON.parse(fs.readFileSync(0, 'utf8')).map(({words, files}) => {
  const begun = performance.now(), {status, out, err} = host.memplanRun(module, words, files);
  return {status, out, err, ms: performance.now() - begun};
});
process.stdout.write(JSON.stringify(answers));
