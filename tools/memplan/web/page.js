/* SPDX-License-Identifier: MIT
 *
 * The worker answers a command line with JSON and a picture, and what is shown of them.
 */
'use strict';
const at = id => document.getElementById(id), GIB = 2 ** 30;
const controls = [...document.querySelectorAll('[data-option]')];
const partColours = {weights: 0, gradients: 2, optimizer: 3, buffers: 4, activations: 6, head: 8, workspaces: 7};
const greys = {gaps: '#c3c8cf', outside: '#5b626c'};
const fileKinds = ['config', 'rates', 'devices'], names = {config: 'config.json', rates: 'rates.json', devices: 'devices.json'};
let lists, last, listed = '', address = '', addressTimer = 0, linkProblem = '';

/* ---- the worker: one question at a time, and only the newest waits ---- */

const worker = new Worker(URL.createObjectURL(new Blob([at('worker').textContent], {type: 'text/javascript'})));
const waiting = [];
let running = null;

function ask(kind, words, then) {
  const same = waiting.findIndex(question => question.kind === kind);
  if (same >= 0)
    waiting.splice(same, 1);
  waiting.push({kind, words, files: filesOf(), then});
  askNext();
}

function askNext() {
  if (running || !waiting.length)
    return;
  running = waiting.shift();
  worker.postMessage({id: 0, words: running.words, files: running.files});
}

worker.onmessage = event => {
  const {then} = running;
  running = null;
  then(event.data);
  askNext();
};
worker.postMessage({wasm: at('wasm').textContent});

/* ---- what is shown ---- */

const gib = (bytes, digits = 2) => (bytes / GIB).toFixed(digits);

function partsOf(json) {
  const parts = [];
  if (json.estimate)
    for (const [name, bytes] of Object.entries(json.parts_at_peak))
      parts.push({name, bytes, colour: lists.categories[partColours[name]] ? lists.categories[partColours[name]].colour : greys.gaps});
  else
    for (const {name, colour} of lists.categories)
      parts.push({name, colour, bytes: json.categories_at_peak[name] - (name === 'other' && json.settings.on_gpu ? json.host_bytes : 0)});
  if (!json.estimate)
    parts.push({name: 'gaps', bytes: json.arena_bytes - json.lower_bound_bytes, colour: greys.gaps});
  parts.push({name: 'outside', bytes: json.outside_bytes, colour: greys.outside});
  return parts.filter(part => part.bytes > 0);
}

