// Leaderboards, and a page per problem: its candidates on all GPUs, their sources, failures and history.

const leaders = new Frame(data.leaders);
const methods = new Frame(data.methods);
const sources = new Frame(data.sources);

function problemLink(name, said = name) { return h('a', { href: `#problem/${encodeURIComponent(name ?? '')}` }, said ?? DASH); }

function ranks(low, high) {
  if (low === null) return DASH;
  return low === high ? String(low) : `${low}–${high}`;
}

// An interval of a speed-up as a line on a logarithmic scale from 1/16 to 16, with a mark at 1.
function intervalBar(value, low, high) {
  if (value === null || !(value > 0)) return '';
  const place = (x) => `${(100 * (Math.min(Math.max(Math.log2(x) / 4, -1), 1) + 1) / 2).toFixed(1)}%`;
  const [from, to] = low === null ? [value, value] : [low, high];
  return h('span', { class: 'interval', 'aria-hidden': 'true' },
    h('i', { class: 'even-line' }),
    h('i', { class: 'reach', style: `left:${place(from)};right:calc(100% - ${place(to)})` }),
    h('i', { class: 'dot', style: `left:${place(value)}` }));
}

function between(low, high, said) { return low === null ? DASH : `${said(low)} to ${said(high)}`; }

// `at` turns a row of the table into a row of `frame`.
function leaderColumns(frame, at, names) {
  const get = (name) => (row) => frame.get(name)(at(row));
  return [
    { name: 'rank', title: 'rank', width: '4rem', hint: 'from one more than are surely faster, to those that are not surely slower: 1–3 is a tie', get: get('rank'), show: (_, row) => ranks(get('rank')(row), get('rank_high')(row)) },
    ...names,
    { name: 'speedup', title: 'speed-up', width: '5rem', get: get('speedup'), show: (value) => h('span', { class: `chip ${bucket(value)}` }, times(value)) },
    { name: 'low', title: '95 % interval', width: '8rem', get: get('low'), show: (_, row) => between(get('low')(row), get('high')(row), (value) => `${plain(Number(value.toPrecision(3)))}×`) },
    { name: 'bar', title: '1/16 … 16×', width: '9rem', get: get('speedup'), show: (value, row) => intervalBar(value, get('low')(row), get('high')(row)) },
  ];
}

function leaderTable(rows, options = {}) {
  const text = (name, title, more = {}) => ({ name, title, text: true, get: (row) => leaders.get(name)(rows[row]), ...more });
  const columns = leaderColumns(leaders, (row) => rows[row], [
    text('problem', 'problem', { show: (value) => problemLink(value) }),
    text('candidate', 'candidate', { show: (value, row) => h('a', { href: cellsLink(['candidate', value], ['gpu', leaders.get('gpu')(rows[row])]) }, withoutProblem(value, leaders.get('problem')(rows[row]))) }),
    text('gpu', 'GPU'),
  ]);
  const count = (name, title, hint) => ({ name, title, hint, get: (row) => leaders.get(name)(rows[row]) });
  columns.push(count('cells', 'count', 'cells × workloads that count'), count('passed', 'passed'), text('language', 'language'), text('origin_method', 'method'));
  const shown = columns.filter(({ name }) => !(options.without || []).includes(name));
  return table(rows.length, shown, { title: 'Candidates', all: columnsOf(leaders).map((column) => ({ ...column, get: (row) => column.get(rows[row]) })), ...options });
}

function leadersPage() {
  const title = h('h2', {}, 'Leaderboard');
  if (!leaders.rows) return [title, statement('No candidate counts.')];
  const pick = (name, label) => keptChoice(name, label, [['', 'all'], ...leaders.words(name).map((word) => [word, word])]);
  const filters = [['gpu', 'GPU'], ['problem', 'Problem'], ['language', 'Language'], ['origin_method', 'Method']].filter(([name]) => leaders.words(name).length > 1);
  const controls = h('div', { class: 'controls' }, filters.map(([name, label]) => pick(name, label)));
  const rows = [];
  for (let row = 0; row < leaders.rows; row += 1) if (filters.every(([name]) => !settings.get(name) || leaders.get(name)(row) === settings.get(name))) rows.push(row);
  return [
    title, ...methodsTable(), h('h3', {}, 'Candidates'), controls, leaderTable(rows).node,
    note('Rank: among the candidates of one problem and GPU that pass all of their cells, by their times where both were timed; 1–3 means that up to two others may be faster and nothing shows which. Speed-up over the baseline: geometric mean over what passed, with its 95 % interval from the noise of times. Nothing is corrected for the number of candidates.'),
    note(data.notes.leaders),
  ];
}

