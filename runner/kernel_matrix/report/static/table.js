// A table of any length: sorted by its headings, filtered by words, and only the rows in sight are elements.

const ROW = 30; // pixels, as in page.css
const SPARE = 12; // rows drawn above and below what is in sight

// columns: [{name, title, hint, get(row), show(value, row), text, width}]; options: {height}
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
  const frame = h('div', { class: 'window', tabindex: '0', onscroll: draw, style: options.height ? `max-height:${options.height}` : null }, grid);
  const count = h('p', { class: 'count', 'aria-live': 'polite' });
  grid.setAttribute('aria-rowcount', rows);

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
    const height = frame.clientHeight || 600;
    const from = Math.max(0, Math.floor(frame.scrollTop / ROW) - SPARE);
    const to = Math.min(order.length, Math.ceil((frame.scrollTop + height) / ROW) + SPARE);
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
      const shown = column.show ? column.show(value, row) : plain(value);
      const title = column.text && value !== null && String(value).length > 18 ? String(value) : null;
      return h('td', { class: column.text ? 'text' : 'figure', title }, shown);
    }));
  }

  new ResizeObserver(redraw).observe(frame);
  redraw();
  return { node: h('div', {}, count, frame), filter };
}

// The columns of a frame in their order, for tables of any kind.
function columnsOf(frame, meanings) {
  return frame.columns.map(({ name }) => ({
    name, title: name.replaceAll('_', ' '), hint: meanings[name] || null, get: frame.get(name), text: frame.isText(name),
  }));
}

// Terms like `status=passed gpu=h200,b200 problem!=relu* 4096`: column=glob[,glob], or a word anywhere in a name.
function matcher(frame, text, anywhere) {
  const tests = (text.match(/(?:[^\s"]+|"[^"]*")+/g) || []).map((term) => {
    const found = /^([\w]+)(!?=)(.+)$/.exec(term.replaceAll('"', ''));
    if (found && frame.has(found[1])) return byColumn(frame, found[1], found[3].split(','), found[2] === '=');
    const word = term.replaceAll('"', '').toLowerCase();
    const parts = anywhere.map((name) => wordTest(frame, name, (said) => said.toLowerCase().includes(word)));
    return (row) => parts.some((part) => part(row));
  });
  return (row) => tests.every((test) => test(row));
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