function element(name, attributes, ...children) {
  const node = /^(svg|rect|text|path)$/.test(name) ? document.createElementNS('http://www.w3.org/2000/svg', name)
                                                   : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function showTable(json) {
  const lines = partsOf(json).sort((a, b) => b.bytes - a.bytes).map(part => {
    const swatch = element('svg', {viewBox: '0 0 12 12', 'aria-hidden': true}, element('rect', {width: 12, height: 12, fill: part.colour}));
    const bar = element('svg', {'aria-hidden': true}, element('rect', {width: 100 * part.bytes / json.total_bytes + '%', height: 12, fill: part.colour}));
    return element('tr', {}, element('td', {}, swatch, part.name), element('td', {}, gib(part.bytes, 3)),
                   element('td', {class: 'bytes'}, part.bytes.toLocaleString('en')), element('td', {}, bar));
  });
  lines.push(element('tr', {}, element('th', {scope: 'row'}, 'total'), element('td', {}, gib(json.total_bytes, 3)),
                     element('td', {class: 'bytes'}, json.total_bytes.toLocaleString('en')), element('td')));
  at('rows').replaceChildren(...lines);
}

/* Of an estimate: its parts in a row, and the capacity. */
function barPicture(json, width) {
  const scale = (width - 20) / Math.max(json.total_bytes, json.capacity_bytes || 0);
  const svg = element('svg', {xmlns: 'http://www.w3.org/2000/svg', class: 'memplan', viewBox: `0 0 ${width} 74`, role: 'img', 'aria-label': 'memory of a GPU, by part'});
  let x = 10;
  for (const part of partsOf(json)) {
    svg.append(element('rect', {x, y: 20, width: part.bytes * scale, height: 32, fill: part.colour}, element('title', {}, `${part.name}\n${part.bytes} bytes`)));
    x += part.bytes * scale;
  }
  if (json.capacity_bytes) {
    const line = 10 + json.capacity_bytes * scale;
    svg.append(element('path', {d: `M${line} 12V60`, stroke: '#e15759', 'stroke-width': 2}),
               element('text', {x: line - 4, y: 70, 'text-anchor': 'end', 'font-size': 12, fill: 'currentColor'}, `capacity ${gib(json.capacity_bytes)} GiB`));
  }
  return svg.outerHTML;
}

function seconds(json) {
  if (json.step_seconds == null)
    return '';
  const texts = [`${json.step_seconds.toFixed(3)} s a step`, `${Math.round(json.tokens_per_second).toLocaleString('en')} tokens/s`,
                 `MFU ${(100 * json.mfu).toFixed(1)} %`, `bound by ${json.bound_by}`, `communication not hidden ${json.exposed_comm_seconds.toFixed(3)} s`];
  if (json.days != null)
    texts.push(`${json.days.toFixed(1)} days`);
  if (json.cost)
    texts.push(`cost ${Math.round(json.cost).toLocaleString('en')}`);
  return texts.join(', ') + ' (estimate)';
}

function choiceText(json) {
  const budget = json.budget;
  if (!budget)
    return '';
  const text = one => `recompute ${one.recompute}, buffers ${one.slots.join(',')}` +
    (one.offload_layers ? `, state of ${one.offload_layers} layers offloaded` + (one.offload_gradients ? ' with gradients' : '') +
      (one.late_updates ? ', updated late' : '') : '') +
    (one.offload_activations ? ', activations offloaded' : '') + `: ${one.predicted_step_s.toPrecision(4)} s a step`;
  return [`The budget chooses ${text(budget.chosen)} (predicted)`,
          ...budget.more.map(one => `${gib(one.arena_bytes + one.cache_bytes)} GiB would give ${text(one)}`)].join('\n');
}

function showVerdict(json) {
  const left = json.capacity_bytes - (json.headroom_bytes || 0) - json.total_bytes;
  at('total').textContent = gib(json.total_bytes) + ' GiB' + (json.estimate ? ' (estimate)' : '');
  at('verdict').className = json.fits ? 'fits' : 'lacks';
  at('verdict').textContent = !json.capacity_bytes ? '' : json.fits ? `FITS, ${gib(left)} GiB spare` : `DOES NOT FIT, lacks ${gib(-left)} GiB`;
}

function showPlaceholders(json) {
  const fields = {ranks: 'world', tp: 'tp', pp: 'pp', cp: 'cp', ep: 'ep', 'virtual-stages': 'virtual_stages'};
  for (const one of controls)
    if (one.placeholder !== undefined) {
      const value = json.settings[fields[one.id] || one.id];
      if (value !== undefined)
        one.placeholder = value;
    }
}

function show(answer, words) {
  const text = answer.err.replace(/^memplan: /, '').replace(/\nTry `memplan.*\n/, '').trim();
  at('problem').textContent = answer.status === 2 ? text || 'no answer' : linkProblem;
  at('took').textContent = `Planned in ${answer.ms.toFixed(0)} ms`;
  at('readout').textContent = answer.status === 2 ? '' : text;
  document.body.dataset.state = answer.status === 2 ? 'refused' : 'planned';
  if (answer.status === 2)
    return;
  try {
    last = {json: answer.out, words, parsed: JSON.parse(answer.out)};
  } catch (error) { /* words that print a table in the place of JSON */
    at('report').textContent = answer.out;
    at('total').textContent = at('verdict').textContent = '';
    document.querySelector('details').open = true;
    return;
  }
  const json = last.parsed;
  showVerdict(json);
  showTable(json);
  showPlaceholders(json);
  at('times').textContent = seconds(json);
  at('choice').textContent = choiceText(json);
  at('picture').innerHTML = last.svg = answer.svg || barPicture(json, pictureWidth());
  readPicture();
  if (document.querySelector('details').open)
    showReport();
}

/* Of evenodd's own plans, with a picture. */
const isOwn = words => at('system').selectedIndex === 0 && !words.includes('--compare');
/* Of other systems searches and comparisons print a table in the place of JSON. */
const isTable = words => !isOwn(words) && words.some(word => /^--(fit|compare)\b/.test(word));

function showReport() {
  const words = wordsOf();
  ask('report', [...words, ...isOwn(words) ? ['--explain'] : []], answer => at('report').textContent = answer.out || answer.err);
}

function pictureWidth() {
  return Math.max(240, Math.min(1200, at('picture').clientWidth || 1200));
}

function update() {
  const words = wordsOf(), elsewhere = /--(device-memory|headroom)\b/.test(at('more').value);
  at('memory-now').textContent = elsewhere ? 'as other options say' : +at('memory').value ? (+at('memory').value).toFixed(1) + ' GiB' : 'not asked';
  showBudget();
  at('command').textContent = ['memplan', ...words].map(quoted).join(' ');
  writeAddress(words);
  ask('plan', [...words, ...isTable(words) ? [] : ['--json'], ...isOwn(words) ? ['--svg', String(pictureWidth())] : []], answer => show(answer, words));
}
