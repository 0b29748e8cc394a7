// A table of any length: sorted by its headings, filtered by words, and only the rows in sight are elements.

const ROW = 30; // pixels, as in page.css
const SPARE = 12; // rows drawn above and below what is in sight

const MOST_PRINTED = 1000; // rows of a table on paper
let printing = false;
let shownTables = [];
for (const [event, now] of [['beforeprint', true], ['afterprint', false]]) addEventListener(event, () => { printing = now; for (const redraw of shownTables) redraw(); });

// columns: [{name, title, hint, get(row), show(value, row), text, width}]; options: {title, height, all}, where `all` are
// the columns of the downloaded table, if it has more.
function table(rows, columns, options = {}) {
  let order = Uint32Array.from({ length: rows }, (_, place) => place);
  let sorted = { name: null, down: false };
  let first = -1;
  let last = -1;

  const head = h('tr', {}, columns.map((column) => {
    const button = h('button', { type: 'button', title: column.hint || null, onclick: () => sortBy(column) }, column.title);
    column.heading = h('th', { class: column.text ? 'text' : 'figure', scope: 'col', 'aria-sort': 'none' }, button);
    return column.heading;
  }));
  const above = h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length }));
  const below = h('tr', { class: 'gap', 'aria-hidden': 'true' }, h('td', { colspan: columns.length }));
  const body = h('tbody', {}, above, below);
  const grid = h('table', { class: 'plain long' }, h('colgroup', {}, columns.map((column) => h('col', { style: column.width ? `width:${column.width}` : null }))), h('thead', {}, head), body);
  const title = options.title || 'Table';
  const frame = h('div', { class: 'window', tabindex: '0', role: 'region', 'aria-label': title, onscroll: draw, style: options.height ? `max-height:${options.height}` : null }, grid);
  const count = h('p', { class: 'count', 'aria-live': 'polite' });
  const save = h('button', { type: 'button', class: 'quiet', 'aria-label': `Download ${title} as CSV`, onclick: saveCsv }, 'CSV');
  grid.setAttribute('aria-rowcount', rows);

  function saveCsv() {
    const written = options.all || columns;
    download(fileName(title, 'csv'), csv([written.map(({ name }) => name), ...Array.from(order, (row) => written.map((column) => column.get(row)))]), 'text/csv');
  }

  function sortBy(column) {
    sorted = { name: column.name, down: sorted.name === column.name ? !sorted.down : !column.text };
    for (const other of columns) other.heading.setAttribute('aria-sort', other === column ? (sorted.down ? 'descending' : 'ascending') : 'none');
    arrange();
  }

  function arrange() {
    const column = columns.find(({ name }) => name === sorted.name);
    if (column) {
      const sign = sorted.down ? -1 : 1;
      const key = Array.from({ length: rows }, (_, row) => column.get(row));
      order = order.slice().sort((a, b) => {
        const [x, y] = [key[a], key[b]];
        const [noX, noY] = [x === null || Number.isNaN(x), y === null || Number.isNaN(y)];
        if (noX || noY) return noX - noY || a - b; // unknown values last, in either direction
        const found = typeof x === 'number' ? (x > y) - (x < y) : naturally(String(x), String(y));
        return sign * found || a - b;
      });
    }
    redraw();
  }

  function filter(keep) {
    order = Uint32Array.from({ length: rows }, (_, place) => place).filter(keep);
    frame.scrollTop = 0;
    arrange();
  }

  function redraw() { first = -1; draw(); }

  function draw() {
    const height = printing ? MOST_PRINTED * ROW : frame.clientHeight || 600;
    const top = printing ? 0 : frame.scrollTop;
    const from = Math.max(0, Math.floor(top / ROW) - SPARE);
    const to = Math.min(order.length, Math.ceil((top + height) / ROW) + SPARE);
    if (from === first && to === last) return;
    [first, last] = [from, to];
    while (above.nextSibling !== below) above.nextSibling.remove();
    above.firstChild.style.height = `${from * ROW}px`;
    below.firstChild.style.height = `${(order.length - to) * ROW}px`;
    const made = document.createDocumentFragment();
    for (let place = from; place < to; place += 1) made.append(line(order[place], place));
    body.insertBefore(made, below);
    count.textContent = `${order.length === rows ? '' : `${order.length.toLocaleString('en')} of `}${rows.toLocaleString('en')} ${rows === 1 ? 'row' : 'rows'}`;
  }

  function line(row, place) {
    return h('tr', { 'aria-rowindex': place + 2 }, columns.map((column) => {
      const value = column.get(row);
      const shown = column.show ? column.show(value, row) : column.text ? short(plain(value)) : byName(column.name, value);
      const title = column.text && value !== null && String(value).length > 18 ? String(value) : null;
      return h('td', { class: column.text ? 'text' : 'figure', title }, shown);
    }));
  }

  new ResizeObserver(() => { if (frame.isConnected) redraw(); }).observe(frame);
  shownTables.push(redraw);
  redraw();
  return { node: h('div', {}, h('div', { class: 'above' }, count, save), frame), filter, order: () => order };
}

