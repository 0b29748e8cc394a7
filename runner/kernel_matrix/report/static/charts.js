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
    legend: { labelColor: text, titleColor: soft, titleFontWeight: 500, labelFontSize: 12, symbolSize: 80, symbolBaseFillColor: text, orient: 'top' },
    header: { labelColor: text, titleColor: soft, labelFontSize: 12, labelFontWeight: 500 },
    range: { category: COLOURS.map(colour), ramp: { scheme: 'viridis' } },
    point: { filled: true, size: 34, opacity: 0.75 }, rule: { color: soft }, line: { strokeWidth: 2 },
  };
}

// Encodings whose colours and shapes stay the same in every chart with the same words, in their order.
const SHAPES = ['circle', 'square', 'triangle-up', 'diamond', 'cross', 'triangle-down', 'triangle-right', 'triangle-left'];
function wordsOf(field, values) { return [...new Set(values.map((one) => one[field]))].filter((word) => word !== null && word !== undefined).sort(naturally); }
function legend(domain, columns) { return domain.length > 1 ? { columns, labelLimit: 200 } : null; }
function coloured(field, values, title = field) {
  const domain = wordsOf(field, values);
  return { field, type: T.n, title, scale: { domain, range: domain.map((_, place) => colour(COLOURS[place % COLOURS.length])) }, legend: legend(domain, Math.max(2, Math.floor(innerWidth / 160))) };
}
function shaped(field, values, title = field) {
  const domain = wordsOf(field, values);
  return { field, type: T.n, title, scale: { domain, range: domain.map((_, place) => SHAPES[place % SHAPES.length]) }, legend: legend(domain, Math.max(2, Math.floor(innerWidth / 160))) };
}

// The chart of `spec` in a figure with a title, a text for those who cannot see it, what it says below, and the
// address of its rows.
function chart(title, spec, below = '', rows = '') {
  const description = `${title}. ${below}`; // Vega puts it into the label of the holder
  const holder = h('div', { class: 'chart', role: 'img', 'aria-label': description });
  const made = h('figure', {}, h('figcaption', {}, title, imageButtons(title, () => holder.querySelector('svg')), rows ? [' ', h('a', { href: rows, 'aria-label': `Rows of ${title}` }, 'rows')] : null), holder, note(below));
  drawn.push({ holder, spec: { description, ...spec } });
  return made;
}

function drawCharts() {
  for (const { holder, spec } of drawn) {
    const size = { width: 'container', height: 260, autosize: { type: 'fit-x', contains: 'padding' } };
    library()(holder, { $schema: 'https://vega.github.io/schema/vega-lite/v6.json', ...size, ...spec, config: theme() },
      { mode: 'vega-lite', actions: false, ast: true, renderer: 'svg', defaultStyle: false, tooltip }).then(({ view }) => view.addEventListener('click', (_, item) => {
      if (Number.isInteger(item?.datum?.row)) location.hash = cellAddress(item.datum.row);
    })).catch((error) => {
      holder.replaceChildren(statement(`This chart could not be drawn: ${error.message}`));
    });
  }
}

function imageButtons(title, svg) {
  return ['svg', 'png'].flatMap((ending) => [' ', h('button', { type: 'button', class: 'quiet', 'aria-label': `Download ${title} as ${ending.toUpperCase()}`, onclick: () => saveImage(svg(), title, ending) }, ending.toUpperCase())]);
}

// A chart as a file of its own: the page's styles, which it lacks there, are written into its elements.
const STYLED = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight', 'text-anchor'];
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((one) => [one, ...one.querySelectorAll('*')]);
  from.forEach((element, place) => {
    const style = getComputedStyle(element);
    for (const name of STYLED) to[place].setAttribute(name, style.getPropertyValue(name));
    to[place].removeAttribute('class');
  });
  const box = svg.getBoundingClientRect();
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', box.width);
  copy.setAttribute('height', box.height);
  copy.setAttribute('style', `background:${colour('--paper')}`);
  return { text: new XMLSerializer().serializeToString(copy), width: box.width, height: box.height };
}