function methodsTable() {
  if (!methods.rows) return [];
  const at = (name) => methods.get(name);
  const text = (name, title) => ({ name, title, text: true, get: at(name), show: (value) => h('a', { href: cellsLink([name, value === DASH ? '' : value]) }, value) });
  const columns = leaderColumns(methods, (row) => row, [text('origin_method', 'method'), text('origin_model', 'model')]);
  columns.push(
    { name: 'correct_rate', title: 'correct', hint: 'share of candidates that pass all their cells', get: at('correct_rate'), show: (value) => percent(value, 0) },
    { name: 'correct_low', title: '95 % interval', get: at('correct_low'), show: (_, row) => between(at('correct_low')(row), at('correct_high')(row), (value) => percent(value, 0)) },
    { name: 'problems', title: 'problems', get: at('problems') }, { name: 'candidates', title: 'candidates', get: at('candidates') });
  return [h('h3', {}, 'Methods'), table(methods.rows, columns, { title: 'Methods', all: columnsOf(methods) }).node,
    note('Speed-up: geometric mean over problems, with its 95 % interval over problems. Ranks compare two methods where both have a speed-up.')];
}

function problemPage(name) {
  const rows = [];
  for (let row = 0; row < cells.rows; row += 1) if (cell.problem(row) === name) rows.push(row);
  const title = h('h2', { class: 'name' }, name);
  if (!rows.length) return [title, statement('This problem is not on the page.')];
  const led = [];
  for (let row = 0; row < leaders.rows; row += 1) if (leaders.get('problem')(row) === name) led.push(row);
  const facts = [cell.category(rows[0]), cell.level(rows[0]) === null ? null : `level ${cell.level(rows[0])}`, counted(new Set(rows.map((row) => cell.candidate(row))).size, 'candidate'), counted(new Set(rows.map((row) => cell.gpu(row))).size, 'GPU')];
  return [
    h('p', {}, h('a', { href: '#heat' }, '← all problems')), title,
    h('p', { class: 'sub' }, facts.filter(Boolean).join(' · '), ' · ', h('a', { href: cellsLink(['problem', name]) }, `${rows.length} ${rows.length === 1 ? 'row' : 'rows'}`)),
    ...speedCharts(rows),
    led.length ? [h('h3', {}, 'Leaderboard'), leaderTable(led, { title: `Candidates of ${name}`, without: ['problem'], height: '22rem' }).node] : null,
    ...sourcesOf(rows), ...failuresOf(rows), ...historyOf(name),
  ];
}

function counted(number, what) { return `${number} ${number === 1 ? what : `${what}s`}`; }
function withoutProblem(candidate, problem) { return candidate && problem && candidate.startsWith(`${problem}/`) ? candidate.slice(problem.length + 1) : candidate ?? DASH; }

const MOST_GPUS = 12;

