// Curves over steps, and the heat map.

// ---- axes ----

// About n round numbers from a to b.
function ticks(a, b, n) {
  const rough = (b - a) / Math.max(1, n), unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find(x => x * unit >= rough);
  const all = [];
  for (let x = Math.ceil(a / step - 1e-9) * step; x <= b + step * 1e-9; x += step)
    all.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return all;
}

// The exponents of the powers of ten from 10^a to 10^b, or of every k-th where they are many. Where
// there is only one power, those of round numbers between 10^a and 10^b.
function powers(a, b, n) {
  const every = Math.max(1, Math.ceil((b - a) / Math.max(1, n)));
  const all = [];
  for (let x = Math.ceil(a - 1e-9); x <= b + 1e-9; x++)
    if (x % every === 0) all.push(x);
  return all.length > 1 ? all : ticks(10 ** a, 10 ** b, n).filter(x => x > 0).map(Math.log10);
}

// ---- curves ----

// lines: [{name, color, x, y, dashed, dots, pale}]; y may have nulls, where a curve has a gap.
// options: {title, log, show, from: the least top of the axis, marks: [{x, text}]}
function chart(lines, options) {
  const holder = el('div', {});
  const legend = el('div', {class: 'legend'}, ...lines.map(l => el('span', {},
    el('i', {class: 'swatch' + (l.dashed ? ' dashed' : l.dots ? ' dot' : '') + (l.pale ? ' pale' : ''),
             style: `${l.dashed ? 'color' : 'background'}:${l.color}`}), l.name)));
  const show = options.show || num, height = options.height || 210;
  const value = y => (!isNumber(y) ? null : !options.log ? y : y > 0 ? Math.log10(y) : null);

  function range() {
    const all = lines.flatMap(l => l.y.map(value)).filter(y => y !== null);
    if (!all.length) return null;
    let a = least(all), b = most(all);
    if (!options.log && options.zero) a = Math.min(a, 0);
    if (b - a < 1e-12 * Math.max(1, Math.abs(b))) {
      const room = Math.abs(b) * 0.05 || (options.log ? 0.5 : 1);
      return [options.zero && a === 0 ? 0 : a - room, b + room];
    }
    const room = (b - a) * 0.05;
    return [options.zero && a === 0 ? 0 : a - room, b + room];
  }

  function draw(width) {
    const limits = range();
    if (!limits) {
      holder.replaceChildren(note('no numbers'));
      return;
    }
    const [low, high] = limits, all = lines.flatMap(l => l.x);
    const first = least(all), last = Math.max(most(all), first + 1);
    const left = 52, right = 10, top = 8, bottom = 24;
    const px = x => left + (x - first) / (last - first) * (width - left - right);
    const py = y => top + (high - y) / (high - low) * (height - top - bottom);
    const svg = el('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img',
                           'aria-label': options.title});
    const levels = options.log ? powers(low, high, height / 42) : ticks(low, high, height / 42);
    for (const y of levels) {
      const at = py(y);
      svg.append(el('line', {class: 'grid', x1: left, x2: width - right, y1: at, y2: at}),
                 el('text', {x: left - 6, y: at + 4, 'text-anchor': 'end'},
                    show(options.log ? 10 ** y : y, 3)));
    }
    svg.append(el('line', {class: 'axis', x1: left, x2: width - right, y1: height - bottom,
                           y2: height - bottom}));
    for (const x of ticks(first, last, width / 90).filter(Number.isInteger)) {
      const anchor = px(x) > width - right - 14 ? 'end' : 'middle';
      svg.append(el('text', {x: anchor === 'end' ? width - 1 : px(x), y: height - 8,
                             'text-anchor': anchor}, String(x)));
    }
    for (const m of options.marks || [])
      if (m.x >= first && m.x <= last)
        svg.append(el('line', {class: m.strong ? 'cross strong' : 'cross', x1: px(m.x), x2: px(m.x), y1: top,
                               y2: height - bottom, style: `stroke:${m.color}`}));
    for (const l of lines) drawLine(svg, l, px, y => py(value(y)), y => value(y) !== null);
    const cross = el('line', {class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden'});
    svg.append(cross);
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const x = first + ((event.clientX - box.left) / box.width * width - left) /
                        (width - left - right) * (last - first);
      point(event, cross, x, px);
    });
    svg.addEventListener('pointerleave', () => {
      cross.setAttribute('visibility', 'hidden');
      noTip();
    });
    holder.replaceChildren(svg);
  }

  function point(event, cross, x, px) {
    const near = nearest(lines.flatMap(l => l.x), x);
    cross.setAttribute('x1', px(near));
    cross.setAttribute('x2', px(near));
    cross.setAttribute('visibility', 'visible');
    tip(event, [`step ${near}`].concat(lines.map(l => {
      const i = l.x.indexOf(near);
      return i < 0 ? null : [el('i', {class: 'swatch block', style: `background:${l.color}`}),
                             ` ${l.name}: ${isNumber(l.y[i]) ? show(l.y[i], 6) : 'no number'}`];
    }).filter(Boolean)).concat((options.marks || []).filter(m => m.x === near).map(m => m.text)));
  }

  drawn(holder, draw);
  const table = numbers('Numbers', () => [{head: 'step'}].concat(lines.map(l => ({head: l.name}))),
                        () => stepRows(lines));
  return el('div', {}, el('h3', {}, options.title), legend, holder, table);
}

