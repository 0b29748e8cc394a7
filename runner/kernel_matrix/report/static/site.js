// A site keeps its rows in files: which of them a page needs, and how they are read.

const EVERY = 'all';
const { site } = data;
const loaded = new Map();
const problemParts = new Map(Object.entries(site ? site.problems : {}));

// The part whose rows a page shows: null for those in this file, a number, or EVERY.
function partOf(name, argument) {
  if (!site) return null;
  if (name === 'problem') return problemParts.get(argument) ?? null;
  if (name === 'cell') return argument.includes('.') ? knownPart(argument.split('.')[0]) : null;
  if (name !== 'cells') return null;
  if (settings.get('rows')) return knownPart(settings.get('rows'));
  const [, quoted, plainly] = /(?:^|\s)problem=(?:"([^"]*)"|(\S+))/.exec(argument) || [];
  return problemParts.get(quoted ?? plainly) ?? null;
}

function knownPart(word) { return word === EVERY ? EVERY : /^\d+$/.test(word) && Number(word) < site.parts.length ? Number(word) : null; }

function rowsChoice() {
  if (!site) return null;
  const total = site.parts.reduce((sum, { rows }) => sum + rows, 0);
  const names = site.parts.map(() => []);
  for (const [problem, number] of problemParts) names[number].push(problem);
  const said = (list) => (list.length < 2 ? list[0] : `${list[0]} to ${list[list.length - 1]}`);
  const options = [['', 'as the filter needs'], [EVERY, `all ${total.toLocaleString('en')}`], ...names.map((list, number) => [String(number), said(list)])];
  return keptChoice('rows', 'Rows', options);
}

// Sets the rows of a part; where they are not here yet, reads them and draws the page again.
function loadRows(wanted) {
  if (wanted === null) { setRows(data, null); return; }
  if (loaded.has(wanted)) { setRows(loaded.get(wanted), wanted); return; }
  const numbers = wanted === EVERY ? site.parts.map((_, number) => number) : [wanted];
  const page = document.getElementById('page');
  const progress = statement('');
  page.replaceChildren(progress);
  page.hidden = false;
  document.getElementById('overview').hidden = true;
  readParts(numbers, (done) => { progress.textContent = `Reading rows: ${done} of ${numbers.length} files.`; }).then(() => {
    if (wanted === EVERY) loaded.set(EVERY, together(numbers.map((number) => loaded.get(number))));
    if (partOf(...Object.values(readAddress())) === wanted) show();
  }, (error) => {
    progress.textContent = `The rows could not be read: ${error.message}. A browser reads them from a web server only: run \`python -m http.server\` in the folder of this file, and open the address that it prints.`;
    document.documentElement.dataset.shown = location.hash;
  });
}

async function readParts(numbers, tell) {
  if (location.protocol === 'file:') throw new Error('this page was opened from disk');
  for (const [done, number] of numbers.entries()) {
    tell(done);
    if (loaded.has(number)) continue;
    const answer = await fetch(site.parts[number].file);
    if (!answer.ok) throw new Error(`${site.parts[number].file}: ${answer.status}`);
    loaded.set(number, await answer.json());
  }
}

// The rows of several parts as one; samples stay with the parts.
function together(parts) {
  const frames = parts.map((one) => new Frame(one.cells));
  const columns = frames[0].columns.map(({ name }) => {
    const of = frames.map((frame) => frame.byName.get(name));
    if (!of.some((column) => column.words)) return { name, values: of.flatMap(({ values }) => values) };
    const places = new Map();
    const codes = of.flatMap((column) => column.codes.map((code) => {
      if (code === null) return null;
      const word = column.words[code];
      if (!places.has(word)) places.set(word, places.size);
      return places.get(word);
    }));
    return { name, words: [...places.keys()], codes };
  });
  const rows = frames.reduce((sum, frame) => sum + frame.rows, 0);
  return { cells: { rows, columns }, samples: { rows: 0, columns: [{ name: 'row', values: [] }] }, looks: { rows: 0, columns: [{ name: 'row', values: [] }] } };
}
