// What FP8 does to each tensor: the heat map, the worst tensors, one tensor over the steps.

const WATCHED = RUNS.map((run, i) => ({run, i})).filter(r => r.run.stats);

const IN_USE = new Set(WATCHED.flatMap(r => r.run.stats.tensors.filter(s => !s.what_if)
  .map(s => s.quantized)));

// A series a tensor. With recipe '' that of the recipe in use; of an operand that this does not
// quantize the what-if one, of a recipe that another run uses if there is one.
function seriesOf(run, recipe, operand) {
  const all = run.stats.tensors.filter(s => !operand || s.operand === operand);
  if (recipe !== '') return inOrder(run, all.filter(s => s.what_if && s.quantized === recipe));
  const isQuantized = s => !s.what_if && s.quantized, place = s => `${s.linear} ${s.operand}`;
  const quantized = new Set(all.filter(isQuantized).map(place));
  const rank = s => (isQuantized(s) ? 3 : !s.what_if ? 0 : IN_USE.has(s.quantized) ? 2 : 1);
  const chosen = new Map();
  for (const s of all)
    if (!(s.what_if && quantized.has(place(s))) &&
        (!chosen.has(s.tensor) || rank(s) > rank(chosen.get(s.tensor)))) chosen.set(s.tensor, s);
  return inOrder(run, [...chosen.values()]);
}

// What a backward makes comes last in a step: put it beside the others of its linear.
function inOrder(run, list) {
  const at = new Map();
  for (const s of run.stats.tensors) if (!at.has(s.linear)) at.set(s.linear, at.size);
  return list.sort((a, b) => at.get(a.linear) - at.get(b.linear));
}

function recipesOf() {
  const all = WATCHED.flatMap(r => r.run.stats.tensors.filter(s => s.what_if).map(s => s.quantized));
  return [['', 'in use, else what if']].concat([...new Set(all)].map(r => [r, `what if: ${r}`]));
}

// How a series is quantized, in words.
function kindOf(series) {
  return !series.quantized ? 'not quantized' : (series.what_if ? 'what if ' : '') +
    `${series.quantized}: ${series.format}, a scale per ${series.granularity}`;
}

function has(run, series, name) {
  return figure(run, series, name).some(isNumber);
}

// The last step of a run's warm-up: the one before the learning rate is first within 1% of its
// highest; 0: the rate says of none. While it rises from next to nothing, gradients and histories of
// amaxes are not what they will be.
function warmUp(run) {
  const {lr, step} = run.steps, top = most(lr.filter(isNumber));
  const at = lr.findIndex(x => isNumber(x) && x >= 0.99 * top);
  return at > 0 && lr[at - 1] < lr[at] ? step[at - 1] : 0;
}

// The values of a list at watched steps behind the warm-up; all of them if there are no others.
function settled(run, list) {
  const end = warmUp(run), later = list.map((x, i) => (run.stats.last[i] > end ? x : null));
  return later.some(isNumber) ? later : list;
}

function warmUpNote() {
  const some = WATCHED.map(({run}) => ({run, end: warmUp(run)})).filter(w => w.end > 0);
  const ends = some.map(w => `${w.run.name}: up to ${w.end}`).join('; ');
  return some.length ? `Steps of the warm-up (${ends}) do not count. ` : '';
}

// The value below which a share of the sorted list lies.
function percentile(sorted, share) {
  return sorted[Math.round(share * (sorted.length - 1))];
}

// How many watched steps are a point.
function howKept() {
  const all = WATCHED.map(({run}) => `${run.name}: ${run.stats.watched} watched steps` +
    (run.stats.each > 1 ? `, ${run.stats.each} of them a point` : '')).join('; ');
  return all + (WATCHED.some(r => r.run.stats.each > 1)
    ? '. A point has the worst figure of its steps: of amax the most, of amin the least, of the scales ' +
      'those farthest apart.' : '.');
}

// ---- the heat map ----

