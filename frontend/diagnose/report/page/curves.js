// The curves of all runs, with what happened to them as lines across.

const INDEX = DATA.format === 'fp8c index';
const FEW = 4; // runs whose raw losses are drawn behind the means

function curves(name) {
  return RUNS.map((run, i) => ({name: run.name, color: color(i), dashed: i >= COLORS, x: run.steps.step,
                                y: run.steps[name]}));
}

// The mean of each point and the `window` - 1 before it; of the first ones, of those that there are.
function smoothed(y, window) {
  return y.map((here, i) => {
    if (!isNumber(here)) return null;
    const some = y.slice(Math.max(0, i + 1 - window), i + 1).filter(isNumber);
    return some.reduce((a, b) => a + b) / some.length;
  });
}

// How many steps all means are over: a twentieth of the longest run, and at most 20 points of it.
const MEAN_OF = Math.max(...RUNS.map(r => r.steps.each * Math.min(20, Math.floor(r.steps.step.length / 20))));

// A curve with its mean above it, pale then; alone where that would be one of few points. `each`:
// the steps of a point.
function withMean(line, each) {
  const window = Math.round(MEAN_OF / each);
  if (window < 3) return [line];
  const mean = {...line, y: smoothed(line.y, window)};
  return RUNS.length > FEW ? [mean]
    : [{...line, pale: true}, {...mean, name: `${line.name}, mean of ${window * each} steps`}];
}

// What a title says where the curves of many runs are means alone.
function ofMeans() {
  return RUNS.length > FEW && MEAN_OF > 2 ? `, mean of ${MEAN_OF} steps` : '';
}

function lossCurves() {
  return curves('loss').flatMap((line, i) => withMean(line, RUNS[i].steps.each));
}

// Which run's losses are taken from which: from the first, and on an index from the run under bf16.
function beside() {
  if (!INDEX) return RUNS.slice(1).map((_, k) => [k + 1, 0]);
  return RUNS.map((run, i) => [i, RUNS.findIndex(r => r.name === run.beside)]).filter(p => p[1] >= 0);
}

// Losses less those of another run, at the steps that both have.
function lossDifferences() {
  return beside().flatMap(([i, base]) => {
    const own = RUNS[i].steps, first = RUNS[base].steps;
    const at = new Map(first.step.map((s, k) => [s, first.loss[k]]));
    const both = own.step.map((s, k) => [s, own.loss[k], at.get(s)]).filter(p => p[2] !== undefined);
    const y = both.map(([, a, b]) => (isNumber(a) && isNumber(b) ? a - b : null));
    return y.some(isNumber) ? withMean({name: RUNS[i].name, color: color(i), dashed: i >= COLORS,
                                        x: both.map(p => p[0]), y}, own.each) : [];
  });
}

// Whether losses span more than two decades.
function spansDecades() {
  const all = RUNS.flatMap(run => run.steps.loss).filter(isNumber);
  return all.length > 0 && least(all) > 0 && most(all) > 100 * least(all);
}

// Alarms of guards, and what triage said. An index has the first alarm of each run.
function alarmMarks() {
  return RUNS.flatMap((run, i) => {
    const alarms = INDEX ? run.warnings.slice(0, 1) : run.warnings;
    const marks = alarms.map(w => ({x: w.step, color: color(i), text: `${run.name}: ${w.message}`}));
    return marks.concat(run.verdict ? [{x: run.verdict.step, color: color(i), strong: true,
                                        text: `${run.name}, verdict: ${verdictText(run.verdict)}`}] : []);
  });
}

function verdictText(v) {
  return `${v.class}: ${v.text}`;
}

function lossMarks() {
  return DATA.parts.flatMap((records, k) => records.slice(0, 2).filter(r => r.step !== null).map(r => ({
    x: r.step, color: color(k + 1),
    text: r.event === 'part' ? `the loss of ${r.run} parts` : `${r.tensor} of ${r.run} parts`})));
}

function curveSections() {
  const held = RUNS.map((run, i) => ({name: `${run.name}, held out`, color: color(i), dots: true,
    x: run.evals.map(e => e.step), y: run.evals.map(e => e.loss)})).filter(l => l.x.length);
  const thinned = RUNS.filter(r => r.steps.each > 1).map(r =>
    `${r.name}: a point is ${r.steps.each} steps: the mean loss and rate, the greatest gradient norm`);
  const holder = el('div', {});
  const marks = lossMarks().concat(alarmMarks()), wide = spansDecades(), apart = lossDifferences();
  const draw = log => holder.replaceChildren(chart(lossCurves().concat(held),
    {title: `Loss${ofMeans()}${log ? ', logarithmic' : ''}`, log, height: 300, show: x => num(x, 6), marks}));
  draw(wide);
  const scale = choice('scale', [['', 'linear'], ['log', 'logarithmic']], wide ? 'log' : '',
                       v => draw(v === 'log'));
  const what = INDEX ? 'the first alarm of a run, or a verdict of triage (bold)'
                     : 'an alarm of a guard, a verdict of triage (bold), or where runs part';
  const rates = [...new Set(RUNS.map(r => r.steps.rate_name.replaceAll('_', ' ')))].join(', ');
  section('Curves', el('div', {class: 'choices'}, scale.label),
    thinned.length ? note(thinned.join('; ')) : null,
    marks.length ? note(`A dashed line across a chart is ${what}; point at it.`) : null,
    holder,
    apart.length ? chart(apart, {title: `Loss less that of ${INDEX ? 'the run under bf16' : RUNS[0].name}` +
                                 ofMeans(),
                                 show: x => num(x, 4), marks}) : null,
    el('div', {class: 'columns'},
      chart(curves('grad_norm'), {title: 'Gradient norm before clipping, logarithmic', log: true}),
      chart(curves('lr'), {title: 'Learning rate', zero: true}),
      chart(curves('rate'), {title: rates, zero: true})));
}
