// An index: a row a run, the curves of all, what could not be read.

function alarmText(run) {
  const first = run.warnings[0];
  return !first ? '0' : `${run.warnings.length}, from step ${first.step}`;
}

function stepText(run) {
  return run.state === 'done' || !run.length ? `${run.steps.n}` : `${run.steps.n} of ${run.length}, ${run.state}`;
}

// A column: how it looks, and by what it is sorted. Numbers that a run lacks come last. `if`: whether
// there is anything in it.
const COLUMNS = [
  {head: 'run', text: true, show: (run, i) => runName(i), by: run => run.name},
  {head: 'recipe', text: true, show: run => run.info.recipe ?? '–', by: run => run.info.recipe ?? ''},
  {head: 'steps', show: stepText, by: run => run.steps.n},
  {head: 'final loss', show: run => fixed(run.final_loss, 4), by: run => run.final_loss},
  {head: 'gap', show: run => (isNumber(run.gap) ? signed(run.gap) : '–'), by: run => run.gap},
  {head: 'held out', show: run => fixed(lastHeld(run), 4), by: lastHeld, if: run => run.evals.length},
  {head: rateHead(), show: run => num(run.rate), by: run => run.rate},
  {head: 'alarms', show: alarmText, by: run => run.warnings.length},
  {head: 'skipped', show: run => run.steps.skipped.length, by: run => run.steps.skipped.length,
   if: run => run.steps.skipped.length},
  {head: 'verdict', text: true, show: run => (run.verdict ? run.verdict.class : ''),
   by: run => (run.verdict ? run.verdict.class : ''), if: run => run.verdict},
  {head: 'begun (UTC)', text: true, show: begun, by: begun},
].filter(c => !c.if || RUNS.some(c.if));

function rateHead() {
  const names = new Set(RUNS.map(run => run.steps.rate_name));
  return names.size > 1 ? 'tokens or rows/s' : names.has('rows_per_second') ? 'rows/s' : 'tokens/s';
}

function fixed(x, digits) {
  return isNumber(x) ? x.toFixed(digits) : '–';
}

function begun(run) {
  return String(run.info.begun ?? '').replace('T', ' ').slice(0, 16);
}

function signed(share) {
  return (share > 0 ? '+' : '') + fixed(100 * share, 3) + '\u00a0%';
}

function compared(a, b) {
  if (typeof a === 'string' && typeof b === 'string') return a.localeCompare(b, 'en', {numeric: true});
  return isNumber(a) && isNumber(b) ? a - b : isNumber(b) - isNumber(a);
}

function runsSection() {
  const holder = el('div', {class: 'scroll open', tabindex: 0});
  const state = {by: -1, down: false};

  function show() {
    const order = RUNS.map((_, i) => i);
    if (state.by >= 0) {
      const by = COLUMNS[state.by].by, has = i => typeof by(RUNS[i]) === 'string' || isNumber(by(RUNS[i]));
      order.sort((a, b) => has(b) - has(a) || (state.down ? -1 : 1) * compared(by(RUNS[a]), by(RUNS[b])));
    }
    const table = tableOf(COLUMNS, order.map(i => COLUMNS.map(c => c.show(RUNS[i], i))), true);
    [...table.tHead.rows[0].cells].forEach((th, k) => {
      const press = el('button', {type: 'button', class: 'sort', click: () => sortBy(k)}, COLUMNS[k].head);
      th.replaceChildren(press);
      if (k === state.by) th.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
    });
    holder.replaceChildren(table);
  }

  function sortBy(k) {
    state.down = k === state.by && !state.down;
    state.by = k;
    keep('sorted', {...state});
    show();
  }

  Object.assign(state, kept('sorted') || {});
  show();
  section('Runs', note('A click on a head sorts by it. The final loss is the mean of the last steps, at most 20. ' +
    'The gap is how far it is above that of the run under bf16 with the same model and data, over the last ' +
    'steps that both have.'), holder,
    note('One run with its tensors: ', el('code', {}, `fp8c report ${RUNS.length ? RUNS[0].folder : 'DIR'} -o report.html`)));
}

function alarmSection() {
  const SHOWN = 5;
  const some = RUNS.map((run, i) => ({run, i})).filter(r => r.run.warnings.length || r.run.health.length ||
                                                            r.run.verdict);
  if (!some.length) return;
  const s = section('Alarms');
  for (const {run, i} of some) {
    s.append(el('h3', {}, runName(i)));
    for (const w of run.warnings.slice(0, SHOWN))
      s.append(el('p', {class: 'fact'}, `step ${w.step}: ${w.message}`));
    if (run.warnings.length > SHOWN) s.append(note(`and ${run.warnings.length - SHOWN} more`));
    for (const h of run.health.filter(x => x.message)) s.append(el('p', {class: 'fact'}, `step ${h.step}: ${h.message}`));
    if (run.verdict) s.append(el('p', {class: 'fact'}, `verdict of triage: ${verdictText(run.verdict)}`));
  }
}

function unreadSection() {
  if (!DATA.unread.length) return;
  section("Can't be read", tableOf([{head: 'folder', text: true}, {head: 'why', text: true, wrap: true}],
                                   DATA.unread.map(u => [u.name, u.why])));
}

titles(`index of ${RUNS.length} runs`);
runsSection();
if (RUNS.length) {
  curveSections();
  alarmSection();
}
unreadSection();
comeBack();
