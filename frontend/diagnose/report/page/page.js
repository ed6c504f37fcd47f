// The sections of the page in their order.

// ---- runs ----

// What a device said of itself: one event, or how it was at the end.
function healthText(h) {
  if (h.event === 'health')
    return `${h.device}: ${h.message}`;
  const known = Object.entries(h.values).map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`);
  const faults = h.faults === 0 ? 'no fault' : h.faults === 1 ? '1 fault' : `${h.faults} faults`;
  return `${h.device} by ${h.source}: ${faults}; ${known.join(', ')}`;
}

function runsSection() {
  const columns = [{head: 'run', text: true}, {head: 'recipe', text: true}, {head: 'target', text: true},
                   {head: 'steps'}, {head: 'final loss'}, {head: 'held out'}, {head: 'skipped'},
                   {head: 'watched steps'}, {head: 'begun', text: true}];
  const rows = RUNS.map((run, i) => {
    return [runName(i), run.info.recipe, run.info.device || run.info.target, run.steps.n,
            run.final_loss, lastHeld(run), run.steps.skipped.length,
            run.stats ? run.stats.watched : 0, run.info.begun || ''];
  });
  const s = section('Runs', el('div', {class: 'scroll open'}, tableOf(columns, rows, true)));
  const tails = RUNS.map(run => run.tail);
  s.append(note(`The final loss is the mean of the last ${[...new Set(tails)].join(' or ')} steps.`));
  RUNS.forEach((run, i) => {
    for (const mark of run.info.resumed || [])
      s.append(note(runName(i), ` went on after step ${mark.step} under ${mark.recipe}`));
    for (const w of run.warnings)
      s.append(el('p', {class: 'fact'}, runName(i), `, step ${w.step}: ${w.message}`));
    if (run.verdict)
      s.append(el('p', {class: 'fact'}, runName(i), `, step ${run.verdict.step}, verdict of triage: `,
                  verdictText(run.verdict)));
    for (const h of run.health)
      s.append(el('p', {class: 'fact'}, runName(i), `, step ${h.step}: ${healthText(h)}`));
  });
}

// ---- where runs part ----

function partSection() {
  const r = DATA.rule;
  const s = section('Where runs part', note(
    `The first run is the good one. A tensor parts at the first of ${r.points} watched steps in a row ` +
    `at which its underflow is at least ${r.underflow_factor} times the most that the good run has ` +
    `within ${r.around} watched steps of it (of ${percent(r.underflow_least)} if that is more), or its MSE at ` +
    `least ${r.mse_factor} times. The loss parts at the first of ${r.steps} steps in a row at which it ` +
    `exceeds the good run's by ${percent(r.loss_share)}, and by ${r.loss_noise} times what their ` +
    `difference usually changes in a step.`));
  DATA.parts.forEach((records, k) => partOf(s, k + 1, records));
}

function partOf(s, i, records) {
  const part = records[0], parted = records.slice(1);
  const loss = part.step === null ? 'Its loss does not part.'
    : `Its loss parts at step ${part.step}: ${num(part.loss, 5)}, and ${num(part.good_loss, 5)} in the good run.`;
  s.append(el('h3', {}, runName(i), ' beside ', runName(0)), el('p', {class: 'fact'}, loss));
  if (!part.compared) {
    s.append(note('No tensor has figures of a quantization in both runs: watch both with --stats; a run ' +
                  'that does not quantize also with --stats-recipe and a recipe that scales as the other does.'));
    return;
  }
  if (!parted.length) {
    s.append(el('p', {class: 'fact'}, `None of the ${part.compared} tensors in both runs parts.`));
    return;
  }
  const first = parted[0];
  s.append(el('p', {class: 'fact'}, 'First ', el('b', {}, first.tensor), ` parts at step ${first.step}: ` +
    `underflow ${percent(first.underflow)} beside ${percent(first.good_underflow)}, MSE ` +
    `${num(first.mse)} beside ${num(first.good_mse)}.` +
    (part.step > first.step ? ` That is ${part.step - first.step} steps before the loss.` : '')));
  const columns = [{head: 'tensor', text: true}, {head: 'parts at'}, {head: 'underflow parts at'},
                   {head: 'MSE parts at'}, {head: 'underflow'}, {head: 'good run'}, {head: 'MSE'},
                   {head: 'good run'}, {head: 'amax'}, {head: 'good run'}];
  const table = tableOf(columns, parted.slice(0, 10).map(p => partedRow(p)), true);
  [...table.tBodies[0].rows].forEach((tr, k) => {
    tr.className = 'pick';
    tr.addEventListener('click', () => TENSOR.pick(parted[k].tensor));
  });
  s.append(el('div', {class: 'scroll open'}, table));
  if (parted.length > 10)
    s.append(numbers(`${part.parted} tensors part; these are the first ${parted.length}`, () => columns,
                     () => parted.map(partedRow)));
}

