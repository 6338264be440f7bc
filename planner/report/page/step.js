/* SPDX-License-Identifier: Apache-2.0 */
/* Where the step's time goes: a waterfall whose terms sum to the step. */

const TERMS = [
  ['compute_s', 'compute', 'blue'],
  ['bubble_s', 'pipeline bubble', 'grey'],
  ['tensor_comm_s', 'tensor communication', 'orange'],
  ['expert_comm_s', 'expert communication', 'yellow'],
  ['context_comm_s', 'context communication', 'yellow'],
  ['pipeline_comm_s', 'pipeline communication', 'sky'],
  ['data_comm_s', 'data communication', 'purple'],
  ['optimizer_s', 'optimizer', 'green'],
  ['offload_s', 'offload', 'vermillion'],
]

function waterfall(width) {
  const step = number('plan.estimate.step_s'), high = number('plan.estimate.step_s_high'), most = Math.max(step, isNaN(high) ? 0 : high)
  const narrow = width < 560, label = narrow ? 0 : 176, room = 128, line = narrow ? 40 : 28
  const terms = TERMS.filter(([key]) => number('plan.estimate.' + key) > 0)
  const x = s => label + (s / most) * (width - label - room)
  let from = 0
  const rows = terms.map(([key, name, colour], i) => {
    const path = 'plan.estimate.' + key, s = number(path), y = i * line + (narrow ? 16 : 4), begin = from
    from += s
    return [svg('text', {class: 'name', x: 0, y: narrow ? y - 3 : y + 15}, name),
      svg('line', {class: 'wire', x1: x(from), x2: x(from), y1: y, y2: y + line + 18}),
      svg('rect', {class: 'has-note f-' + colour, x: x(begin), y, width: Math.max(1, x(from) - x(begin)), height: 20,
        note: () => [name, '~' + seconds(s), '~' + SHOW.share(s / step) + ' of the step']}),
      figureText({class: 'tick', x: x(from) + 6, y: y + 15}, path, 's'),
      svg('text', {class: 'tick', x: width, y: y + 15, 'text-anchor': 'end', 'data-value': String(s / step), 'data-path': path, 'data-over': 'plan.estimate.step_s', 'data-kind': 'share'},
        mark(path) + SHOW.share(s / step))]
  })
  const y = terms.length * line + (narrow ? 16 : 4)
  rows.push(svg('text', {class: 'name strong', x: 0, y: narrow ? y - 3 : y + 15}, 'step'), svg('rect', {class: 'f-fg', x: x(0), y, width: x(step) - x(0), height: 20}),
    figureText({class: 'tick strong', x: x(most) + 6, y: y + 15}, 'plan.estimate.step_s', 's'))
  if (!isNaN(high))
    rows.push(svg('line', {class: 'range has-note', x1: x(number('plan.estimate.step_s_low')), x2: x(high), y1: y + 10, y2: y + 10,
      note: () => ['range by measured runs', `~${seconds(number('plan.estimate.step_s_low'))} to ~${seconds(high)}`]}))
  return drawing(width, y + 28, 'terms of the step time', rows)
}

function drawStep() {
  return section('step', 'Where the step goes', responsive(waterfall),
    el('p', {class: 'dim'}, 'Estimates on the critical path; they sum to the step.'))
}
