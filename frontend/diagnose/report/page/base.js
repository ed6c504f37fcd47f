'use strict';
// The data, elements of the page, numbers as text, tables. Texts of the data only ever become text
// nodes, never HTML.

const DATA = JSON.parse(document.getElementById('data').textContent);
const RUNS = DATA.runs;
const MAIN = document.getElementById('main');

// el('td', {class: 'text'}, 'words', other): an element. A function as attribute is a listener.
function el(tag, attributes, ...inside) {
  const svg = ['svg', 'path', 'line', 'circle', 'text', 'rect', 'g'].includes(tag);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag)
                : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (typeof value === 'function') e.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(name, value);
  e.append(...inside.filter(x => x !== null && x !== undefined));
  return e;
}

function section(title, ...inside) {
  const s = el('section', {}, el('h2', {}, title), ...inside);
  MAIN.append(s);
  return s;
}

function note(...words) {
  return el('p', {class: 'note'}, ...words);
}

// ---- numbers ----

function isNumber(x) {
  return typeof x === 'number' && Number.isFinite(x);
}

function num(x, digits = 4) {
  if (!isNumber(x)) return '–';
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e7) return String(x);
  if (size >= 1e6 || size < 1e-3)
    return x.toExponential(Math.max(0, digits - 2)).replace(/\.?0*e\+?/, 'e');
  return String(Number(x.toPrecision(digits)));
}

function percent(x) {
  return isNumber(x) ? num(100 * x, 3) + '\u00a0%' : '–';
}

function bytes(x) {
  if (!isNumber(x)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; x >= 1024 && i < units.length - 1; i++) x /= 1024;
  return (i && x < 100 ? x.toFixed(1) : Math.round(x)) + ' ' + units[i];
}

function time(seconds) {
  return !isNumber(seconds) ? '–'
       : seconds >= 1 ? num(seconds, 4) + ' s'
       : seconds >= 1e-3 ? num(1e3 * seconds, 4) + ' ms' : num(1e6 * seconds, 3) + ' µs';
}

function least(list) {
  return list.reduce((a, b) => (isNumber(b) && b < a ? b : a), Infinity);
}

function most(list) {
  return list.reduce((a, b) => (isNumber(b) && b > a ? b : a), -Infinity);
}

// ---- figures of tensors ----

// How a figure is shown by its unit (frontend/figures.def). log: its picture is.
const UNITS = {
  VALUE: {log: true}, SQUARE: {log: true}, FACTOR: {log: true}, COUNT: {zero: true},
  SHARE: {zero: true, show: percent}, COSINE: {show: x => num(x, 6)}, BINADES: {}, DECIBELS: {},
};
// worse: 1 where much is bad, -1 where little is, 0 where it is neither.
const FIGURES = Object.fromEntries(DATA.figures.map(f => [f.name, {label: f.label,
  worse: {lower: 1, higher: -1, neither: 0}[f.better], show: num, ...UNITS[f.unit]}]));
FIGURES.lag = {label: 'scale off by (binades)', worse: 1, show: num};
const OPERANDS = {x: 'x, input of the forward', w: 'w, weight', dy: 'dy, gradient of the result',
                  y: 'y, result', dx: 'dx, gradient of the input', dw: 'dw, gradient of the weight'};

// The figure of a series as a list, a number a point. One that never changes is stored once.
function figure(run, series, name) {
  if (name === 'lag') {
    const scale = figure(run, series, 'scale'), wanted = figure(run, series, 'scale_wanted');
    return scale.map((s, i) => s > 0 && wanted[i] > 0 ? Math.abs(Math.log2(s / wanted[i])) : null);
  }
  const stored = series[name];
  if (Array.isArray(stored)) return stored;
  return run.stats.last.map(() => stored === undefined ? null : stored);
}

function worstOf(name, list) {
  const x = FIGURES[name].worse < 0 ? least(list) : most(list);
  return isNumber(x) ? x : null;
}

// ---- steps, runs ----

function span(run, i) {
  const {first, last} = run.stats;
  return first[i] === last[i] ? `step ${last[i]}` : `steps ${first[i]}–${last[i]}`;
}

// The colours of the runs: behind the first ones, the same ones near to that of the text.
const COLORS = 8;

function color(i) {
  const own = `var(--run${i % COLORS})`;
  return i < COLORS ? own : `color-mix(in srgb, ${own} 60%, var(--ink))`;
}

function runName(i) {
  return el('span', {}, el('i', {class: 'swatch block', style: `background:${color(i)}`}), ' ',
            RUNS[i].name);
}

// The last held-out loss.
function lastHeld(run) {
  return run.evals.length ? run.evals[run.evals.length - 1].loss : null;
}

