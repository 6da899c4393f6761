/* SPDX-License-Identifier: MIT
 *
 * Reading the picture by pointer, touch and keyboard; and the start of the page.
 */
'use strict';
let rows = [], chosen = -1;

function readPicture() {
  rows = [...at('picture').querySelectorAll('.rows rect')].map(node => {
    const [x, y, width, height] = ['x', 'y', 'width', 'height'].map(name => +node.getAttribute(name));
    const [name, what, when] = node.textContent.split('\n'), [category, bytes] = what.split(', ');
    return {node, x, y, width, height, name, category, bytes: parseInt(bytes, 10), when, what};
  });
  chosen = -1;
}

/* The row, and what lives together with it at time x. */
function choose(index, x) {
  if (chosen >= 0)
    rows[chosen].node.classList.remove('chosen');
  chosen = index;
  const row = rows[index], sums = {};
  row.node.classList.add('chosen');
  let all = 0;
  for (const other of rows)
    if (other.x <= x && x < other.x + other.width) {
      sums[other.category] = (sums[other.category] || 0) + other.bytes;
      all += other.bytes;
    }
  const parts = Object.entries(sums).sort((a, b) => b[1] - a[1]).map(([name, bytes]) => `${name} ${gib(bytes)}`);
  at('readout').textContent = `${row.name}: ${row.what}, ${row.when}\nlive then: ${gib(all)} GiB: ${parts.join(', ')}`;
}

function point(event) {
  const index = rows.findIndex(row => row.node === event.target), picture = at('picture').firstElementChild;
  if (index < 0) {
    const title = event.target.querySelector && event.target.querySelector(':scope > title');
    if (title)
      at('readout').textContent = title.textContent;
    return;
  }
  const box = picture.getBoundingClientRect();
  choose(index, (event.clientX - box.left) / box.width * picture.viewBox.baseVal.width);
}

/* Left and right: the row that begins before or after this one; up and down: the one beside it at that time. */
function step(key) {
  const row = rows[Math.max(0, chosen)], x = row.x + 0.01;
  const better = {
    ArrowRight: other => other.x > row.x ? other.x - row.x : NaN,
    ArrowLeft: other => other.x < row.x ? row.x - other.x : NaN,
    ArrowUp: other => other.y < row.y && other.x <= x && x < other.x + other.width ? row.y - other.y : NaN,
    ArrowDown: other => other.y > row.y && other.x <= x && x < other.x + other.width ? other.y - row.y : NaN,
  }[key];
  let best = -1, least = Infinity;
  rows.forEach((other, index) => {
    const far = better(other) + Math.abs(other.y - row.y) * 1e-6;
    if (far < least)
      [best, least] = [index, far];
  });
  if (chosen < 0)
    best = 0;
  if (best >= 0)
    choose(best, Math.max(x, rows[best].x + 0.01));
}

function save(name, text, type) {
  const link = element('a', {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch (error) {
    getSelection().selectAllChildren(at('command'));
    button.textContent = 'Selected: copy it';
  }
  setTimeout(() => button.textContent = label, 2000);
}

/* What a file is, its names say. */
function kindOf(text) {
  try {
    const json = JSON.parse(text);
    return json.products_flops_per_s !== undefined ? 'rates' : Array.isArray(json.devices) ? 'devices' : 'config';
  } catch (error) {
    return 'config';
  }
}

function takeFile(text, name) {
  const kind = kindOf(text);
  at(kind).value = text;
  names[kind] = name || kind + '.json';
  updateLists();
}

/* ---- the start ---- */

function fill(select, names, first) {
  select.replaceChildren(...first === undefined ? [] : [element('option', {value: ''}, first)], ...names.map(name => element('option', {}, name)));
}

/* What can be chosen, with the devices of a file. */
function takeLists(then) {
  if (listed === textOf('devices') && lists)
    return then();
  ask('lists', textOf('devices') ? ['--devices', names.devices] : [], answer => {
    if (answer.status === 2 && !answer.out) {
      at('problem').textContent = answer.err;
      if (lists) /* of the table: a plan says the same of its devices */
        then();
      return;
    }
    const chosen = at('device').value;
    listed = textOf('devices');
    lists = JSON.parse(answer.out);
    fill(at('device'), lists.devices.map(one => one.name), 'none');
    at('device').value = lists.devices.some(one => one.name === chosen) ? chosen : '';
    then();
  });
}

function updateLists() {
  takeLists(update);
}

function listen() {
  at('settings').addEventListener('input', event => {
    const {id} = event.target;
    linkProblem = '';
    if (id === 'device')
      setMemoryRange();
    if (id === 'model')
      at('config').value = '';
    if (id === 'rank-budget' || id === 'host-budget')
      takeBudget();
    if (id !== 'file')
      updateLists();
  });
  at('settings').addEventListener('submit', event => event.preventDefault());
  at('file').addEventListener('change', async event => {
    const [file] = event.target.files;
    if (file)
      takeFile(await file.text(), file.name);
  });
  for (const kind of ['dragover', 'dragleave', 'drop'])
    document.addEventListener(kind, event => {
      event.preventDefault();
      document.body.classList.toggle('over', kind === 'dragover');
    });
  document.addEventListener('drop', async event => {
    const [file] = event.dataTransfer.files;
    takeFile(file ? await file.text() : event.dataTransfer.getData('text'), file && file.name);
  });
  document.addEventListener('paste', event => {
    const text = event.clipboardData.getData('text');
    if (!/^(INPUT|TEXTAREA)$/.test(event.target.tagName) && text.trim().startsWith('{'))
      takeFile(text);
  });
  at('picture').addEventListener('pointermove', point);
  at('picture').addEventListener('pointerdown', point);
  at('picture').addEventListener('keydown', event => {
    if (!/^Arrow/.test(event.key) || !rows.length)
      return;
    event.preventDefault();
    step(event.key);
  });
  at('save-svg').addEventListener('click', () => save('plan.svg', last.svg, 'image/svg+xml'));
  at('save-json').addEventListener('click', () => save('plan.json', last.json, 'application/json'));
  at('copy').addEventListener('click', event => copy(at('command').textContent, event.target));
  at('link').addEventListener('click', event => copy(location.href, event.target));
  document.querySelector('details').addEventListener('toggle', event => event.target.open && showReport());
  let width = pictureWidth();
  addEventListener('resize', () => {
    if (pictureWidth() !== width)
      update();
    width = pictureWidth();
  });
  addEventListener('hashchange', () => {
    if (location.hash !== address && !addressTimer) {
      readAddress(update);
    }
  });
}

takeLists(() => {
  const asked = askedFirst();
  const begin = () => {
    listen();
    update();
  };
  fill(at('model'), lists.models);
  fill(at('system'), lists.systems);
  at('options').replaceChildren(...lists.options.map(one => element('option', {value: '--' + one.name}, one.doc)));
  setMemoryRange();
  if (location.hash.length > 1)
    readAddress(begin);
  else
    takeAll(asked.words, asked.files, begin);
});