// The columns of a frame in their order, for tables of any kind.
function columnsOf(frame, meanings = {}) {
  return frame.columns.map(({ name }) => ({
    name, title: name.replace(/_percent$/, '').replaceAll('_', ' '), hint: meanings[name] || null, get: frame.get(name), text: frame.isText(name),
  }));
}

// A table of a frame. Left out are columns without a value and digests; what is equal in all rows is told above.
function frameTable(frame, meanings, options) {
  const all = columnsOf(frame, meanings);
  const many = frame.rows > 3;
  const same = [];
  const columns = all.filter((column) => {
    const values = Array.from({ length: frame.rows }, (_, row) => column.get(row));
    const known = values.some((value) => value !== null);
    const constant = many && values.every((value) => value === values[0]);
    const digest = column.text && values.every((value) => value === null || short(value) !== value);
    if (known && constant) same.push(`${column.title} ${column.text ? short(values[0]) : byName(column.name, values[0])}`);
    return known && !constant && !(many && digest);
  });
  return [note(same.length ? `In all rows: ${same.join(', ')}.` : ''), table(frame.rows, columns.length ? columns : all, { ...options, all }).node];
}

// Terms like `status=passed gpu=h200,b200 problem!=relu* speedup>=2 4096`: column=glob[,glob], column>number, or a word
// anywhere in a name. `errors` says what cannot be used, in words.
function matcher(frame, text, anywhere) {
  const errors = [];
  const tests = (text.match(/(?:[^\s"]+|"[^"]*")+/g) || []).map((term) => {
    const [, name, operator, value] = /^([\w.]+)(!=|>=|<=|=|>|<)(.*)$/s.exec(term.replaceAll('"', '')) || [];
    if (!name) return byWord(frame, term.replaceAll('"', '').toLowerCase(), anywhere);
    const wrong = wrongTerm(frame, name, operator, value);
    if (wrong) errors.push(wrong);
    if (wrong) return () => true;
    return operator === '=' || operator === '!=' ? byColumn(frame, name, value.split(','), operator === '=') : byNumber(frame, name, operator, Number(value));
  });
  return { keep: (row) => tests.every((test) => test(row)), errors };
}

function wrongTerm(frame, name, operator, value) {
  if (!frame.has(name)) return `There is no column ${name}. Columns: ${frame.columns.map((column) => column.name).join(', ')}.`;
  if (!value) return `${name}${operator} lacks a value.`;
  if (!/[<>]/.test(operator)) return '';
  if (frame.isText(name)) return `${name} is text, which ${operator} does not compare: use = or !=.`;
  return Number.isNaN(Number(value)) ? `${value} in ${name}${operator}${value} is not a number.` : '';
}

function byWord(frame, word, anywhere) {
  const parts = anywhere.map((name) => wordTest(frame, name, (said) => said.toLowerCase().includes(word)));
  return (row) => parts.some((part) => part(row));
}

const COMPARED = { '>': (a, b) => a > b, '>=': (a, b) => a >= b, '<': (a, b) => a < b, '<=': (a, b) => a <= b };

function byNumber(frame, name, operator, limit) {
  const [get, holds] = [frame.get(name), COMPARED[operator]];
  return (row) => get(row) !== null && holds(get(row), limit);
}

function byColumn(frame, name, globs, wanted) {
  const patterns = globs.map((glob) => new RegExp(`^${glob.replace(/[.+^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*').replaceAll('?', '.')}$`, 'iu'));
  if (frame.isText(name)) return wordTest(frame, name, (said) => patterns.some((pattern) => pattern.test(said)) === wanted, !wanted);
  const get = frame.get(name);
  return (row) => patterns.some((pattern) => pattern.test(String(get(row)))) === wanted;
}

// Each word is tested once, however many rows have it.
function wordTest(frame, name, test, ofNull = false) {
  const { words, codes } = frame.byName.get(name);
  const good = words.map(test);
  return (row) => (codes[row] === null ? ofNull : good[codes[row]]);
}
