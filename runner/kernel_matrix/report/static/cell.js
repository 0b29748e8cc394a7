// One cell's page: what was found, its samples, its telemetry, and the same candidate elsewhere.

function rowsOf(frame, row) {
  const { values } = frame.byName.get('row');
  const found = [];
  for (let place = 0; place < values.length; place += 1) if (values[place] === row) found.push(place);
  return found;
}

function facts(pairs) {
  return h('dl', {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== DASH).flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function cellPage(row) {
  if (!(row >= 0 && row < cells.rows)) return [statement('This cell is not on the page.')];
  const get = (name) => cell[name](row);
  const ok = get('fault') === 'none';
  const interval = get('speedup_low') === null ? 'no interval: one session' : `95 % interval ${times(get('speedup_low'))} to ${times(get('speedup_high'))}`;
  const known = (value, said) => (value === null ? null : said(value));
  const millijoules = (value) => `${plain(value * 1000)} mJ`;
  const energyInterval = get('energy_ratio_low') === null ? 'no interval: one session' : `95 % interval ${times(get('energy_ratio_low'))} to ${times(get('energy_ratio_high'))}`;
  const mebibytes = (value) => `${plain(value / 2 ** 20)} MiB`;
  return [
    h('p', {}, h('a', { href: '#cells' }, '← all cells')),
    h('h2', { class: 'name' }, get('candidate')),
    h('p', { class: 'sub' }, problemLink(get('problem')), ' · ', [get('workload'), ranksOf(get('ranks')), get('dtype'), get('gpu'), get('toolchain')].filter(Boolean).join(' · ')),
    h('div', { class: 'figures' }, ok ? [
      h('div', { class: 'figure' }, h('b', {}, times(get('speedup'))), h('span', {}, get('verdict') ?? 'speed-up'), h('small', {}, get('speedup') === null ? 'not timed' : [interval, get('verdict_why')].filter(Boolean).join('; '))),
      h('div', { class: 'figure' }, h('b', {}, micros(get('candidate_us'))), h('span', {}, 'candidate, µs'), h('small', {}, `${plain(get('sessions'))} ${get('sessions') === 1 ? 'session' : 'sessions'}`)),
      h('div', { class: 'figure' }, h('b', {}, micros(get('baseline_us'))), h('span', {}, 'baseline, µs'), h('small', {}, 'the reference, in the same sessions')),
      h('div', { class: 'figure' }, h('b', {}, get('grade') ?? DASH), h('span', {}, 'grade'), h('small', {}, get('grade_reason') ?? '')),
    ] : h('div', { class: 'figure' }, h('b', {}, `✕ ${get('status').replaceAll('_', ' ')}`), h('span', {}, `at ${get('stage')}, fault: ${get('fault')}`), h('small', {}, get('status') === get('expect') ? 'as its author declares' : ''))),
    get('message') ? h('pre', {}, get('message')) : null,
    h('div', { class: 'blocks' },
      h('div', { class: 'block' }, h('h3', {}, 'Measured'), facts([
        ['Spread within a session', known(get('spread_within'), (v) => percent(v, 2))], ['Spread between sessions', known(get('spread_between'), (v) => percent(v, 2))],
        ['Machine drift', known(get('machine_drift'), (v) => percent(v, 2))], ['Code drift', known(get('code_drift'), (v) => percent(v, 2))],
        ['Physical floor', known(get('floor_us'), (v) => `${micros(v)} µs`)], ['Achieved', known(get('tflops_per_s'), (v) => `${plain(v)} TFLOP/s`)],
        ['Bandwidth', known(get('gbytes_per_s'), (v) => `${plain(v)} GB/s`)], ['Share of the roof', known(get('share_of_peak'), (v) => `${percent(v)}${get('bound') ? `, ${get('bound')} bound` : ''}`)],
        ['Algorithm bandwidth', known(get('algorithm_gbytes_per_s'), (v) => `${plain(v)} GB/s, ${get('collective_kind')}`)],
        ['Bus bandwidth', known(get('bus_gbytes_per_s'), (v) => `${plain(v)} GB/s`)], ['Share of the link', known(get('link_share_of_peak'), percent)],
        ['Error, of tolerance', known(get('worst_error_ratio'), plain)], ['Compile time', known(get('compile_s'), (v) => `${plain(v)} s`)], ['Whole time', known(get('total_s'), (v) => `${plain(v)} s`)],
        ['Memory, candidate', known(get('candidate_memory_bytes'), mebibytes)], ['Memory, baseline', known(get('baseline_memory_bytes'), mebibytes)],
        ['Energy per call, candidate', known(get('candidate_joules_per_call'), millijoules)], ['Energy per call, baseline', known(get('baseline_joules_per_call'), millijoules)],
        ['Baseline ÷ candidate, energy', known(get('energy_ratio_mean'), (v) => `${times(v)}, ${energyInterval}`)], ['Work per joule', known(get('flops_per_joule'), (v) => `${plain(v / 1e9)} GFLOP/J`)],
        ['Registers', known(get('registers_max'), plain)], ['Spills', known(get('spill_bytes_max'), (v) => `${plain(v)} bytes`)],
      ])),
      h('div', { class: 'block' }, h('h3', {}, 'Where'), facts([
        ['GPU', get('gpu_name')], ['Unit', get('gpu_uuid')], ['Host', get('hostname')], ['Driver', get('driver')], ['Alone', [get('exclusive'), get('exclusive_reason')].filter(Boolean).join(': ')],
        ['Clocks', [get('clock_state'), get('clock_reason')].filter(Boolean).join(': ')], ['SM clock', known(get('sm_clock_mhz'), (v) => `${plain(v)} MHz`)], ['Power', known(get('power_w'), (v) => `${plain(v)} W`)],
        ['Hottest', known(get('temperature_max_c'), (v) => `${plain(v)} °C`)], ['Sandbox', get('engine')], ['Image', get('image_id')],
        ['Versions', ['torch', 'triton', 'cuda'].filter((name) => get(name)).map((name) => `${name} ${get(name)}`).join(', ')],
      ])),
      h('div', { class: 'block' }, h('h3', {}, 'What'), facts([
        ['Cell', get('cell_id')], ['Matrix', get('matrix')], ['Started', get('started_at')], ['Category', get('category')], ['Level', known(get('level'), plain)], ['Language', get('language')],
        ['Method', get('origin_method')], ['Model', get('origin_model')], ['Round', known(get('origin_round'), plain)], ['Tier', get('tier')], ['Declared to end', get('expect')],
        ['Lines of code', known(get('code_lines'), plain)], ['Largest complexity (Python)', known(get('code_complexity'), plain)], ['Maintainability (Python)', known(get('code_maintainability'), (v) => `${plain(v)} of 100`)],
        ['Kernels launched per call', known(get('launches_per_call'), plain)],
        ['Launched by the reference', known(get('eager_launches'), plain)], ['Launched by torch.compile', known(get('compile_launches'), plain)],
      ]))),
    notesOf(get('labels'), 'Labels', data.labels), notesOf(get('findings'), 'Findings in the source', {}), notesOf(get('warnings'), 'Warnings', {}),
    ...samplesOf(row), ...looksOf(row),
    filesOf(get('candidate_sha256')).length ? [h('h3', {}, 'Source'), sourceView(shortName(row), get('candidate_sha256'))] : null, elsewhere(row),
  ];
}

function notesOf(text, title, meanings) {
  if (!text) return null;
  return h('div', {}, h('h3', {}, title), h('ul', {}, text.split(', ').map((word) => h('li', {}, meanings[word.split(':')[0]] ? `${word}: ${meanings[word.split(':')[0]]}` : word))));
}

function samplesOf(row) {
  if (!cell.sampled(row)) return cell.speedup(row) === null ? [] : [note(data.notes.samples)];
  const values = rowsOf(samples, row).map((at) => samples.row(at)).filter(({ us }) => us > 0 && Number.isFinite(us));
  if (!values.length) return [statement('No samples of this outcome are in the tables.')];
  let [session, order] = [null, 0];
  for (const one of values) {
    if (one.session !== session) [session, order] = [one.session, 0];
    Object.assign(one, { order: order += 1, kept: one.discarded ? 'discarded' : 'counts', who: one.side === 'eager' ? 'baseline' : one.side, session: (one.session ?? 0) + 1, said: `${micros(one.us)} µs` });
  }
  const y = { field: 'us', type: T.q, title: 'device time of one call, µs', scale: { zero: false }, axis: { format: ',.4~r' } };
  const tip = [['who', 'side'], ['said', 'time'], ['session', 'session'], ['block', 'block'], ['kept', 'sample']].map(([field, title]) => ({ field, type: T.n, title }));
  const who = [...new Set(values.map((one) => one.who))].sort();
  const strips = who.map((side) => chart(`${side}: samples by session`, {
    height: 240, data: { values: values.filter((one) => one.who === side) },
    transform: [{ calculate: 'random() - 0.5', as: 'jitter' }],
    layer: [
      { mark: { type: 'point', size: 26, opacity: 0.75 }, encoding: { x: { field: 'session', type: T.o, title: 'session', axis: { labelAngle: 0, grid: false } }, xOffset: { field: 'jitter', type: T.q }, y, color: side === 'candidate' ? { value: colour('--accent') } : { value: colour('--other') }, shape: { field: 'kept', type: T.n, legend: null, scale: { domain: ['counts', 'discarded'], range: ['circle', 'cross'] } }, tooltip: tip } },
      { mark: { type: 'tick', thickness: 2, size: 44, color: colour('--text') }, transform: [{ filter: "datum.kept == 'counts'" }], encoding: { x: { field: 'session', type: T.o }, y: { ...y, aggregate: 'median' } } },
    ],
  }));
  return [
    h('h3', {}, 'Samples'), h('div', { class: 'pair' }, strips),
    chart('In the order they were taken', {
      height: 220, data: { values }, mark: { type: 'point', size: 26, opacity: 0.8 },
      encoding: { x: { field: 'order', type: T.q, title: 'place in the session', axis: { grid: false, tickMinStep: 1, format: 'd' } }, y, color: { field: 'who', type: T.n, title: null, scale: { domain: ['candidate', 'baseline'].filter((side) => who.includes(side)).concat(who.filter((side) => side !== 'candidate' && side !== 'baseline')) } }, tooltip: tip },
    }, 'The bar in a strip is the median of the samples that count; crosses were discarded for a recorded cause. Blocks of baseline and candidate alternate. Large cells show every n-th sample.'),
  ];
}

function looksOf(row) {
  const values = rowsOf(looks, row).map((at) => looks.row(at));
  if (!values.length) return [];
  const x = { field: 's', type: T.q, title: 'seconds', axis: { grid: false } };
  const one = (field, title) => chart(title, { height: 140, data: { values: values.filter((look) => look[field] !== null) }, mark: 'line', encoding: { x, y: { field, type: T.q, title: null, scale: { zero: false } } } });
  return [h('h3', {}, 'Telemetry'), h('div', { class: 'pair' }, one('sm_clock_mhz', 'SM clock, MHz'), one('power_w', 'Power, W'), one('temperature_c', 'Temperature, °C'))];
}

function elsewhere(row) {
  const others = [];
  for (let other = 0; other < cells.rows; other += 1) if (other !== row && cell.candidate(other) === cell.candidate(row) && cell.problem(other) === cell.problem(row)) others.push(other);
  if (!others.length) return null;
  const made = table(others.length, cellColumns((place) => others[place]), { title: 'The same candidate elsewhere', height: '22rem' });
  return h('div', {}, h('h3', {}, 'The same candidate elsewhere'), made.node);
}
