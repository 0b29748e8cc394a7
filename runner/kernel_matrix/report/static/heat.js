// The heat map GPU × problem, by dtype and toolchain.

const grid = new Frame(data.grid);
const place = Object.fromEntries(data.grid.columns.map(({ name }) => [name, grid.get(name)]));
let heatChoice = {};
const SHOWN = {
  best: 'speed-up of the best', mean: 'geometric mean of all that pass', passed: 'candidates that pass',
};

function heatPage() {
  if (!grid.rows) return [h('h2', {}, 'GPU × problem'), statement('There is nothing to map.')];
  const holder = h('div', {});
  const all = (name) => [['', 'all'], ...grid.words(name).map((word) => [word, word])];
  function fill() {
    heatChoice = Object.fromEntries(settings);
    holder.replaceChildren(heatTable());
  }
  const pick = (key, label, options) => keptChoice(key, label, options, fill);
  fill();
  return [
    h('h2', {}, 'GPU × problem'),
    h('div', { class: 'controls' },
      pick('show', 'Show', Object.entries(SHOWN)), pick('dtype', 'Dtype', all('dtype')), pick('toolchain', 'Toolchain', all('toolchain')),
      pick('category', 'Category', all('category')),
      pick('order', 'Order', [['problem', 'by name'], ['width', 'by difference between GPUs'], ['low', 'slowest first'], ['failed', 'failures first']])),
    holder,
    h('p', { class: 'legend' }, Object.entries(data.states).map(([state, said]) => h('span', {}, h('b', {}, data.glyphs[state]), ` ${said}`))),
    note('Of several dtypes or toolchains, the place shows the one with the fastest candidate. The best of many noisy candidates looks better than it is: its grade is in the hint.'),
    note(data.notes.grid),
  ];
}

function heatTable() {
  const found = new Map();
  const gpus = new Set();
  for (let row = 0; row < grid.rows; row += 1) {
    if (['dtype', 'toolchain', 'category'].some((key) => heatChoice[key] && place[key](row) !== heatChoice[key])) continue;
    const problem = place.problem(row) ?? DASH;
    const gpu = place.gpu(row) ?? DASH;
    gpus.add(gpu);
    if (!found.has(problem)) found.set(problem, new Map());
    const at = found.get(problem);
    at.set(gpu, merged(at.get(gpu), row));
  }
  if (!found.size) return statement('No place matches.');
  const names = [...gpus].sort(naturally);
  const problems = [...found.keys()];
  const rank = new Map(problems.map((problem) => [problem, rankOf([...found.get(problem).values()])]));
  problems.sort((a, b) => rank.get(b) - rank.get(a) || naturally(a, b));
  const columns = [
    { name: 'problem', title: 'problem', text: true, width: '16rem', get: (row) => problems[row], show: (value) => problemLink(value) },
    ...names.map((gpu) => ({
      name: gpu, title: gpu, get: (row) => found.get(problems[row]).get(gpu)?.[heatChoice.show === 'mean' ? 'mean' : 'best'] ?? null,
      show: (_, row) => heatPlace(found.get(problems[row]).get(gpu), [['problem', problems[row]], ['gpu', gpu]]),
    })),
  ];
  const made = table(problems.length, columns, { title: 'GPU × problem' });
  made.node.classList.add('heatmap');
  return made.node;
}

function rankOf(places) {
  const logs = places.map(({ best }) => best).filter((best) => best > 0 && Number.isFinite(best)).map(Math.log);
  if (heatChoice.order === 'width') return logs.length > 1 ? Math.max(...logs) - Math.min(...logs) : -1;
  if (heatChoice.order === 'low') return logs.length ? -Math.min(...logs) : -Infinity;
  return heatChoice.order === 'failed' ? places.filter(({ state }) => state === 'failed').length : 0;
}

function merged(before, row) {
  const now = {
    best: place.best(row), mean: place.mean(row), state: place.state(row), who: place.best_candidate(row), grade: place.grade(row),
    candidates: place.candidates(row), passed: place.passed(row), uncounted: place.uncounted(row), logs: [],
  };
  if (now.mean > 0 && now.passed) now.logs.push([Math.log(now.mean), now.passed]);
  if (!before) return now;
  const better = (now.best ?? -1) > (before.best ?? -1) || (before.best === null && now.best === null && before.state === 'uncounted') ? now : before;
  const logs = [...before.logs, ...now.logs];
  const weight = logs.reduce((sum, [, n]) => sum + n, 0);
  return {
    ...better, logs, mean: weight ? Math.exp(logs.reduce((sum, [log, n]) => sum + log * n, 0) / weight) : null,
    candidates: before.candidates + now.candidates, passed: before.passed + now.passed, uncounted: before.uncounted + now.uncounted,
  };
}

function heatPlace(at, names) {
  const href = cellsLink(...names, ...['dtype', 'toolchain', 'category'].map((key) => [key, heatChoice[key]]));
  if (!at) return h('span', { class: 'tile none', title: 'no cell' });
  const speed = heatChoice.show === 'mean' ? at.mean : at.best;
  const hint = `${data.states[at.state]}; ${at.passed} of ${at.candidates} pass${at.uncounted ? `, ${at.uncounted} do not count` : ''}${at.who ? `; best: ${at.who}, grade ${at.grade ?? DASH}` : ''}`;
  if (heatChoice.show === 'passed') {
    const share = at.candidates ? at.passed / at.candidates : null;
    const kind = share === null ? 'uncounted' : share === 1 ? 'f3' : share >= 0.5 ? 'f1' : share > 0 ? 's1' : 'failed';
    return h('a', { href, class: `tile ${kind}`, title: hint }, `${at.passed} of ${at.candidates}`);
  }
  const kind = ['failed', 'uncounted'].includes(at.state) ? at.state : bucket(speed);
  return h('a', { href, class: `tile ${kind}`, title: hint }, h('i', {}, data.glyphs[at.state]), speed === null ? '' : ` ${times(speed)}`);
}
