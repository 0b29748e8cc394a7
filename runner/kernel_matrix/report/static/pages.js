// The pages, and which of them is shown: the part of the address after #.

function verdictMark(row) {
  if (cell.fault(row) !== 'none') return h('span', { class: 'bad' }, `${cell.fault(row) === 'candidate' ? '✕' : '·'} ${cell.status(row).replaceAll('_', ' ')}`);
  const verdict = cell.verdict(row);
  return verdict ? h('span', {}, `${data.glyphs[verdict] || ''} ${verdict}`) : h('span', {}, `✓ ${cell.status(row)}`);
}

// Without the problem's name in front, which stands beside it.
function shortName(row) {
  return withoutProblem(cell.candidate(row), cell.problem(row));
}

// `at` turns a row of the table into a row of the cells.
function cellColumns(at = (row) => row) {
  const of = (name) => (row) => cell[name](at(row));
  const text = (name, title, width, more = {}) => ({ name, title, text: true, width, get: of(name), ...more });
  return [
    text('problem', 'problem', '11rem', { show: (value) => problemLink(value) }),
    text('candidate', 'candidate', '15rem', { show: (value, row) => h('a', { href: cellAddress(at(row)) }, shortName(at(row))) }),
    text('workload', 'workload', '6rem', { show: (value, row) => [value, ranksOf(cell.ranks(at(row)))].filter(Boolean).join(', ') }), text('dtype', 'dtype', '4.5rem'), text('gpu', 'GPU', '6rem'), text('toolchain', 'toolchain', '6.5rem'),
    { name: 'status', title: 'result', text: true, width: '10rem', get: (row) => (cell.fault(at(row)) === 'none' ? cell.verdict(at(row)) ?? cell.status(at(row)) : `~${cell.status(at(row))}`), show: (_, row) => verdictMark(at(row)) },
    { name: 'speedup', title: 'speed-up', width: '5.5rem', hint: 'baseline ÷ candidate, geometric mean over sessions', get: of('speedup'), show: (value) => h('span', { class: `chip ${bucket(value)}` }, times(value)) },
    { name: 'candidate_us', title: 'time, µs', width: '6rem', get: of('candidate_us'), show: micros },
    { name: 'baseline_us', title: 'baseline, µs', width: '7rem', get: of('baseline_us'), show: micros },
    { name: 'spread_within', title: 'spread', width: '5rem', hint: 'within a session', get: of('spread_within'), show: (value) => percent(value) },
    { name: 'sessions', title: 'sessions', width: '5.5rem', get: of('sessions') },
    text('grade', 'grade', '4rem'),
  ];
}

const ANYWHERE = ['problem', 'candidate', 'workload', 'gpu', 'toolchain', 'dtype', 'category', 'status', 'message'];
const PICKED = [['kind', 'Kind'], ['gpu', 'GPU'], ['toolchain', 'Toolchain'], ['dtype', 'Dtype'], ['category', 'Category'], ['status', 'Status'], ['verdict', 'Verdict'], ['verdict_reason', 'Why'], ['grade', 'Grade']];

function cellsPage(query) {
  if (!cells.rows) return [h('h2', {}, 'All cells'), statement('There are no cells.')];
  const made = table(cells.rows, cellColumns(), { title: 'All cells', all: columnsOf(cells) });
  const wrong = h('p', { class: 'wrong', role: 'alert', hidden: true });
  const search = h('input', { type: 'search', value: query || null, placeholder: 'softmax  gpu=h200  speedup>2', 'aria-label': 'Filter', size: '38', oninput: () => { keepAddress(search.value ? `cells/${encodeURIComponent(search.value)}` : 'cells'); apply(); } });
  const offered = PICKED.filter(([name]) => cells.words(name).length > 1);
  function apply() {
    const terms = offered.map(([name]) => [name, settings.get(name)]).filter(([, word]) => word).map(([name, word]) => wordTest(cells, name, (said) => said === word));
    const byText = matcher(cells, search.value, ANYWHERE);
    wrong.textContent = byText.errors.join(' ');
    wrong.hidden = !byText.errors.length;
    made.filter((row) => terms.every((term) => term(row)) && byText.keep(row));
  }
  const pickers = offered.map(([name, label]) => keptChoice(name, label, [['', 'all'], ...cells.words(name).map((word) => [word, word.replaceAll('_', ' ')])], apply));
  queueMicrotask(apply);
  return [
    h('h2', {}, 'All cells'), note(part === null ? data.notes.cells : ''),
    h('div', { class: 'controls' }, search, pickers, rowsChoice()), wrong, made.node,
    note('One row per cell, host and workload: its latest attempt. Words are looked for in names and messages; column=word filters one column, != turns it round, * stands for anything, a comma for or, and > >= < <= compare numbers. The address keeps the filter.'),
  ];
}