// One chart per GPU: a row per candidate, a mark per workload and dtype.
function speedCharts(rows) {
  const measures = [['speedup', 'speed-up'], ['time', 'time']];
  const measure = setting('show', measures.map(([word]) => word));
  const field = measure === 'time' ? 'candidate_us' : 'speedup';
  const timed = rows.filter((row) => cell[field](row) > 0 && Number.isFinite(cell[field](row)));
  if (!timed.length) return [statement('Nothing of this problem was timed.')];
  const gpus = [...new Set(timed.map((row) => cell.gpu(row) ?? DASH))].sort(naturally);
  const values = timed.map((row) => ({
    row, gpu: cell.gpu(row) ?? DASH, candidate: shortName(row), workload: cell.workload(row) ?? DASH, dtype: cell.dtype(row), value: cell[field](row),
    low: measure === 'time' ? null : cell.speedup_low(row), high: measure === 'time' ? null : cell.speedup_high(row),
    said: measure === 'time' ? `${micros(cell.candidate_us(row))} µs` : times(cell.speedup(row)), verdict: cell.verdict(row), grade: cell.grade(row),
  }));
  const names = [...new Set(values.map(({ candidate }) => candidate))].sort(naturally);
  const span = values.map(({ value }) => value);
  const x = { type: T.q, scale: { type: 'log', domain: [Math.min(...span, measure === 'time' ? Infinity : 1) / 1.1, Math.max(...span, measure === 'time' ? 0 : 1) * 1.1] }, title: measure === 'time' ? 'µs' : 'times as fast as the baseline', axis: { format: '~g', tickCount: 6 } };
  const y = { field: 'candidate', type: T.n, title: null, scale: { domain: names }, axis: { labelLimit: 160 } };
  const one = (gpu) => {
    const here = values.filter((value) => value.gpu === gpu);
    return chart(gpu, {
      height: 26 * names.length + 8, data: { values: here },
      layer: [
        ...(measure === 'time' ? [] : [{ data: { values: [{ one: 1 }] }, mark: { type: 'rule', strokeDash: [3, 3] }, encoding: { x: { ...x, field: 'one' } } }]),
        { transform: [{ filter: 'datum.low !== null' }], mark: { type: 'rule', strokeWidth: 1.5, clip: true }, encoding: { y, x: { ...x, field: 'low' }, x2: { field: 'high' }, color: coloured('workload', values) } },
        { mark: { type: 'point', size: 60 }, encoding: { y, x: { ...x, field: 'value' }, color: coloured('workload', values), shape: shaped('dtype', values), tooltip: [['candidate', 'candidate'], ['workload', 'size'], ['dtype', 'dtype'], ['said', measure], ['verdict', 'verdict'], ['grade', 'grade']].map(([name, said]) => ({ field: name, type: T.n, title: said })) } },
      ],
    }, `${counted(here.length, 'timed outcome')}; best: ${here.reduce((a, b) => ((measure === 'time' ? b.value < a.value : b.value > a.value) ? b : a)).candidate}.`, cellsLink(['problem', cell.problem(rows[0])], ['gpu', gpu]));
  };
  return [
    h('div', { class: 'controls' }, keptChoice('show', 'Show', measures)),
    h('div', { class: 'pair' }, gpus.slice(0, MOST_GPUS).map(one)),
    gpus.length > MOST_GPUS ? note(`The first ${MOST_GPUS} of ${gpus.length} GPUs.`) : null,
  ];
}

// ---- sources

const WORDS = 'and as assert async await bool break case class const constexpr continue def del device elif else enum except extern finally float for from global half if import in inline int is lambda launch_bounds long namespace new None nonlocal not or pass raise return shared short sizeof static struct switch template try typedef typename unsigned using void while with yield True False auto __global__ __device__ __shared__ __restrict__ __launch_bounds__';
const KEYWORDS = new Set(WORDS.split(' '));
// Each alternative reads on to its end or that of the text, so that the time is linear in the length of any text.
const TOKEN = /("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(#(?!include|define|pragma|if|endif|else)[^\n]*|\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|([A-Za-z_]\w*)|(\d[\w.]*)/g;

// Code as text in spans; the text is of unknown origin and never becomes markup.
function highlighted(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(TOKEN)) {
    const kind = found[1] ? 'string' : found[2] ? 'comment' : found[4] ? 'number' : KEYWORDS.has(found[3]) ? 'keyword' : '';
    if (!kind) continue;
    parts.push(text.slice(end, found.index), h('span', { class: kind }, found[0]));
    end = found.index + found[0].length;
  }
  return h('code', {}, parts, text.slice(end));
}

function filesOf(digest) {
  const found = [];
  for (let row = 0; row < sources.rows; row += 1) if (digest && sources.get('digest')(row) === digest) found.push([sources.get('file')(row), sources.get('text')(row)]);
  return found;
}