function partedRow(p) {
  return [p.tensor, p.step, p.underflow_step, p.mse_step, percent(p.underflow), percent(p.good_underflow),
          num(p.mse), num(p.good_mse), num(p.amax), num(p.good_amax)];
}

// ---- memory ----

const CATEGORY_COLORS = 7; // the smallest categories share one

function memorySection() {
  const s = section('Where memory goes');
  RUNS.forEach((run, i) => {
    s.append(el('h3', {}, runName(i)));
    if (!run.plan) {
      s.append(note('The folder has no plan.json: it was begun by an older fp8c. ', el('code', {},
        'fp8c plan FILE.f8'), ' shows the memory of a step.'));
      return;
    }
    const m = run.plan.memory;
    const parts = Object.entries(m.bytes).filter(([, b]) => b > 0).sort((a, b) => b[1] - a[1]);
    s.append(el('p', {}, `${bytes(m.planned_bytes)} in all at the peak of ${m.function}, which is at `,
      el('code', {}, m.step), ` (step ${m.position} of ${m.positions}); ${bytes(m.activation_bytes)} ` +
      `are activations kept for the backward.`));
    const shade = k => (k < CATEGORY_COLORS ? color(k) : 'var(--faint)');
    s.append(el('div', {class: 'bar', role: 'img', 'aria-label': 'memory by category'},
      ...parts.map(([name, b], k) => el('i', {style: `flex:${b} 0 0;background:${shade(k)}`,
        pointermove: e => tip(e, [`${name}: ${bytes(b)}`]), pointerleave: noTip}))));
    s.append(el('div', {class: 'legend'}, ...parts.map(([name, b], k) => el('span', {},
      el('i', {class: 'swatch block', style: `background:${shade(k)}`}), `${name} ${bytes(b)}`))));
    s.append(numbers('Bytes by category', () => [{head: 'category', text: true}, {head: 'bytes'}],
      () => Object.entries(m.bytes).map(([name, b]) => [name, String(b)])));
    s.append(numbers('The largest tensors', () => [{head: 'tensor', text: true},
      {head: 'category', text: true}, {head: 'type', text: true}, {head: 'bytes'},
      {head: 'made by', text: true}, {head: 'last read by', text: true}],
      () => run.plan.tensors.map(t => [t.name, t.category, t.type, String(t.bytes), t.made, t.read])));
  });
}

// ---- time ----

const SHOWN = 14;

// A micro-step: also of watched steps, whose functions have other names.
const MICRO_STEPS = ['micro_step', 'micro_step.stats', 'micro_step.dump'];

// The seconds of an optimizer step in each step of the plan. Micro-steps are those of steps that
// are not watched, if there are any.
function stepTimes(run) {
  const runs = name => (run.profile.find(p => p.function === name) || {runs: 0}).runs;
  const shown = MICRO_STEPS.find(name => runs(name) > 0);
  const micro = MICRO_STEPS.reduce((sum, name) => sum + runs(name), 0) / (runs('update') || 1);
  return run.profile.filter(p => p.function === shown || p.function === 'update')
    .map(p => ({...p, total: p.seconds * (p.function === 'update' ? 1 : micro)}))
    .sort((a, b) => b.total - a.total);
}