function heatSection() {
  const state = {figure: 'underflow', operand: 'x', recipe: ''};
  const maps = el('div', {class: 'columns'}), legend = el('div', {class: 'legend'});
  const operands = Object.keys(OPERANDS).filter(o => WATCHED.some(r => seriesOf(r.run, '', o).length));
  const recipes = recipesOf();
  if (!operands.includes(state.operand)) state.operand = operands[0];

  // All runs share one range, so that their maps can be compared.
  function show() {
    const f = FIGURES[state.figure];
    const shown = WATCHED.map(r => ({...r, rows: rowsOf(r.run, state)}));
    const value = x => (!isNumber(x) ? null : !f.log ? x : x > 0 ? Math.log10(x) : null);
    const all = shown.flatMap(r => r.rows.flatMap(row => settled(r.run, row.values).map(value)))
      .filter(isNumber).sort((x, y) => x - y);
    const a = percentile(all, 0.02), b = percentile(all, 0.98);
    const share = x => {
      const y = value(x);
      if (y === null) return null;
      const at = b === a ? 0.5 : Math.min(1, Math.max(0, (y - a) / (b - a)));
      return f.worse < 0 ? 1 - at : at;
    };
    const back = y => f.show(f.log ? 10 ** y : y);
    const [from, to] = f.worse < 0 ? [b, a] : [a, b];
    legend.replaceChildren(...(isNumber(a) ? [
      el('span', {}, back(from), el('i', {class: 'ramp'}), back(to) + (f.worse ? ' (worse)' : '')),
      el('span', {}, el('i', {class: 'swatch block', style: 'background:var(--cell)'}), 'no figure')]
      : ['no tensor has this figure']));
    maps.replaceChildren(...shown.map(r => el('div', {}, el('h3', {}, runName(r.i)),
      !r.rows.length ? note('no watched tensor has this figure') :
      heatMap(r.rows, share, x => (isNumber(x) ? f.show(x) : 'no figure'),
              i => span(r.run, i), name => TENSOR.pick(name)),
      numbers('Numbers', () => [{head: 'tensor', text: true}].concat(
        r.run.stats.last.map((_, i) => ({head: span(r.run, i)}))),
        () => r.rows.map(row => [row.label, ...row.values.map(x => (isNumber(x) ? num(x) : '–'))])))));
  }

  function rowsOf(run, {figure: name, operand, recipe}) {
    return seriesOf(run, recipe, operand).filter(s => has(run, s, name))
      .map(s => ({label: s.tensor, values: figure(run, s, name)}));
  }

  const set = name => value => { state[name] = value; show(); };
  const choices = el('div', {class: 'choices'},
    choice('figure', Object.entries(FIGURES).map(([k, f]) => [k, f.label]), state.figure, set('figure')).label,
    choice('operand', operands.map(o => [o, OPERANDS[o]]), state.operand, set('operand')).label,
    recipes.length > 1 ? choice('recipe', recipes, '', set('recipe')).label : null);
  section('Tensors by steps', note('A row is a tensor, in the order of the model; a column is a ' +
    'watched step. A click on a row shows its history below. ', howKept(), ' Colours span the middle 96% ' +
    'of the values; what lies beyond has the colour of the end. ', warmUpNote()), choices, legend, maps);
  show();
}

// ---- the worst tensors ----

const WORST = 12;

function worstRows(name, recipe) {
  const all = WATCHED.flatMap(({run, i}) => seriesOf(run, recipe).map(s => {
    const list = figure(run, s, name), later = settled(run, list);
    return {run, i, s, list, later, worst: worstOf(name, later)};
  })).filter(r => r.worst !== null);
  all.sort((a, b) => (FIGURES[name].worse < 0 ? a.worst - b.worst : b.worst - a.worst));
  return all.slice(0, WORST);
}