function sourceView(title, digest) {
  const files = filesOf(digest);
  return h('div', { class: 'block' }, files.length ? files.map(([file, text]) => h('figure', {},
    h('figcaption', {}, `${title}: ${file} `, h('button', { type: 'button', class: 'quiet', 'aria-label': `Download ${title} ${file}`, onclick: () => download(file, text, 'text/plain') }, 'save')),
    h('pre', { class: 'code', tabindex: '0', role: 'region', 'aria-label': `Source of ${title}` }, highlighted(text)))) : statement(`The source of ${title} is not on this page. ${data.notes.sources}`));
}

// Two sources side by side: candidates of the problem, and its reference.
function sourcesOf(rows) {
  const known = new Map([['reference', cell.problem_sha256(rows[0])]]);
  const best = [...rows].sort((a, b) => (cell.speedup(b) ?? -1) - (cell.speedup(a) ?? -1));
  for (const row of best) if (!shortName(row).startsWith('@')) known.set(shortName(row), cell.candidate_sha256(row));
  const title = h('h3', {}, 'Sources');
  if (![...known.values()].some((digest) => filesOf(digest).length)) return [title, statement(`No source of this problem is on the page. ${data.notes.sources}`)];
  const names = [...known.keys()];
  const side = (key, label, order) => {
    const options = order.map((name) => [name, name]);
    return [setting(key, order), keptChoice(key, label, options)];
  };
  const [left, pickLeft] = side('left', 'Left', [...names.slice(1), names[0]]);
  const [right, pickRight] = side('right', 'Right', names);
  return [title, h('div', { class: 'controls' }, pickLeft, pickRight),
    h('div', { class: 'pair' }, sourceView(left, known.get(left)), left === right ? null : sourceView(right, known.get(right)))];
}

function failuresOf(rows) {
  const failed = rows.filter((row) => cell.fault(row) !== 'none');
  if (!failed.length) return [];
  const of = (name) => (row) => cell[name](failed[row]);
  const text = (name, title, more = {}) => ({ name, title, text: true, get: of(name), ...more });
  return [h('h3', {}, 'Failures'), table(failed.length, [
    text('candidate', 'candidate', { show: (_, row) => h('a', { href: cellAddress(failed[row]) }, shortName(failed[row])) }),
    text('status', 'status', { show: (value) => value.replaceAll('_', ' ') }), text('message', 'evidence'), text('workload', 'workload'), text('dtype', 'dtype'), text('gpu', 'GPU'), text('toolchain', 'toolchain'),
    text('expect', 'declared', { show: (value, row) => (value === cell.status(failed[row]) ? 'as declared' : '') }),
  ], { title: 'Failures of this problem', height: '22rem' }).node];
}

// Speed-ups night by night, from the answer to `drift`.
function historyOf(name) {
  const answer = data.answers.find(({ question }) => question === 'drift')?.tables.find((one) => one.name === 'nights');
  if (!answer) return [];
  const frame = new Frame(answer.frame);
  const values = [];
  for (let row = 0; row < frame.rows; row += 1) if (frame.get('problem')(row) === name && frame.get('speedup')(row) > 0) values.push(frame.row(row));
  if (new Set(values.map(({ night }) => night)).size < 2) return [];
  for (const one of values) Object.assign(one, { who: withoutProblem(one.candidate, name), place: [one.gpu, one.dtype, one.workload, ranksOf(one.ranks), one.toolchain].filter(Boolean).join(' · '), said: times(one.speedup) });
  return [h('h3', {}, 'History'), chart('Speed-up night by night', {
    height: 260, data: { values }, mark: { type: 'line', point: true },
    encoding: {
      x: { field: 'night', type: T.t, title: 'night', scale: { type: 'utc' }, axis: { format: '%d %b', grid: false, tickMinStep: 86400000 } },
      y: { field: 'speedup', type: T.q, title: 'speed-up', scale: { type: 'log' }, axis: { format: '~g', tickCount: 5 } },
      color: coloured('who', values), detail: { field: 'place', type: T.n },
      tooltip: [['who', 'candidate'], ['place', 'cell'], ['night', 'night'], ['said', 'speed-up']].map(([field, title]) => ({ field, type: T.n, title })),
    },
  }, 'Median over the sessions of a night.', `#answers/drift`)];
}
