// Helpers of every page: the data by column, elements made from text only, formatting of numbers.

const DASH = '–';
const data = JSON.parse(document.getElementById('data').textContent);

// A table of the page: get(name) gives the function row → value; words are looked up only when they are shown.
class Frame {
  constructor(coded) {
    this.rows = coded.rows;
    this.columns = coded.columns;
    for (const column of coded.columns) if ('all' in column) column[column.words ? 'codes' : 'values'] = new Array(coded.rows).fill(column.all);
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

const SHARE = /(^|_)(rate|share|coverage|efficiency)(_|$)|^fast_[\d.]+$|^spread|^(zeros|differ|noise|by_chance|arithmetic|running_pp|i_squared)$|^pp(_(low|high|supported|architectural))?$|^(mfu|bandwidth|roofline)_median$|^(add|drop)_(one|low|high)$|^top1/;

// Formats a value of a column by its name: shares and percentages as percent, all others plainly.
function byName(name, value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return plain(value);
  if (name.endsWith('_percent')) return `${plain(value)} %`;
  return SHARE.test(name) ? `${plain(Number((100 * value).toPrecision(3)))} %` : plain(value);
}

// A digest is shown by its start: the whole is in the hint and in a downloaded table.
function short(value) {
  return /^(sha256:)?[0-9a-f]{16,}$|^GPU-[0-9a-f-]{20,}$/.test(value) ? `${value.slice(0, value.startsWith('GPU-') ? 12 : 8)}…` : value;
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
function ranksOf(ranks) { return ranks > 1 ? `${ranks} ranks` : ''; }
function statement(text) { return h('p', { class: 'statement' }, text); }

function choice(label, options, value, changed) {
  const select = h('select', { 'aria-label': label, onchange: () => changed(select.value) },
    options.map(([key, said]) => h('option', { value: key, selected: key === value }, said)));
  return h('label', {}, `${label} `, select);
}

// The address after #: PAGE/ARGUMENT?KEY=VALUE&…; what is chosen on a page stays in it, so that it can be sent on.
let settings = new URLSearchParams();

function readAddress() {
  const [path, query] = location.hash.slice(1).split(/\?(.*)/s);
  const [name, ...rest] = path.split('/');
  settings = new URLSearchParams(query || '');
  return { name, argument: decoded(rest.join('/')) };
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; } // typed by hand, with a lone %
}

// The value of a setting, if it is one of `known`; else the first of these.
function setting(key, known) {
  const value = settings.get(key) ?? '';
  return known.includes(value) ? value : known[0];
}

function keepAddress(path, changes = {}) {
  for (const [key, value] of Object.entries(changes)) {
    if (value) settings.set(key, value);
    else settings.delete(key);
  }
  const query = settings.toString();
  history.replaceState(null, '', `#${path}${query ? `?${query}` : ''}`);
  document.documentElement.dataset.shown = location.hash;
}

function keepSetting(key, value) { keepAddress(location.hash.slice(1).split('?')[0], { [key]: value }); }

// A choice that is kept in the address; the page is drawn again when it changes.
function keptChoice(key, label, options, changed = () => show()) {
  const value = setting(key, options.map(([word]) => word));
  return choice(label, options, value, (word) => { keepSetting(key, word); changed(); });
}

// The address of the cells that the terms select; a term is [column, value].
function cellsLink(...terms) {
  const quoted = (value) => (/\s/.test(value) ? `"${value.replaceAll('"', '?')}"` : value.replaceAll('"', '?'));
  const text = terms.filter(([, value]) => value !== null && value !== undefined && value !== '').map(([name, value]) => `${name}=${quoted(String(value))}`).join(' ');
  return `#cells/${encodeURIComponent(text)}`;
}

// Gives the user a file with `text` or the bytes of a blob.
function download(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = h('a', { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function fileName(title, ending) { return `${title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'kernel-matrix'}.${ending}`; }

// Text that a spreadsheet would take for a formula gets an apostrophe in front.
function csv(rows) {
  const field = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return '';
    if (typeof value === 'number') return String(value);
    const safe = /^[=+\-@\t\r]/.test(String(value)) ? `'${value}` : String(value);
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${rows.map((row) => row.map(field).join(',')).join('\r\n')}\r\n`;
}

// The rows that pages show now: those in this file or, on a site, those of one of its parts or of all.
let [cells, cell, samples, looks] = [];
let part = null;

function setRows(coded, number) {
  [cells, samples, looks] = ['cells', 'samples', 'looks'].map((name) => new Frame(coded[name]));
  cell = Object.fromEntries(cells.columns.map(({ name }) => [name, cells.get(name)]));
  part = number;
}
setRows(data, null);

// The address of a cell's page.
function cellAddress(row) { return `#cell/${part === null ? '' : `${part}.`}${row}`; }
