// SPDX-License-Identifier: MIT
//
// Goal: memplan's page turns words and links into controls, and controls into words, without a loss.
// Method: the page's sources run on elements that only hold values, and a worker that only notes what it is asked. Each case
//         comes as an address or as the words of memplan --html; the questions and what the page says are printed as JSON.
// usage: node memplan_settings.mjs WEB < CASES       CASES: [{asked, hash}, ...]
import fs from 'fs';

const [folder] = process.argv.slice(2), read = name => fs.readFileSync(`${folder}/${name}`, 'utf8');
const lists = {
  models: ['gpt2', 'llama-3-8b'], systems: ['evenodd', 'megatron', 'fsdp2'], categories: [],
  devices: [{name: 'H100', bytes: 85010153472, timed: true}, {name: 'T4', bytes: 16106127360, timed: false}],
  options: [...['model', 'system', 'device', 'device-memory', 'headroom', 'fit', 'ranks', 'seq'].map(name => ({name, value: true})),
            {name: 'time', value: false}, {name: 'compare', value: false}],
};

class Element {
  constructor(text) {
    const named = name => (new RegExp(` ${name}="([^"]*)"`).exec(text) || [])[1];
    Object.assign(this, {id: named('id'), type: named('type'), max: named('max'), first: named('value') || '', dataset: {}, checked: false,
                         textContent: '', listeners: {}, style: {}});
    if (named('data-option'))
      this.dataset.option = named('data-option');
    if (text.startsWith('<select'))
      this.options = [...text.matchAll(/<option>([^<]*)/g)].map(match => ({value: match[1]}));
    this.selectedIndex = this.options ? 0 : undefined;
    this.text = this.first;
  }
  get value() { return this.options ? (this.options[this.selectedIndex] || {value: ''}).value : this.text; }
  set value(value) {
    if (this.options)
      this.selectedIndex = this.options.findIndex(one => one.value === value);
    else
      this.text = this.type === 'range' ? String(Math.max(0, Math.min(+this.max, Math.round(value * 2) / 2))) : String(value);
  }
  replaceChildren(...options) { if (this.options) Object.assign(this, {options, selectedIndex: 0}); }
  addEventListener(kind, then) { this.listeners[kind] = then; }
  setAttribute(name, value) { this[name] = value; }
  append(...texts) { this.value ??= texts.join(''); this.text = this.text || texts.join(''); }
}

function open({asked = null, hash = ''}) {
  const parts = read('page.html').match(/<(?:select|input|textarea|output|form|p|span|pre|div|script|tbody|datalist|button)\b[^>]*\bid="[^>]*>(?:<option>[^<]*)*/g);
  const elements = Object.fromEntries(parts.map(text => new Element(text)).map(one => [one.id, one]));
  const controls = Object.values(elements).filter(one => one.dataset.option), questions = [];
  elements.asked.textContent = JSON.stringify(asked);
  elements.settings.reset = () => controls.concat(elements.memory).forEach(one => {
    one.checked = false;
    one.options ? one.selectedIndex = 0 : one.text = one.first;
  });
  const document = {
    body: {dataset: {}, classList: {}}, addEventListener() {}, getElementById: id => elements[id] ??= new Element(''),
    querySelectorAll: () => controls, querySelector: () => elements.details ??= new Element(''), createElement: () => new Element(''),
  };
  class Worker {
    postMessage({words}) {
      if (!words)
        return;
      const isLists = !words.includes('--model');
      if (!isLists)
        questions.push(words);
      queue.push(() => this.onmessage({data: {status: 0, err: '', out: isLists ? JSON.stringify(lists) : '', ms: 1, svg: ''}}));
    }
  }
  const queue = [], location = {hash, replace() {}};
  new Function('document', 'location', 'Worker', 'URL', 'Blob', 'addEventListener', 'setTimeout', 'clearTimeout',
               ['page.js', 'settings.js', 'picture.js'].map(read).join('\n'))(
    document, location, Worker, {createObjectURL() {}}, class {}, () => {}, () => 1, () => {});
  while (queue.length)
    queue.shift()();
  return {command: elements.command.textContent.replace(/^memplan /, ''), questions, problem: elements.problem.textContent};
}

process.stdout.write(JSON.stringify(JSON.parse(fs.readFileSync(0, 'utf8')).map(one => {
  try {
    return open(one);
  } catch (error) {
    return {command: '', questions: [], problem: String(error.stack)};
  }
})));