// ---- tables ----

// columns: [{head, text: true}]; rows: lists of texts, numbers or elements.
function tableOf(columns, rows, wide) {
  const kind = c => (c.text ? 'text' : null);
  const head = el('tr', {}, ...columns.map(c => el('th', {class: kind(c)}, c.head)));
  const body = rows.map(row => el('tr', {}, ...row.map((cell, i) => {
    const words = typeof cell === 'number' ? num(cell, 6) : cell === null ? '–' : cell;
    return el('td', {class: columns[i].wrap ? 'wrap' : kind(columns[i])}, words);
  })));
  return el('table', {class: wide ? 'wide' : null}, el('thead', {}, head), el('tbody', {}, ...body));
}

// A table that is made when it is opened: many are long.
function numbers(title, columns, rows) {
  const d = el('details', {}, el('summary', {}, title));
  d.addEventListener('toggle', () => {
    if (d.open && d.children.length === 1)
      d.append(el('div', {class: 'scroll', tabindex: 0}, tableOf(columns(), rows())));
  });
  return d;
}

function choice(label, options, chosen, changed) {
  const s = el('select', {change: () => changed(s.value)},
               ...options.map(([value, text]) => {
                 const o = el('option', {value}, text);
                 o.selected = value === chosen;
                 return o;
               }));
  return {label: el('label', {}, label, s), select: s};
}

// ---- the tip beside the pointer ----

const TIP = document.getElementById('tip');

function tip(event, lines) {
  TIP.replaceChildren(...lines.map(line => el('div', {}, ...[].concat(line))));
  TIP.hidden = false;
  const box = TIP.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
  const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 12
                                                          : event.clientY + 16;
  TIP.style.left = Math.max(4, x) + 'px';
  TIP.style.top = Math.max(4, y) + 'px';
}

function noTip() {
  TIP.hidden = true;
}

// ---- drawing again ----

const DRAWN = [];

// Calls draw(width) now, and whenever the width of the holder or the colors change.
function drawn(holder, draw) {
  let width = 0;
  const again = () => { if (width) draw(width); };
  new ResizeObserver(entries => {
    const now = Math.floor(entries[0].contentRect.width);
    if (now && now !== width) {
      width = now;
      requestAnimationFrame(again); // drawn here it would be observed once more, which browsers report
    }
  }).observe(holder);
  DRAWN.push(again);
  return again;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

document.getElementById('theme').addEventListener('click', () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
  DRAWN.forEach(again => again());
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => DRAWN.forEach(again => again()));

function titles(words) {
  document.getElementById('names').append(words);
  document.title = `fp8c report: ${words}`;
}

// ---- a page that is written again while runs go on ----

// What the reader chose stays when the page is loaded again.
const KEPT = (DATA.again && history.state && history.state.fp8c) || {};

function keep(name, value) {
  KEPT[name] = value;
}

function kept(name) {
  return KEPT[name];
}

// Tables that are open, and choices, by their section and their place in it.
function places(tag) {
  return [...MAIN.querySelectorAll('section')].flatMap(s => [...s.querySelectorAll(tag)].map((e, i) =>
    ({e, key: `${s.querySelector('h2').textContent}/${tag}/${i}`})));
}

function loadAgain() {
  if (document.hidden || !TIP.hidden) { // nobody looks, or somebody reads: later
    setTimeout(loadAgain, 1000);
    return;
  }
  keep('open', places('details').filter(p => p.e.open).map(p => p.key));
  keep('chosen', Object.fromEntries(places('select').map(p => [p.key, p.e.value])));
  keep('theme', document.documentElement.dataset.theme);
  keep('top', scrollY);
  history.replaceState({fp8c: KEPT}, '');
  location.reload();
}

function comeBack() {
  if (!DATA.again) return;
  const late = Date.now() / 1000 - DATA.written > 60 + 3 * DATA.again;
  document.getElementById('again').append(`written at ${new Date(1000 * DATA.written).toLocaleTimeString()}` +
    (late ? '; it is not written any more' : `, loaded again every ${DATA.again} s`));
  if (kept('theme')) document.documentElement.dataset.theme = kept('theme');
  for (const {e, key} of places('select')) {
    const value = (kept('chosen') || {})[key];
    if (value === undefined || value === e.value || ![...e.options].some(o => o.value === value)) continue;
    e.value = value;
    e.dispatchEvent(new Event('change'));
  }
  for (const {e, key} of places('details')) if ((kept('open') || []).includes(key)) e.open = true;
  requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(0, kept('top') || 0)));
  setTimeout(loadAgain, 1000 * DATA.again);
}