function drawLine(svg, line, px, py, has) {
  let path = '', open = false;
  const dots = [];
  line.x.forEach((x, i) => {
    if (!has(line.y[i])) {
      open = false;
      return;
    }
    const alone = !has(line.y[i - 1]) && !has(line.y[i + 1]);
    if (line.dots || alone)
      dots.push(el('circle', {cx: px(x), cy: py(line.y[i]), r: line.dots ? 3.5 : 2,
                              style: `fill:${line.color}`}));
    path += `${open ? 'L' : 'M'}${px(x).toFixed(1)} ${py(line.y[i]).toFixed(1)}`;
    open = true;
  });
  if (!line.dots)
    svg.append(el('path', {d: path || 'M0 0', fill: 'none', class: line.pale ? 'pale' : null, 'stroke-width': 1.8,
                           'stroke-linejoin': 'round', 'stroke-dasharray': line.dashed ? '5 4' : null,
                           style: `stroke:${line.color}`}));
  svg.append(...dots);
}

function nearest(list, x) {
  let best = list[0];
  for (const y of list) if (Math.abs(y - x) < Math.abs(best - x)) best = y;
  return best;
}

// The steps of all lines, each with a number of each line.
function stepRows(lines) {
  const at = lines.map(l => new Map(l.x.map((x, i) => [x, l.y[i]])));
  const steps = [...new Set(lines.flatMap(l => l.x))].sort((a, b) => a - b);
  return steps.map(s => [s, ...at.map(m => (m.has(s) ? m.get(s) : ''))]);
}

// A small curve for a cell of a table.
function spark(list, log, stroke) {
  const value = y => (!isNumber(y) ? null : !log ? y : y > 0 ? Math.log10(y) : null);
  const all = list.map(value), a = least(all), b = most(all), width = 130, height = 26;
  const svg = el('svg', {viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true'});
  const px = i => 2 + i / Math.max(1, list.length - 1) * (width - 4);
  const py = y => (b > a ? 3 + (b - y) / (b - a) * (height - 6) : height / 2);
  drawLine(svg, {x: list.map((_, i) => i), y: all, color: stroke}, px, py, isNumber);
  return svg;
}

// ---- the heat map ----

function parseColor(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
  return [0, 2, 4].map(i => parseInt(hex.slice(i, i + 2), 16));
}

// A color for each share from 0 to 1.
function ramp() {
  const [low, mid, high] = ['--low', '--mid', '--high'].map(parseColor);
  return t => {
    const [a, b, s] = t < 0.5 ? [low, mid, 2 * t] : [mid, high, 2 * t - 1];
    return `rgb(${a.map((x, i) => Math.round(x + (b[i] - x) * s)).join(' ')})`;
  };
}

// rows: [{label, values}], columns over steps. share(value): 0 to 1 or null. at(column): its steps.
function heatMap(rows, share, show, at, picked) {
  const holder = el('div', {});
  const canvas = el('canvas', {role: 'img', 'aria-label': 'heat map of tensors by steps'});
  const n = Math.max(1, ...rows.map(r => r.values.length));
  const high = rows.length > 60 ? 12 : rows.length > 24 ? 15 : 19;
  let left = 0, cell = 1;

  function draw(width) {
    const scale = devicePixelRatio || 1, height = rows.length * high + 22;
    const pen = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    const get = name => style.getPropertyValue(name).trim();
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = height + 'px';
    pen.scale(scale, scale);
    pen.font = `${Math.min(11, high - 2)}px system-ui, sans-serif`;
    left = Math.min(width * 0.34, 8 + most(rows.map(r => pen.measureText(r.label).width)));
    cell = (width - left) / n;
    const paint = ramp();
    rows.forEach((row, r) => {
      pen.fillStyle = get('--soft');
      pen.textBaseline = 'middle';
      pen.fillText(fitted(pen, row.label, left - 8), 0, r * high + high / 2);
      for (let i = 0; i < n; i++) {
        const s = share(row.values[i]);
        pen.fillStyle = s === null ? get('--cell') : paint(s);
        pen.fillRect(left + i * cell, r * high, Math.ceil(cell + 0.2) - (cell > 5 ? 1 : 0), high - 1);
      }
    });
    pen.fillStyle = get('--faint');
    pen.textBaseline = 'alphabetic';
    pen.font = '11px system-ui, sans-serif';
    pen.fillText(at(0), left, height - 6);
    const end = at(n - 1);
    if (n > 1) pen.fillText(end, width - pen.measureText(end).width, height - 6);
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return {row: rows[Math.floor((event.clientY - box.top) / high)],
            column: Math.floor((event.clientX - box.left - left) / cell)};
  }
  canvas.addEventListener('pointermove', event => {
    const {row, column} = place(event);
    if (!row || column < 0 || column >= n) return noTip();
    tip(event, [row.label, at(column), show(row.values[column])]);
  });
  canvas.addEventListener('pointerleave', noTip);
  canvas.addEventListener('click', event => {
    const {row} = place(event);
    if (row) picked(row.label);
  });
  holder.append(canvas);
  drawn(holder, draw);
  return holder;
}

// The text, or its end behind an ellipsis: names differ at their ends.
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let from = 1;
  while (from < text.length && pen.measureText('…' + text.slice(from)).width > room) from++;
  return '…' + text.slice(from);
}