function worstSection() {
  const state = {figure: 'sqnr', recipe: ''};
  const holder = el('div', {});
  const judged = Object.entries(FIGURES).filter(([, f]) => f.worse);

  function show() {
    const f = FIGURES[state.figure], rows = worstRows(state.figure, state.recipe);
    const columns = [{head: 'tensor', text: true}, {head: 'history', text: true},
                     {head: 'worst'}, {head: 'at step'}, {head: 'last'}, {head: 'run', text: true},
                     {head: 'as', text: true}];
    const table = tableOf(columns, rows.map(r => [
      r.s.tensor, spark(r.list, f.log, color(r.i)), f.show(r.worst),
      span(r.run, r.later.indexOf(r.worst)).replace(/^steps? /, ''), f.show(r.list.findLast(isNumber)),
      runName(r.i), kindOf(r.s)]), true);
    [...table.tBodies[0].rows].forEach((tr, i) => {
      tr.className = 'pick';
      tr.addEventListener('click', () => TENSOR.pick(rows[i].s.tensor));
    });
    const lines = rows.map(r => ({name: `${r.s.tensor} (${r.run.name})`, x: r.run.stats.last, y: r.list}));
    holder.replaceChildren(rows.length ? el('div', {class: 'scroll open'}, table)
                                       : note('no tensor has this figure'),
      numbers('Numbers of the histories', () => [{head: 'step'}].concat(lines.map(l => ({head: l.name}))),
              () => stepRows(lines)));
  }

  const set = name => value => { state[name] = value; show(); };
  const recipes = recipesOf();
  section('Worst tensors', warmUpNote() ? note(warmUpNote()) : null, el('div', {class: 'choices'},
    choice('by', judged.map(([k, f]) => [k, f.label]), state.figure, set('figure')).label,
    recipes.length > 1 ? choice('recipe', recipes, '', set('recipe')).label : null), holder);
  show();
}

// ---- one tensor ----

const TENSOR = {pick() {}};

function tensorLines(name, recipe, figures) {
  return WATCHED.flatMap(({run, i}) => seriesOf(run, recipe).filter(s => s.tensor === name)
    .flatMap(s => figures.filter(f => has(run, s, f.name)).map(f => ({
      name: [run.name, f.label].filter(Boolean).join(', '), color: color(i), dashed: f.dashed,
      x: run.stats.last, y: figure(run, s, f.name)}))));
}

function tensorSection() {
  const names = [...new Set(WATCHED.flatMap(r => r.run.stats.tensors.map(s => s.tensor)))];
  const state = {tensor: names[0], recipe: ''};
  const holder = el('div', {class: 'columns'}), about = el('p', {class: 'note'});

  function show() {
    const of = WATCHED.flatMap(({run}) => seriesOf(run, state.recipe)
      .filter(s => s.tensor === state.tensor)
      .map(s => `${run.name}: ${num(s.elements)} elements, ${kindOf(s)}`));
    about.replaceChildren(of.join('; '));
    const pictures = DATA.figures.filter(f => f.beside === f.name).map(f => {
      const figures = [f, ...DATA.figures.filter(g => g !== f && g.beside === f.name)];
      return [figures.map(g => g.label).join(', '), figures.map(g => ({name: g.name,
        label: figures.length > 1 ? g.label : '', dashed: g !== f})), FIGURES[f.name]];
    });
    holder.replaceChildren(...pictures.map(([title, figures, options]) => {
      const lines = tensorLines(state.tensor, state.recipe, figures);
      return lines.length ? chart(lines, {title, ...options, height: 180}) : null;
    }).filter(Boolean));
  }

  const chosen = choice('tensor', names.map(n => [n, n]), state.tensor,
                        value => { state.tensor = value; show(); });
  const recipes = recipesOf();
  const place = section('One tensor', el('div', {class: 'choices'}, chosen.label,
    recipes.length > 1 ? choice('recipe', recipes, '', value => { state.recipe = value; show(); }).label
                       : null), about, holder);
  TENSOR.pick = name => {
    state.tensor = chosen.select.value = name;
    show();
    place.scrollIntoView({behavior: 'smooth', block: 'start'});
  };
  const first = DATA.parts.flat().find(r => r.event === 'parted');
  if (first && names.includes(first.tensor)) state.tensor = chosen.select.value = first.tensor;
  show();
}

function statisticsSections() {
  if (!WATCHED.length) {
    section('Tensors', note('No statistics were kept of ', RUNS.length > 1 ? 'these runs' : 'this run',
      '. ', el('code', {}, "fp8c train --run DIR --stats 'PATTERN' --every N"),
      ' keeps for each tensor whose name matches: amax, underflow, MSE, the scale in use and the ' +
      'one it asks for.'));
    return;
  }
  heatSection();
  worstSection();
  tensorSection();
}
