// Helpers of every page: the data by column, elements made from text only, formatting of numbers.

const DASH = '–';
const data = JSON.parse(document.getElementById('data').textContent);

// A table of the page: get(name) gives the function row → value; words are looked up only when they are shown.
class Frame {
  constructor(coded) {
    this.rows = coded.rows;
    this.columns = coded.columns;
    this.byName = new Map(coded.columns.map((column) => [column.name, column]));
  }

  has(name) { return this.byName.has(name); }

  get(name) {
    const column = this.byName.get(name);
    if (!column) return () => null;
    if (!column.words) return (row) => figure(column.values[row]);
    return (row) => (column.codes[row] === null ? null : column.words[column.codes[row]]);
  }

  isText(name) { return Boolean(this.byName.get(name).words); }

  // The words of a column in order, without null.
  words(name) { return [...this.byName.get(name).words].sort(naturally); }

  row(place) {
    return Object.fromEntries(this.columns.map(({ name }) => [name, this.get(name)(place)]));
  }
}

// JSON has no infinity: such a number arrives as text.
function figure(value) {
  if (value === 'inf') return Infinity;
  if (value === '-inf') return -Infinity;
  return value === 'nan' ? NaN : value;
}

const collator = new Intl.Collator('en', { numeric: true });
function naturally(a, b) { return collator.compare(a, b); }

// An element; everything that is not an element becomes text, never markup.
function h(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function times(speedup) {
  if (speedup === null || Number.isNaN(speedup)) return DASH;
  if (!Number.isFinite(speedup)) return '∞×';
  if (speedup === 0) return '0×';
  if (speedup < 0.1) return `${speedup.toFixed(3)}×`;
  return speedup < 10 ? `${speedup.toFixed(2)}×` : `${Math.round(speedup).toLocaleString('en')}×`;
}

// Microseconds with the digits that matter.
function micros(us) {
  if (us === null || Number.isNaN(us)) return DASH;
  if (!Number.isFinite(us)) return '∞';
  return us >= 1000 ? Math.round(us).toLocaleString('en') : us >= 100 ? us.toFixed(0) : us >= 10 ? us.toFixed(1) : us.toFixed(2);
}

function percent(part, digits = 1) {
  if (part === null || Number.isNaN(part)) return DASH;
  return `${(100 * part).toFixed(digits)} %`;
}

function plain(value) {
  if (value === null || value === undefined) return DASH;
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value !== 'number') return String(value);
  if (Number.isNaN(value)) return 'not a number';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (Number.isInteger(value)) return value.toLocaleString('en');
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  return size >= 1000 ? value.toLocaleString('en', { maximumFractionDigits: 0 }) : String(Number(value.toPrecision(4)));
}

// The step of the heat map's colours; see bucket() in number_format.py.
function bucket(speedup) {
  if (speedup === null || Number.isNaN(speedup)) return '';
  if (speedup <= 0) return 's4';
  const size = Math.abs(Math.log2(speedup));
  if (size < Math.log2(1.05)) return 'even';
  const step = 1 + [Math.log2(1.25), 1, 2].filter((limit) => size >= limit).length;
  return (speedup > 1 ? 'f' : 's') + step;
}

function dark() { return getComputedStyle(document.documentElement).colorScheme.trim() === 'dark'
  || (document.documentElement.dataset.theme !== 'light' && document.documentElement.dataset.theme !== 'dark' && matchMedia('(prefers-color-scheme: dark)').matches); }

function note(text) { return text ? h('p', { class: 'note' }, text) : null; }
function statement(text) { return h('p', { class: 'statement' }, text); }

function choice(label, options, value, changed) {
  const select = h('select', { 'aria-label': label, onchange: () => changed(select.value) },
    options.map(([key, said]) => h('option', { value: key, selected: key === value }, said)));
  return h('label', {}, `${label} `, select);
}

const cells = new Frame(data.cells);
const cell = Object.fromEntries(data.cells.columns.map(({ name }) => [name, cells.get(name)]));
