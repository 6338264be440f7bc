/* SPDX-License-Identifier: Apache-2.0 */
/* Several plans side by side: the answer of zplan compare --json. */

const letter = i => String.fromCharCode(65 + i)
const COMPARED = {compute: 'blue', 'pipeline bubble': 'grey', 'tensor communication': 'orange', 'expert communication': 'yellow', 'context communication': 'yellow', 'pipeline communication': 'sky',
  'data communication': 'purple', optimizer: 'green', offload: 'vermillion', overlap: 'grey', weights: 'blue', gradients: 'sky', saved: 'orange', buffers: 'yellow', context: 'grey', NCCL: 'purple'}

/* A bar a plan, of the rows before the last, which is their sum. */
function comparedBars(key, field, kind, width) {
  const plans = list('sides.plans'), rows = list('sides.' + key), parts = rows.slice(0, -1)
  const most = Math.max(...rows[rows.length - 1][field]), label = 28, x = v => label + (v / most) * (width - label - 84)
  return drawing(width, plans.length * 32 + 6, `${key} of ${plans.length} plans`, plans.map((_, p) => {
    let from = 0
    const y = 4 + p * 32
    return [svg('text', {class: 'name strong', x: 0, y: y + 16}, letter(p)), parts.map(row => {
      const v = row[field][p]
      if (!(v > 0)) return null
      from += v
      return svg('rect', {class: 'has-note f-' + (COMPARED[row.name] || 'grey'), x: x(from - v), y, width: Math.max(0.5, x(from) - x(from - v)), height: 24,
        note: () => [`${letter(p)}: ${row.name}`, SHOW[kind](v)]})
    }), figureText({class: 'tick', x: x(rows[rows.length - 1][field][p]) + 6, y: y + 16}, `sides.${key}.${rows.length - 1}.${field}.${p}`, kind)]
  }))
}

function comparedTable(key, field, kind) {
  const rows = list('sides.' + key).map((row, index) => ({...row, index, mark: row.same ? null : 'differs'}))
    .filter(row => row[field] && row[field].some(v => typeof v === 'string' || v !== 0))
  if (!rows.length) return null
  const cell = (row, p) => (field === 'words' ? el('span', {class: 'wrap'}, row.words[p]) : figure(`sides.${key}.${row.index}.${field}.${p}`, kind))
  return table(key, [{name: '', cell: row => [row.name, !row.same && el('span', {class: 'hidden'}, ' differs')]},
    ...list('sides.plans').map((_, p) => ({name: letter(p), number: field !== 'words', cell: row => cell(row, p)}))], rows, 200)
}

function verdict() {
  const plans = list('sides.plans')
  const best = plans.reduce((b, p, i) => (p.tokens_per_s > plans[b].tokens_per_s ? i : b), 0)
  const longer = i => plans[best].tokens_per_s / plans[i].tokens_per_s - 1
  return `${letter(best)} is the fastest` + plans.map((_, i) => (i === best ? '' : longer(i) < 0.0005 ? `; ${letter(i)} is as fast` : `; ${letter(i)} takes ${SHOW.share(longer(i))} longer`)).join('') +
    ' for the same tokens.'
}

function drawCompare() {
  const plans = list('sides.plans'), used = key => list('sides.' + key).slice(0, -1).filter(r => (r.seconds || r.bytes).some(v => v > 0)).map(r => [r.name, COMPARED[r.name] || 'grey'])
  const decisions = list('sides.decisions')
  const run = [['run_s', 'time', 's'], ['run_device_hours', 'device hours', 'short'], ['run_dollars', 'price', '$']].filter(([key]) => plans.some(p => p[key] > 0))
  const differing = {decisions: decisions.filter(d => !d.same).length}
  return [section('answer', 'Plans side by side', el('p', {class: 'answer'}, verdict()), el('div', {class: 'tiles-row'}, plans.map((plan, p) => {
    const path = 'sides.plans.' + p
    return el('div', {class: 'tile'}, el('div', {class: 'name'}, el('strong', {}, letter(p)), ' ', plan.name), el('div', {class: 'value'}, figure(path + '.step_s', 's')),
      el('div', {class: 'below'}, figure(path + '.tokens_per_s', 'tokens/s'), ', MFU ', figure(path + '.mfu', 'share'), ', peak ', figure(path + '.peak_bytes', 'B'), ' on stage ',
        figure(path + '.peak_stage', 'count'), ', ', figure(path + '.devices', 'count'), ' devices'))
  }))),
  section('decisions', `Decisions: ${differing.decisions} of ${decisions.length} differ`, comparedTable('decisions', 'words')),
  section('step', 'One step, estimated', legend(used('terms')), responsive(width => comparedBars('terms', 'seconds', 's', width)), folded('In numbers', comparedTable('terms', 'seconds', 's'))),
  section('memory', 'Memory of a rank on the fullest stage', legend(used('memory')), responsive(width => comparedBars('memory', 'bytes', 'B', width)),
    folded('In numbers', comparedTable('memory', 'bytes', 'B'), comparedTable('elsewhere', 'bytes', 'B'))),
  section('communication', 'Sent in a step by all ranks', comparedTable('traffic', 'bytes', 'B') || el('p', {}, 'Nothing is sent.')),
  run.length > 0 && section('training', 'The whole training run', table('the whole training', [{name: '', cell: r => r[1]},
    ...plans.map((_, p) => ({name: letter(p), number: true, cell: r => figure(`sides.plans.${p}.${r[0]}`, r[2])}))], run))]
}