function timeSection() {
  const s = section('Time by kernel');
  RUNS.forEach((run, i) => {
    s.append(el('h3', {}, runName(i)));
    // Collectives that go on beside other steps take none of the time.
    const every = run.profile ? stepTimes(run) : [], aside = every.filter(p => 'queued' in p);
    const all = every.filter(p => !('queued' in p));
    if (!all.length) {
      s.append(note('The folder has no profile.jsonl: it is written when a training ends, on a GPU with ' +
                    '--profile.'));
      return;
    }
    const sum = all.reduce((a, p) => a + p.total, 0), kinds = {};
    for (const p of all) kinds[p.kind] = (kinds[p.kind] || 0) + p.total;
    const rest = all.slice(SHOWN).reduce((a, p) => a + p.total, 0);
    const shown = all.slice(0, SHOWN).map(p => [p.name, p.total]);
    s.append(el('p', {}, `${time(sum)} an optimizer step: ` + Object.entries(kinds)
      .sort((a, b) => b[1] - a[1]).map(([k, t]) => `${k} ${percent(t / sum)}`).join(', ') + '.'));
    const top = most(shown.map(x => x[1]));
    s.append(el('div', {class: 'rows'}, ...shown.flatMap(([name, t]) => [
      el('span', {class: 'name', title: name}, name),
      el('span', {class: 'track'}, el('i', {style: `width:${100 * t / top}%;background:${color(i)}`})),
      el('span', {class: 'value'}, `${time(t)}  ${percent(t / sum)}`)])));
    if (rest)
      s.append(note(`The ${all.length - SHOWN} others take ${time(rest)}, ${percent(rest / sum)}.`));
    if (aside.length)
      s.append(note(`${aside.length} collectives take ${time(aside.reduce((a, p) => a + p.total, 0))} ` +
                    'beside these steps. Where the run waits for one, that is a step of kind wait.'));
    s.append(numbers('Numbers', () => [{head: 'step of the plan', text: true}, {head: 'function', text: true},
      {head: 'kind', text: true}, {head: 'runs'}, {head: 'seconds of a run'}, {head: 'bytes read'},
      {head: 'bytes written'}, {head: 'GB/s'}],
      () => every.map(p => [p.name, p.function, p.kind, p.runs, num(p.seconds), String(p.bytes_read),
        String(p.bytes_written), num((p.bytes_read + p.bytes_written) / p.seconds / 1e9, 3)])));
  });
}

// ---- decisions, options ----

function decisionSection() {
  const s = section('Decisions');
  RUNS.forEach((run, i) => {
    const all = run.decisions || [];
    s.append(el('p', {}, runName(i), `: ${all.filter(d => d.fp8).length} of ${all.length} GEMMs in FP8`));
    s.append(numbers('Decisions', () => [{head: 'GEMM', text: true}, {head: 'role', text: true},
      {head: 'formats', text: true}, {head: 'scaling', text: true}, {head: 'm'}, {head: 'n'}, {head: 'k'},
      {head: 'count'}, {head: 'reason', text: true, wrap: true}],
      () => all.map(d => [d.gemm, d.role, (d.format || []).join(', '), d.scaling, d.m, d.n, d.k, d.count,
        d.reason])));
  });
}

function optionSection() {
  const s = section('What the runs are');
  RUNS.forEach((run, i) => {
    const facts = [['folder', run.folder], ['file', run.info.file], ['module', run.info.module],
                   ['target', run.info.target], ['device', run.info.device],
                   ['versions', Object.entries(run.info.versions).map(v => v.join(' ')).join('; ')],
                   ...Object.entries(run.info.options || {})];
    s.append(numbers(`${run.name}: options and versions`, () => [{head: '', text: true}, {head: '', text: true}],
      () => facts.map(([k, v]) => [k, v === null || v === undefined ? '–'
                                                : typeof v === 'string' ? v : JSON.stringify(v)])));
  });
  s.append(note(`Written by fp8c ${DATA.fp8c}.`));
}

titles(RUNS.map(r => r.name).join(' · '));
runsSection();
if (DATA.parts.length) partSection();
curveSections();
statisticsSections();
memorySection();
timeSection();
decisionSection();
optionSection();
comeBack();