function failuresPage() {
  const frame = new Frame(data.failures);
  const title = h('h2', {}, 'Failures by reason');
  if (!frame.rows) return [title, statement('Nothing failed.')];
  const get = Object.fromEntries(frame.columns.map(({ name }) => [name, frame.get(name)]));
  const column = (name, said, width, more = {}) => ({ name, title: said, width, text: frame.isText(name), get: get[name], ...more });
  const made = table(frame.rows, [
    column('status', 'status', '10rem', { show: (value) => h('a', { href: `#cells/status=${value}` }, value.replaceAll('_', ' ')) }),
    column('stage', 'at', '5rem'), column('fault', 'fault', '7rem'),
    column('reason', 'reason (numbers as #)', '26rem', { show: (value) => value || 'no evidence' }),
    column('outcomes', 'outcomes', '6rem'), column('as_expected', 'as declared', '7rem', { hint: 'of candidates that are declared to end exactly so' }),
    column('candidates', 'candidates', '6.5rem'), column('gpus', 'GPUs', '9rem'), column('example', 'one of them', '30rem', { show: (value, row) => h('span', {}, `${get.example_cell(row).slice(0, 12)} ${value}`) }),
  ]);
  return [title, made.node, note('Only faults of candidates count against a kernel. Infrastructure, invalid problems and what is not supported are told here and are in no rate.'), note(data.notes.failures)];
}

function answersPage(chosenQuestion) {
  const questions = data.answers.map(({ question }) => question);
  if (!questions.length) return [h('h2', {}, 'Answers'), statement('No question was asked.')];
  const answered = data.answers.filter(({ statement: said }) => !said).map(({ question }) => question);
  const now = questions.includes(chosenQuestion) ? chosenQuestion : answered[0] ?? questions[0];
  const { statement: said, tables } = data.answers.find(({ question }) => question === now);
  const empty = tables.filter(({ frame }) => !frame.rows);
  const silent = data.answers.filter(({ question }) => !answered.includes(question));
  const list = (pairs) => facts(pairs.map(([name, why]) => [name, why || 'No rows.']));
  return [
    h('h2', {}, 'Answers'),
    h('nav', { class: 'sub', 'aria-label': 'Questions' }, questions.filter((question) => question === now || answered.includes(question)).map((question) => h('a', { href: `#answers/${question}`, 'aria-current': question === now ? 'page' : null }, question))),
    said ? statement(said) : null,
    tables.filter(({ frame }) => frame.rows).map(answerTable),
    empty.length ? h('details', {}, h('summary', {}, `${empty.length} more without rows`), list(empty.map(({ title, notes, statements }) => [title, [...statements, ...notes].join(' ')]))) : null,
    silent.length ? h('details', {}, h('summary', {}, `${silent.length} ${silent.length === 1 ? 'question' : 'questions'} without an answer`), list(silent.map((one) => [h('a', { href: `#answers/${one.question}` }, one.question), one.statement]))) : null,
  ];
}

function answerTable(answer) {
  const frame = new Frame(answer.frame);
  const explained = Object.entries(answer.meanings).filter(([name]) => frame.has(name));
  return h('div', { class: 'answer' },
    h('h3', {}, answer.title),
    answer.statements.map((line) => h('p', {}, line)),
    frameTable(frame, answer.meanings, { title: answer.title, height: '26rem' }),
    answer.notes.length ? h('ul', { class: 'notes' }, answer.notes.map((line) => h('li', {}, line))) : null,
    explained.length ? h('details', {}, h('summary', {}, 'What the columns mean'), facts(explained.map(([name, meaning]) => [name.replaceAll('_', ' '), meaning]))) : null);
}

const PAGES = {
  leaders: leadersPage, problem: problemPage, heat: heatPage, gpus: gpusPage, cells: cellsPage, cell: (row) => cellPage(Number(row.split('.').pop())), failures: failuresPage, roofline: rooflinePage, cascade: cascadePage, noise: noisePage, drift: driftPage, answers: answersPage,
};

const PARENTS = { cell: 'cells', problem: 'heat' }; // page → the one whose link is marked

function show() {
  const { name, argument } = readAddress();
  const wanted = partOf(name, argument);
  if (wanted !== part) {
    loadRows(wanted);
    if (wanted !== part) return; // it is drawn when its rows are here
  }
  const make = PAGES[name];
  const overview = document.getElementById('overview');
  const page = document.getElementById('page');
  overview.hidden = Boolean(make);
  page.hidden = !make;
  forgetCharts();
  shownTables = [];
  hint.hidden = true;
  const at = PARENTS[name] || (make ? name : 'overview');
  for (const link of document.querySelectorAll('[data-page]')) {
    if (link.dataset.page === at) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const label = document.activeElement?.getAttribute('aria-label');
  page.replaceChildren(...(make ? make(argument).flat(2).filter(Boolean) : []));
  if (label) [...page.querySelectorAll('[aria-label]')].find((one) => one.getAttribute('aria-label') === label)?.focus();
  drawCharts();
  document.documentElement.dataset.shown = location.hash; // what is drawn now: the address changes before it is
}

// A reader of the screen goes on at the heading of the new page.
function arrive() {
  show();
  scrollTo(0, 0);
  const heading = document.querySelector('#page:not([hidden]) h2, #overview:not([hidden]) h2');
  heading?.setAttribute('tabindex', '-1');
  heading?.focus({ preventScroll: true });
}

for (const svg of document.querySelectorAll('svg.ratios')) {
  const caption = svg.closest('figure').querySelector('figcaption');
  caption.append(...imageButtons(caption.textContent, () => svg));
}
document.getElementById('scriptless').hidden = true;
const themeButton = document.getElementById('theme');
function setTheme(word) {
  document.documentElement.dataset.theme = word;
  themeButton.textContent = word === 'dark' ? 'Light' : 'Dark';
}
themeButton.hidden = false;
themeButton.textContent = dark() ? 'Light' : 'Dark';
themeButton.addEventListener('click', () => { setTheme(dark() ? 'light' : 'dark'); show(); });
addEventListener('hashchange', arrive);
show();
