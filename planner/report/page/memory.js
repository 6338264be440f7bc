/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of every stage: a strip with one column a stage, which opens to bars and numbers. */

const CLASSES = [
  ['weights', 'blue'],
  ['gradients', 'sky'],
  ['optimizer', 'green'],
  ['saved', 'orange'],
  ['buffers', 'yellow'],
  ['context', 'grey'],
  ['communicators', 'purple'],
]
const CLASS_NAMES = {saved: 'saved activations', communicators: 'NCCL'}
const memoryPaths = stage => CLASSES.map(([c]) => `plan.stages.${stage}.memory.${c}`)
const memoryTotal = stage => memoryPaths(stage).reduce((sum, path) => sum + number(path), 0)

function memoryNote(stage) {
  return [`stage ${stage}: ${list('stage_runs')[stage]}`,
    ...CLASSES.filter(([c]) => number(`plan.stages.${stage}.memory.${c}`) > 0).map(([c]) =>
      `${CLASS_NAMES[c] || c} ${mark('memory.' + c)}${SHOW.B(number(`plan.stages.${stage}.memory.${c}`))}`),
    `together ~${SHOW.B(memoryTotal(stage))} of ${SHOW.B(number('usable_bytes.' + stage))} that may be used`,
    `recompute ${at(`plan.stages.${stage}.recompute`)}`]
}

/* The capacity belongs in the picture, unless the model is so small that nothing else would be seen. */
const MOST_ROOM = 10
function memoryScale() {
  const stages = list('plan.stages')
  const largest = stages.reduce((m, _, s) => Math.max(m, memoryTotal(s)), 0)
  const usable = Math.max(...list('usable_bytes'))
  return {most: usable < MOST_ROOM * largest ? Math.max(usable, largest) : largest, limit: usable < MOST_ROOM * largest}
}

function memoryStrip(width) {
  const stages = list('plan.stages'), height = 110
  const {most, limit} = memoryScale()
  const left = MARGIN.left, each = (width - left - 8) / stages.length, y = bytes => height - 18 - (bytes / most) * (height - 30)
  const columns = stages.map((_, s) => {
    let below = 0
    const x = left + s * each, w = Math.max(0.5, each - (each > 4 ? 1 : 0))
    const parts = CLASSES.map(([c, colour]) => {
      const bytes = number(`plan.stages.${s}.memory.${c}`)
      if (!(bytes > 0)) return null
      below += bytes
      return svg('rect', {class: 'f-' + colour, x, y: y(below), width: w, height: Math.max(0, y(below - bytes) - y(below))})
    })
    return svg('g', {class: 'has-note column', note: () => memoryNote(s)}, parts, svg('rect', {class: 'hit', x, y: 8, width: each, height: height - 26}))
  })
  const usable = list('usable_bytes')
  const line = limit && usable.map((b, s) => `${s ? 'L' : 'M'}${left + s * each} ${y(b)}H${left + (s + 1) * each}`).join('')
  const every = Math.max(1, Math.ceil(stages.length / Math.max(2, Math.floor(width / 60))))
  return drawing(width, height, `memory of ${stages.length} stages, one column each`, columns,
    line && svg('path', {class: 'limit', d: line}),
    svg('text', {class: 'tick', x: left - 8, y: y(most) + 8, 'text-anchor': 'end'}, SHOW.B(most)), svg('text', {class: 'tick', x: left - 8, y: y(0), 'text-anchor': 'end'}, '0'),
    stages.map((_, s) => s % every === 0 && svg('text', {class: 'tick', x: left + (s + 0.5) * each, y: height - 4, 'text-anchor': 'middle'}, s)))
}

/* A bar for the first stage of every group of equal ones. */
function memoryBars(width) {
  const {most, limit} = memoryScale()
  const label = width < 500 ? 62 : 110, groups = list('stage_groups'), height = groups.length * 30 + 24
  const x = bytes => label + (bytes / most) * (width - label - 84)
  return drawing(width, height, 'memory of one rank by group of stages', groups.map((g, i) => {
    let from = 0
    const y = 6 + i * 30
    return [svg('text', {class: 'tick', x: 0, y: y + 15}, g.stages), CLASSES.map(([c, colour]) => {
      const path = `plan.stages.${g.first}.memory.${c}`, bytes = number(path)
      if (!(bytes > 0)) return null
      from += bytes
      return svg('rect', {class: 'has-note f-' + colour, x: x(from - bytes), y, width: Math.max(0.5, x(from) - x(from - bytes)), height: 22,
        note: () => [`${CLASS_NAMES[c] || c} of stage ${g.first}`, mark(path) + SHOW.B(bytes), mark(path) + SHOW.bytes(bytes)]})
    }), svg('text', {class: 'tick', x: x(from) + 6, y: y + 15}, '~' + SHOW.B(from))]
  }), limit && [svg('line', {class: 'limit', x1: x(number('usable_bytes.0')), x2: x(number('usable_bytes.0')), y1: 0, y2: height - 18}),
    svg('text', {class: 'tick', x: x(number('usable_bytes.0')), y: height - 4, 'text-anchor': 'end'}, 'usable ' + SHOW.B(number('usable_bytes.0')))])
}

function memoryTable() {
  const there = CLASSES.filter(([c]) => list('plan.stages').some(s => s.memory[c] > 0))
  const away = ['host', 'nvme'].filter(c => list('plan.stages').some(s => s.memory[c] > 0))
  return table('memory of a rank of every stage', [
    {name: 'stage', number: true, cell: (_, s) => String(s)},
    {name: 'runs', cell: (_, s) => list('stage_runs')[s]},
    {name: 'recompute', cell: stage => stage.recompute},
    ...there.map(([c]) => ({name: CLASS_NAMES[c] || c, number: true, key: stage => stage.memory[c], cell: (stage) => figure(`plan.stages.${stage.index}.memory.${c}`, 'B')})),
    {name: 'together', number: true, key: stage => memoryTotal(stage.index), cell: stage => total(memoryPaths(stage.index), 'B')},
    ...away.map(c => ({name: 'on ' + c, number: true, key: stage => stage.memory[c], cell: stage => figure(`plan.stages.${stage.index}.memory.${c}`, 'B')})),
  ], list('plan.stages').map((stage, index) => ({...stage, index})), 24)
}

function drawMemory() {
  const there = CLASSES.filter(([c]) => list('plan.stages').some(s => s.memory[c] > 0))
  return section('memory', 'Memory of a rank, by stage', legend(there.map(([c, colour]) => [CLASS_NAMES[c] || c, colour])), responsive(memoryStrip),
    folded('Bars of equal stages', responsive(memoryBars)), folded('Every stage in numbers', memoryTable()),
    el('p', {class: 'dim'}, 'Outside of the arena, estimates: ', text('words.outside'), memoryScale().limit ? '. The dashed line is what may be used.' : ['. What may be used, ', figure('usable_bytes.0', 'B'), ', is far above the picture.']))
}
