/* SPDX-License-Identifier: MIT
 *
 * Controls become words of a command line, and files beside it. Both are the address, too.
 */
'use strict';
function textOf(kind) {
  return at(kind).value.trim();
}

function filesOf() {
  return Object.fromEntries(fileKinds.filter(textOf).map(kind => [names[kind], at(kind).value]));
}

function device() {
  return lists.devices.find(one => one.name === at('device').value);
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replace(/'/g, "'\\''") + "'";
}

function split(text) {
  return [...text.matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g)].map(match => match[0].replace(/'([^']*)'|"([^"]*)"/g, '$1$2'));
}

function memoryWords() {
  const slider = at('memory'), asked = +slider.value;
  if (device())
    return asked < +slider.max ? ['--headroom', Math.round(device().bytes - asked * GIB) + 'B'] : [];
  return asked ? ['--device-memory', asked + 'GiB'] : [];
}

function wordsOf() {
  const words = ['--model', textOf('config') ? names.config : at('model').value];
  for (const one of controls) {
    if (one.type === 'checkbox')
      words.push(...one.checked ? ['--' + one.dataset.option] : []);
    else if (one.value.trim() && one.selectedIndex !== 0)
      words.push('--' + one.dataset.option, one.value.trim());
  }
  if (textOf('rates') && textOf('budget'))
    words.push('--rates', names.rates);
  if (textOf('devices'))
    words.push('--devices', names.devices);
  words.push(...memoryWords());
  if (textOf('tokens')) {
    words.push('--tokens', textOf('tokens'));
    if (at('price').value)
      words.push('--price', at('price').value);
  } else if (device() && device().timed) {
    words.push('--time');
  }
  return [...words, ...split(at('more').value)];
}

function setMemoryRange() {
  const slider = at('memory');
  slider.max = device() ? Math.floor(device().bytes / GIB * 2) / 2 : 288;
  slider.value = device() ? slider.max : 0;
}

/* A place of the slider for memory. */
const hasPlace = gib => gib > 0 && gib * 2 % 1 === 0 && gib <= +at('memory').max;

function takeBytes(text) {
  const match = /^([\d.]+)(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$/.exec(text) || [0, 0, 'B'];
  const units = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: GIB, TiB: 2 ** 40, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12};
  return match[1] * units[match[2]];
}

/* A place of a slider: 16 double it, the first is 1 MiB. */
const budgetAt = place => +(2 ** ((place - 1) / 16)).toPrecision(3) + 'MiB';
const placeOf = text => text ? Math.max(1, Math.min(321, Math.round(16 * Math.log2(takeBytes(text.trim()) / 2 ** 20) + 1))) : 0;

function showBudget() {
  const sizes = textOf('budget').split(',');
  ['rank-budget', 'host-budget'].forEach((name, i) => {
    at(name).value = placeOf(sizes[i]);
    at(name + '-now').textContent = sizes[i] || 'none';
  });
}

function takeBudget() {
  const [rank, host] = ['rank-budget', 'host-budget'].map(name => +at(name).value);
  at('budget').value = rank ? budgetAt(rank) + (host ? ',' + budgetAt(host) : '') : '';
}

/* What has no control goes to the other options. */
function takeWords(words, files) {
  const more = [];
  at('settings').reset();
  setMemoryRange();
  for (const kind of fileKinds)
    at(kind).value = files[kind] || '';
  for (let i = 0; i < words.length; i++) {
    const equals = words[i].startsWith('--') ? words[i].indexOf('=') : -1;
    const name = words[i].slice(2, equals < 0 ? undefined : equals).replace(/^world$/, 'ranks');
    const option = lists.options.find(one => one.name === name);
    const value = equals >= 0 ? words[i].slice(equals + 1) : option && option.value ? words[++i] : undefined;
    const control = name === 'price' || name === 'tokens' ? at(name) : controls.find(one => one.dataset.option === name);
    if (files[name === 'model' ? 'config' : name])
      names[name === 'model' ? 'config' : name] = value;
    else if (name === 'model')
      at('model').value = value;
    else if (control && control.type === 'checkbox')
      control.checked = true;
    else if (control && control.options)
      control.selectedIndex = Math.max(0, [...control.options].findIndex(one => one.value.toLowerCase() === value.toLowerCase()));
    else if (control)
      control.value = value;
    else if (name === 'device-memory' && !words.includes('--device') && hasPlace(takeBytes(value) / GIB))
      at('memory').value = takeBytes(value) / GIB;
    else if (name !== 'time')
      more.push('--' + name, ...value === undefined ? [] : [value]);
    if (name === 'device')
      setMemoryRange();
  }
  const headroom = more.indexOf('--headroom');
  const left = device() && headroom >= 0 ? (device().bytes - takeBytes(more[headroom + 1])) / GIB : 0;
  if (hasPlace(left) && left < +at('memory').max) {
    more.splice(headroom, 2);
    at('memory').value = left;
  }
  at('more').value = more.map(quoted).join(' ');
}

/* With the devices of a file, which the worker has to name first. */
function takeAll(words, files, then) {
  at('devices').value = files.devices || '';
  const named = words.indexOf('--devices');
  if (files.devices && named >= 0)
    names.devices = words[named + 1];
  takeLists(() => {
    takeWords(words, files);
    then();
  });
}

/* Of memplan --html, or of a first visit. */
function askedFirst() {
  return JSON.parse(at('asked').textContent) || {words: ['--model', 'llama-3-8b', '--device', 'H100', '--seq', '8192'], files: {}};
}

function readAddress(then) {
  const [words, ...files] = location.hash.slice(1).split('&');
  let asked = askedFirst();
  address = location.hash;
  linkProblem = '';
  try {
    asked = {words: words.split('+').map(decodeURIComponent), files: Object.fromEntries(files.map(file => file.split('=').map(decodeURIComponent)))};
  } catch (error) {
    linkProblem = 'This link is cut: its settings cannot be read. The page begins with others.';
  }
  takeAll(asked.words, asked.files, then);
}

function writeAddress(words) {
  address = '#' + words.map(encodeURIComponent).join('+');
  for (const kind of fileKinds.filter(textOf)) {
    let short = textOf(kind);
    try {
      short = JSON.stringify(JSON.parse(short));
    } catch (error) { /* memplan says what is wrong with it */ }
    address += `&${kind}=${encodeURIComponent(short)}`;
  }
  clearTimeout(addressTimer); /* a slider moves often, and browsers count */
  addressTimer = setTimeout(() => {
    addressTimer = 0;
    if (address !== location.hash)
      location.replace(address);
    address = location.hash;
  }, 200);
}
