// Charts, drawn by Vega-Lite when their page is opened. The library lies in the page as text until then.

let libraryReady = false;
const drawn = [];

function library() {
  if (!libraryReady) {
    const script = document.createElement('script');
    script.textContent = document.getElementById('library').textContent;
    document.head.append(script);
    libraryReady = true;
  }
  return window.vegaEmbed;
}

const FONT = getComputedStyle(document.body).fontFamily;

const COLOURS = Array.from({ length: 12 }, (_, place) => `--c${place}`);

// CSS resolves light-dark() only where a property is used.
function colour(name) {
  const probe = h('span', { style: `color:var(${name});display:none` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function theme() {
  const [text, soft, line] = ['--text', '--soft', '--line'].map(colour);
  return {
    background: 'transparent', font: FONT, padding: 4, view: { stroke: null },
    axis: { labelColor: soft, titleColor: text, titleFontWeight: 500, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 11, titleFontSize: 12, labelLimit: 220 },
    legend: { labelColor: text, titleColor: soft, titleFontWeight: 500, labelFontSize: 12, symbolSize: 80, orient: 'top' },
    header: { labelColor: text, titleColor: soft, labelFontSize: 12, labelFontWeight: 500 },
    range: { category: COLOURS.map(colour), ramp: { scheme: 'viridis' } },
    point: { filled: true, size: 34, opacity: 0.75 }, rule: { color: soft }, line: { strokeWidth: 2 },
  };
}

// The chart of `spec` in a figure with a title, a text for those who cannot see it, and what it says below.
function chart(title, spec, below = '') {
  const holder = h('div', { class: 'chart', role: 'img', 'aria-label': `${title}. ${below}` });
  const made = h('figure', {}, h('figcaption', {}, title), holder, note(below));
  drawn.push({ holder, spec });
  return made;
}

function drawCharts() {
  for (const { holder, spec } of drawn) {
    const size = { width: 'container', height: 260, autosize: { type: 'fit-x', contains: 'padding' } };
    library()(holder, { $schema: 'https://vega.github.io/schema/vega-lite/v6.json', ...size, ...spec, config: theme() },
      { mode: 'vega-lite', actions: false, ast: true, renderer: 'svg', defaultStyle: false, tooltip }).catch((error) => {
      holder.replaceChildren(statement(`This chart could not be drawn: ${error.message}`));
    });
  }
}

function forgetCharts() { drawn.length = 0; }

const hint = h('div', { class: 'hint', hidden: true, role: 'tooltip' });
document.body.append(hint);

function tooltip(_, event, item, value) {
  if (value === null || value === undefined || value === '') { hint.hidden = true; return; }
  const lines = typeof value === 'object' ? Object.entries(value).map(([key, said]) => h('div', {}, h('span', {}, key), ` ${said}`)) : [String(value)];
  hint.replaceChildren(...lines);
  hint.hidden = false;
  hint.style.left = `${Math.min(event.clientX + 14, innerWidth - hint.offsetWidth - 8)}px`;
  hint.style.top = `${Math.min(event.clientY + 14, innerHeight - hint.offsetHeight - 8)}px`;
}

const T = { q: 'quantitative', n: 'nominal', o: 'ordinal', t: 'temporal' };

// Roofline: share of the roof is the height under it; one point per outcome of one GPU.
function rooflinePage() {
  const points = [];
  for (let row = 0; row < cells.rows; row += 1) {
    const [x, y] = [cell.intensity(row), cell.tflops_per_s(row)];
    if (x > 0 && y > 0 && Number.isFinite(x) && Number.isFinite(y) && cell.speedup(row) !== null) points.push({ x, y, row, gpu: cell.gpu(row) ?? DASH });
  }
  const title = h('h2', {}, 'Roofline');
  if (!points.length) return [title, statement('No problem here tells its floating-point operations and bytes, so there is no roofline to draw. They are `flops` and `bytes` of a problem.')];
  const gpus = [...new Set(points.map(({ gpu }) => gpu))].sort(naturally);
  const chosen = setting('gpu', gpus);
  const here = points.filter(({ gpu }) => gpu === chosen);
  const spread = here.length > 3000 ? here.filter((_, place) => place % Math.ceil(here.length / 3000) === 0) : here;
  const peaks = here.map(({ row }) => [cell.peak_flops_per_s(row), cell.peak_bytes_per_s(row), cell.dtype(row)]).filter(([f, b]) => f > 0 && b > 0);
  const roofs = [...new Map(peaks.map((peak) => [peak.join(), peak])).values()].flatMap(([flops, bytes, dtype]) => roof(flops, bytes, dtype, here));
  const values = spread.map(({ x, y, row }) => ({
    x, y, dtype: cell.dtype(row), problem: cell.problem(row), candidate: cell.candidate(row),
    share: percent(cell.share_of_peak(row)), flops: `${plain(y)} TFLOP/s`,
  }));
  const x = { field: 'x', type: T.q, scale: { type: 'log' }, title: 'arithmetic intensity, FLOP per byte', axis: { grid: false, format: '~g', tickCount: 6 } };
  const y = { field: 'y', type: T.q, scale: { type: 'log' }, title: 'achieved, TFLOP/s', axis: { format: '~g', tickCount: 6 } };
  const layers = [{
    data: { values }, mark: { type: 'point' },
    encoding: { x, y, color: { field: 'dtype', type: T.n, title: 'dtype' }, tooltip: ['problem', 'candidate', 'dtype', 'flops', 'share'].map((field) => ({ field, type: T.n, title: field === 'share' ? 'share of roof' : field })) },
  }];
  if (roofs.length) layers.unshift({ data: { values: roofs }, mark: { type: 'line', strokeDash: [5, 3], strokeWidth: 1.5 }, encoding: { x, y, color: { field: 'dtype', type: T.n }, detail: { field: 'key', type: T.n } } });
  return [
    title,
    h('div', { class: 'controls' }, keptChoice('gpu', 'GPU', gpus.map((gpu) => [gpu, gpu]))),
    chart(`${chosen}: what is achieved, under what the device could do`, { height: 420, layer: layers },
      `${here.length.toLocaleString('en')} timed outcomes${spread.length < here.length ? `, ${spread.length.toLocaleString('en')} of them drawn` : ''}. ${roofs.length ? ROOFS : NO_ROOFS}`),
  ];
}

const ROOFS = "Dashed: the device's peak of memory (slope) and arithmetic (flat) for each dtype, from its data sheet or measured; a point above its roof is a mistake in FLOPs, bytes or the peak, or data that stayed in cache.";
const NO_ROOFS = 'No roof is drawn: the records do not say what the device can do at most.';

function roof(flops, bytes, dtype, points) {
  const knee = flops / bytes;
  const low = Math.min(knee / 10, ...points.map(({ x }) => x));
  const high = Math.max(knee * 10, ...points.map(({ x }) => x));
  return [low, knee, high].map((x) => ({ x, y: Math.min(flops, x * bytes) / 1e12, dtype, key: `${flops},${bytes},${dtype}` }));
}

// Cascade: per candidate of one problem, its efficiencies on the GPUs, best first, and the running harmonic mean.
function cascadePage() {
  const title = h('h2', {}, 'Cascade');
  const gpus = new Set();
  const byProblem = new Map();
  for (let row = 0; row < cells.rows; row += 1) {
    gpus.add(cell.gpu(row) ?? DASH);
    if (cell.fault(row) !== 'none' && cell.fault(row) !== 'candidate') continue;
    const key = [cell.problem(row), cell.workload(row) ?? '', cell.dtype(row), cell.toolchain(row)].filter(Boolean).join(' · ');
    if (!byProblem.has(key)) byProblem.set(key, []);
    byProblem.get(key).push(row);
  }
  if (gpus.size < 2) return [title, statement(`${gpus.size ? 'Only one GPU is' : 'No GPU is'} in these tables: how performance carries from GPU to GPU cannot be drawn.`)];
  const keys = [...byProblem.keys()].filter((key) => new Set(byProblem.get(key).map((row) => cell.gpu(row))).size > 1).sort(naturally);
  if (!keys.length) return [title, statement('No problem counts on two GPUs.')];
  const { values, zero } = cascade(byProblem.get(setting('problem', keys)));
  const x = { field: 'place', type: T.o, title: 'GPUs, each candidate’s best first', axis: { labelAngle: 0, grid: false } };
  const common = { color: { field: 'candidate', type: T.n, title: null, legend: { columns: 2, labelLimit: 220 } }, tooltip: ['candidate', 'gpu', 'said', 'harmonic'].map((field) => ({ field, type: T.n, title: { said: 'efficiency', harmonic: 'PP so far' }[field] || field })) };
  const y = { type: T.q, scale: { domain: [0, 1] }, axis: { format: '.0%', tickCount: 5 } };
  const layers = (field, what) => ({ data: { values }, mark: { type: 'line', point: { size: 40 } }, encoding: { x, y: { ...y, field, title: what }, ...common } });
  return [
    title,
    h('div', { class: 'controls' }, keptChoice('problem', 'Problem', keys.map((key) => [key, key]))),
    h('div', { class: 'pair' },
      chart('Efficiency', { height: 300, ...layers('efficiency', 'share of the fastest known here') }),
      chart('Performance portability as GPUs are added', { height: 300, ...layers('pp', 'running harmonic mean') })),
    note(`Efficiency: time of the fastest candidate of these tables on that GPU, divided by this candidate’s. The harmonic mean is 0 from the first GPU that a candidate fails on${zero ? ` (${zero} here)` : ''}. The page Answers has portability against a frozen table of best-known times, with intervals.`),
  ];
}

function cascade(rows) {
  const fastest = new Map();
  for (const row of rows) if (cell.candidate_us(row) > 0) fastest.set(cell.gpu(row), Math.min(fastest.get(cell.gpu(row)) ?? Infinity, cell.candidate_us(row)));
  const byCandidate = new Map();
  for (const row of rows) {
    const us = cell.candidate_us(row);
    const at = byCandidate.get(cell.candidate(row)) || new Map();
    at.set(cell.gpu(row), Math.max(at.get(cell.gpu(row)) ?? 0, us > 0 && Number.isFinite(us) ? fastest.get(cell.gpu(row)) / us : 0));
    byCandidate.set(cell.candidate(row), at);
  }
  const values = [];
  let zero = 0;
  const best = [...byCandidate].sort(([, a], [, b]) => harmonic([...b.values()]) - harmonic([...a.values()])).slice(0, 12);
  for (const [candidate, at] of best) {
    const sorted = [...at].sort(([, a], [, b]) => b - a);
    if (sorted.some(([, e]) => e === 0)) zero += 1;
    sorted.forEach(([gpu, efficiency], place) => {
      const pp = harmonic(sorted.slice(0, place + 1).map(([, e]) => e));
      values.push({ candidate, gpu, place: place + 1, efficiency, pp, said: efficiency ? percent(efficiency) : 'fails', harmonic: percent(pp) });
    });
  }
  return { values, zero };
}

function harmonic(values) { return values.some((value) => !value) ? 0 : values.length / values.reduce((sum, value) => sum + 1 / value, 0); }

// Noise: spread of times, by GPU.
function noisePage() {
  const frame = new Frame(data.spreads);
  const title = h('h2', {}, 'Noise');
  if (!frame.rows) return [title, statement('No spread is known: nothing was timed.')];
  const values = Array.from({ length: frame.rows }, (_, row) => frame.row(row)).map((one) => ({ ...one, at: `${percent(one.median, 2)}`, high: percent(one.p90, 2), top: percent(one.max, 1) }));
  const kinds = ['within a session', 'between sessions', 'machine drift', 'code drift'];
  const x = { type: T.q, axis: { format: '.1~%', tickCount: 5 }, title: 'share of the time' };
  const shared = { y: { field: 'group', type: T.n, title: null }, tooltip: [['group', 'of'], ['kind', 'spread'], ['at', 'median'], ['high', '90th percentile'], ['top', 'maximum'], ['cells', 'outcomes']].map(([field, said]) => ({ field, type: T.n, title: said })) };
  const facet = (kind) => ({
    height: 24 * new Set(values.map(({ group }) => group)).size, data: { values: values.filter((one) => one.kind === kind) },
    layer: [
      { mark: { type: 'bar', size: 12, color: colour('--accent') }, encoding: { ...shared, x: { ...x, field: 'median' } } },
      { mark: { type: 'rule', strokeWidth: 1.5 }, encoding: { ...shared, x: { ...x, field: 'median' }, x2: { field: 'p90' } } },
      { mark: { type: 'tick', thickness: 1.5, size: 10, color: colour('--soft') }, encoding: { ...shared, x: { ...x, field: 'p90' } } },
    ],
  });
  const known = kinds.filter((kind) => values.some((one) => one.kind === kind));
  const missing = kinds.filter((kind) => !known.includes(kind));
  return [
    title,
    h('div', { class: 'pair' }, known.map((kind) => chart(kind, facet(kind)))),
    note(`Bars: median over outcomes; whiskers: to the 90th percentile. ${missing.length ? `Not known here: ${missing.join(', ')}.` : ''} The page Answers splits the variance into its levels, with intervals.`),
  ];
}

// Drift: each cell against its own mean over all nights.
function driftPage() {
  const frame = new Frame(data.nights);
  const title = h('h2', {}, 'Drift over nights');
  if (!frame.rows) return [title, statement('No cell was timed in two nights: there is no drift to show.')];
  const rows = Array.from({ length: frame.rows }, (_, row) => frame.row(row));
  const values = rows.flatMap((one) => ['candidate', 'baseline'].filter((side) => one[side] !== null).map((side) => ({
    night: one.night, place: `${one.gpu} · ${one.toolchain}`, side: side === 'candidate' ? 'candidates' : 'baselines', off: one[side], said: percent(one[side], 2), cells: one.cells, driver: one.driver,
  })));
  return [
    title,
    chart('Time of a night against the same cells’ mean over all nights', {
      height: 360, data: { values }, mark: { type: 'line', point: true },
      encoding: {
        x: { field: 'night', type: T.t, title: 'night (date of the run’s start, UTC)', scale: { type: 'utc' }, axis: { format: '%d %b', grid: false, tickMinStep: 86400000 } },
        y: { field: 'off', type: T.q, title: 'slower above, faster below', axis: { format: '+.1%' }, scale: { zero: true } },
        color: { field: 'place', type: T.n, title: null }, strokeDash: { field: 'side', type: T.n, title: null, scale: { domain: ['candidates', 'baselines'], range: [[1, 0], [4, 3]] } },
        tooltip: ['night', 'place', 'side', 'said', 'cells', 'driver'].map((field) => ({ field, type: T.n, title: field === 'said' ? 'difference' : field })),
      },
    }, 'Geometric mean over the cells that were timed in more than one night. Where candidates and baselines move together, the machine moved.'),
  ];
}