function saveImage(svg, title, ending) {
  if (!svg) return;
  const { text, width, height } = standalone(svg);
  if (ending === 'svg') { download(fileName(title, ending), text, 'image/svg+xml'); return; }
  const image = new Image();
  image.addEventListener('load', () => {
    const canvas = h('canvas', { width: Math.ceil(2 * width), height: Math.ceil(2 * height) });
    const context = canvas.getContext('2d');
    context.fillStyle = colour('--paper');
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(fileName(title, ending), blob));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
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
const MOST_MARKS = 3000;

function rooflinePage() {
  const points = [];
  for (let row = 0; row < cells.rows; row += 1) {
    const [x, y] = [cell.intensity(row), cell.tflops_per_s(row)];
    if (x > 0 && y > 0 && Number.isFinite(x) && Number.isFinite(y) && cell.speedup(row) !== null) points.push({ x, y, row, gpu: cell.gpu(row) ?? DASH, dtype: cell.dtype(row), problem: cell.problem(row), workload: cell.workload(row) ?? DASH });
  }
  const title = h('h2', {}, 'Roofline');
  if (!points.length) return [title, statement('No problem here tells its floating-point operations and bytes, so there is no roofline to draw. They are `flops` and `bytes` of a problem.')];
  const { chosen: here, controls } = chosenPoints(points, [['gpu', 'GPU', true], ['dtype', 'Dtype'], ['problem', 'Problem'], ['workload', 'Size']]);
  const gpu = here[0]?.gpu ?? settings.get('gpu');
  if (!here.length) return [title, controls, statement('No timed outcome has all of these.')];
  const spread = thinned(here);
  const roofs = roofsOf(here);
  const values = spread.map((point) => ({
    ...point, candidate: cell.candidate(point.row), share: percent(cell.share_of_peak(point.row)), flops: `${plain(point.y)} TFLOP/s`,
  }));
  const x = { field: 'x', type: T.q, scale: { type: 'log' }, title: 'arithmetic intensity, FLOP per byte', axis: { grid: false, format: '~g', tickCount: 6 } };
  const y = { field: 'y', type: T.q, scale: { type: 'log', padding: 16 }, title: 'achieved, TFLOP/s', axis: { format: '~g', tickCount: 6 } };
  const layers = [{
    data: { values }, mark: { type: 'point', clip: true, cursor: 'pointer' }, params: [ZOOM],
    encoding: { x, y, color: coloured('dtype', values), shape: shaped('dtype', values), tooltip: ['problem', 'candidate', 'workload', 'dtype', 'flops', 'share'].map((field) => ({ field, type: T.n, title: { share: 'share of roof', workload: 'size' }[field] || field })) },
  }];
  if (roofs.length) {
    layers.unshift({ data: { values: roofs }, mark: { type: 'line', strokeDash: [5, 3], strokeWidth: 1.5, clip: true, color: colour('--soft') }, encoding: { x, y, detail: { field: 'key', type: T.n } } });
    layers.push({ data: { values: roofs.filter(({ last }) => last) }, mark: { type: 'text', align: 'right', dy: -7, fontSize: 11, color: colour('--text'), clip: true }, encoding: { x, y, text: { field: 'dtypes', type: T.n } } });
  }
  return [
    title, controls,
    chart(`${gpu}: what is achieved, under what the device could do`, { height: 440, layer: layers },
      `${here.length.toLocaleString('en')} timed outcomes${spread.length < here.length ? `, ${spread.length.toLocaleString('en')} of them drawn` : ''}. ${roofs.length ? ROOFS : NO_ROOFS} ${ZOOMED}`, cellsLink(...['gpu', 'dtype', 'problem', 'workload'].map((key) => [key, key === 'gpu' ? gpu : settings.get(key)]))),
  ];
}

const ZOOM = { name: 'zoom', select: { type: 'interval', zoom: 'wheel![event.shiftKey]', clear: 'dblclick' }, bind: 'scales' };
const ZOOMED = 'Drag to move, Shift and the wheel to zoom, double-click to go back; a click on a mark opens its cell.';
const ROOFS = "Dashed: the device's peak of memory (slope) and of arithmetic (flat, with its dtypes), from its data sheet or measured; a point above the roof of its dtype is a mistake in FLOPs, bytes or the peak, or data that stayed in cache.";
const NO_ROOFS = 'No roof is drawn: the records do not say what the device can do at most.';

// Choices by columns of `points`, kept in the address; one that is `needed` has no `all`.
function chosenPoints(points, fields) {
  const controls = h('div', { class: 'controls' });
  let chosen = points;
  for (const [key, label, needed] of fields) {
    const words = wordsOf(key, points);
    if (words.length < 2) continue;
    const options = [...(needed ? [] : [['', 'all']]), ...words.map((word) => [word, word])];
    controls.append(keptChoice(key, label, options));
    const word = setting(key, options.map(([one]) => one));
    if (word) chosen = chosen.filter((point) => point[key] === word);
  }
  return { chosen, controls };
}

function thinned(points) { return points.length > MOST_MARKS ? points.filter((_, place) => place % Math.ceil(points.length / MOST_MARKS) === 0) : points; }

// One line per pair of peaks, named by all dtypes that share it.
function roofsOf(points) {
  const dtypes = new Map();
  for (const { row, dtype } of points) {
    const [flops, bytes] = [cell.peak_flops_per_s(row), cell.peak_bytes_per_s(row)];
    if (!(flops > 0 && bytes > 0)) continue;
    const key = `${flops},${bytes}`;
    if (!dtypes.has(key)) dtypes.set(key, { flops, bytes, names: new Set() });
    dtypes.get(key).names.add(dtype);
  }
  return [...dtypes].flatMap(([key, { flops, bytes, names }]) => {
    const knee = flops / bytes;
    const low = Math.min(knee / 10, ...points.map(({ x }) => x));
    const high = Math.max(knee * 10, ...points.map(({ x }) => x));
    return [low, knee, high].map((x, place) => ({ x, y: Math.min(flops, x * bytes) / 1e12, key, dtypes: [...names].sort(naturally).join(', '), last: place === 2 }));
  });
}

// Two GPUs: the time of the same work on both, beside equality and what the data sheets predict.
function gpusPage() {
  const title = h('h2', {}, 'GPU against GPU');
  const gpus = cells.rows ? cells.words('gpu') : [];
  if (gpus.length < 2) return [title, statement('There are no two GPUs to compare.')];
  const first = setting('gpu', gpus);
  const second = setting('than', [...gpus.filter((gpu) => gpu !== first)]);
  const pick = (key, label, options) => keptChoice(key, label, options.map((gpu) => [gpu, gpu]));
  const points = commonWork(first, second);
  const { chosen, controls } = chosenPoints(points, [['dtype', 'Dtype'], ['problem', 'Problem'], ['workload', 'Size'], ['category', 'Category']]);
  controls.prepend(pick('gpu', 'GPU', gpus), pick('than', 'Against', gpus.filter((gpu) => gpu !== first)));
  if (!chosen.length) return [title, controls, statement('No work was timed on both.')];
  const told = data.answers.find(({ question }) => question === 'gpus')?.tables.find(({ name }) => name === 'gpus');
  const statements = (told?.statements || []).filter((line) => line.includes(first) && line.includes(second)).slice(0, 2);
  return [title, controls, statements.map((line) => h('p', {}, line)), againstChart(first, second, chosen, predictions(told, first, second))];
}

function commonWork(first, second) {
  const key = (row) => ['problem', 'ranks', 'candidate', 'workload', 'dtype', 'toolchain'].map((name) => cell[name](row)).join('\u0000');
  const there = new Map();
  for (let row = 0; row < cells.rows; row += 1) if (cell.gpu(row) === second && cell.candidate_us(row) > 0) there.set(key(row), row);
  const points = [];
  for (let row = 0; row < cells.rows; row += 1) {
    const other = cell.gpu(row) === first && cell.candidate_us(row) > 0 ? there.get(key(row)) : undefined;
    if (other !== undefined) points.push({ row, x: cell.candidate_us(other), y: cell.candidate_us(row), dtype: cell.dtype(row), problem: cell.problem(row), workload: cell.workload(row) ?? DASH, category: cell.category(row) ?? DASH, candidate: cell.candidate(row) });
  }
  return points.filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
}

// What the data sheets say: `first` is so many times as fast as `second`.
function predictions(answer, first, second) {
  if (!answer) return [];
  const frame = new Frame(answer.frame);
  for (let row = 0; row < frame.rows; row += 1) {
    const [gpu, than] = [frame.get('gpu')(row), frame.get('than')(row)];
    const turned = gpu === second && than === first;
    if (!turned && !(gpu === first && than === second)) continue;
    return ['memory', 'compute'].map((name) => [`data sheets, ${name}-bound`, frame.get(name)(row)]).filter(([, ratio]) => ratio > 0).map(([name, ratio]) => [name, turned ? 1 / ratio : ratio]);
  }
  return [];
}

function againstChart(first, second, points, predicted) {
  const spread = thinned(points);
  const values = spread.map((point) => ({ ...point, ratio: times(point.x / point.y), there: `${micros(point.x)} µs`, here: `${micros(point.y)} µs` }));
  const ends = [Math.min(...points.flatMap(({ x, y }) => [x, y])), Math.max(...points.flatMap(({ x, y }) => [x, y]))];
  const lines = [['as fast', 1], ...predicted.map(([line, ratio]) => [`${line} ${times(ratio)}`, ratio])].flatMap(([line, ratio]) => ends.map((x) => ({ x, y: x / ratio, line })));
  const log = (title) => ({ type: T.q, scale: { type: 'log' }, title, axis: { format: '~g', tickCount: 6, grid: false } });
  const x = { ...log(`${second}, µs`), field: 'x' };
  const y = { ...log(`${first}, µs`), field: 'y' };
  return chart(`Times on ${first} against ${second}`, {
    height: 460,
    layer: [
      { data: { values: lines }, mark: { type: 'line', strokeWidth: 1.5, clip: true, color: colour('--soft') }, encoding: { x, y, strokeDash: { field: 'line', type: T.n, title: null, legend: { labelLimit: 320 } } } },
      { data: { values }, mark: { type: 'point', clip: true, cursor: 'pointer' }, params: [ZOOM], encoding: { x, y, color: coloured('dtype', values), shape: shaped('dtype', values), tooltip: [['problem', 'problem'], ['candidate', 'candidate'], ['workload', 'size'], ['dtype', 'dtype'], ['here', first], ['there', second], ['ratio', `${first} is`]].map(([field, title]) => ({ field, type: T.n, title })) } },
    ],
  }, `${points.length.toLocaleString('en')} outcomes timed on both${spread.length < points.length ? `, ${spread.length.toLocaleString('en')} drawn` : ''}. Below the line "as fast", ${first} is faster. ${ZOOMED}`, cellsLink(['gpu', `${first},${second}`]));
}

// Cascade: per candidate of one problem, its efficiencies on the GPUs, best first, and the running harmonic mean.
function cascadePage() {
  const title = h('h2', {}, 'Cascade');
  const gpus = new Set();
  const byProblem = new Map();
  for (let row = 0; row < cells.rows; row += 1) {
    gpus.add(cell.gpu(row) ?? DASH);
    if (cell.fault(row) !== 'none' && cell.fault(row) !== 'candidate') continue;
    const key = [cell.problem(row), ranksOf(cell.ranks(row)), cell.workload(row) ?? '', cell.dtype(row), cell.toolchain(row)].filter(Boolean).join(' · ');
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
      chart('Efficiency', { height: 300, ...layers('efficiency', 'share of the fastest known here') }, '', cellsLink(['problem', cell.problem(byProblem.get(setting('problem', keys))[0])])),
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
