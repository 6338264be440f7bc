/* SPDX-License-Identifier: Apache-2.0 */
/* A run's log: measured against predicted. */

function runPlot(column, name, show, predicted, width) {
  const steps = list('run.steps'), height = 220
  const values = steps.map(s => s[column]).concat(isNaN(predicted) ? [] : [predicted])
  const [lowY, highY] = extent(values, 0.08), [lowX, highX] = extent(steps.map(s => s[0]), 0)
  const x = linear(lowX, highX, MARGIN.left, width - MARGIN.right), y = linear(lowY, highY, height - MARGIN.bottom, MARGIN.top)
  if (column === 2) y.unit = unitOfSeconds(highY / 1e3)[1] * 1e3
  const every = Math.max(1, Math.ceil(steps.length / 120))
  return drawing(width, height, name + ' by step', axes(width, height, x, y, {x: 'step', y: name}, {x: t => SHOW.count(t), y: show}),
    !isNaN(predicted) && [svg('line', {class: 'limit', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(predicted), y2: y(predicted)}),
      svg('text', {class: 'tick', x: width - MARGIN.right, y: y(predicted) - 5, 'text-anchor': 'end'}, 'predicted ~' + show(predicted))],
    svg('path', {class: 'curve', d: curve(steps.map(s => [s[0], s[column]]), x, y)}),
    steps.filter((s, i) => i % every === 0 && typeof s[column] === 'number').map(s => svg('circle', {class: 'dot has-note', cx: x(s[0]), cy: y(s[column]), r: 6,
      note: () => ['step ' + s[0], `${name} ${show(s[column])}`]})))
}

const plotOf = (column, name, show, predicted = NaN) => {
  if (!list('run.steps').some(s => typeof s[column] === 'number')) return el('p', {class: 'dim'}, `${name}: ${NOT_MEASURED}`)
  return el('figure', {}, el('figcaption', {}, name), responsive(width => runPlot(column, name, show, predicted, width)))
}

function ratio(path, over) {
  const x = number(path) / number(over)
  return isFinite(x) ? el('data', {value: String(x), 'data-path': path, 'data-over': over, 'data-kind': 'ratio'}, x.toFixed(3)) : ''
}

function measuredTable() {
  const rows = [
    [['step time, median of ', figure('run.measured_steps', 'count'), ' steps'], 'plan.estimate.step_s', 'run.median_step_s', 's'],
    ['arena of the fullest rank', 'run.planned_arena_bytes', 'run.arena_bytes', 'bytes'],
    [DATA.machine.cpu ? 'resident memory of the fullest rank' : 'memory taken on the fullest device', 'plan.estimate.peak_bytes', 'run.device_bytes', 'bytes'],
  ]
  return table('predicted and measured', [
    {name: '', cell: r => r[0]},
    {name: 'predicted', number: true, cell: r => figure(r[1], r[3])},
    {name: 'measured', number: true, cell: r => (isNaN(number(r[2])) ? NOT_MEASURED : figure(r[2], r[3]))},
    {name: 'measured / predicted', number: true, cell: r => ratio(r[2], r[1])},
  ], rows)
}

function drawRun() {
  if (!DATA.run) return null
  if (!list('run.steps').length) return section('run', 'Predicted and measured', el('p', {}, 'The log has no training steps.'))
  const plan = text('run.plan')
  return section('run', 'Predicted and measured',
    plan && plan !== text('plan.plan_hash') && el('p', {class: 'warning'}, `The log is of plan ${plan}, this page of plan ${text('plan.plan_hash')}: what is measured is not what is predicted.`),
    number('run.unread_lines') > 0 && el('p', {class: 'warning'}, figure('run.unread_lines', 'count'), ' lines of the log cannot be read; they are left out.'),
    measuredTable(), number('run.every') > 1 && el('p', {class: 'dim'}, 'Curves show every ', figure('run.every', 'count'), '. step.'),
    el('div', {class: 'three'}, plotOf(1, 'loss', x => String(Number(x.toPrecision(4)))),
      plotOf(2, 'step time', x => seconds(x / 1e3), 1e3 * number('plan.estimate.step_s')), plotOf(3, 'tokens/s', x => SHOW.count(Number(x.toPrecision(4))), number('plan.estimate.tokens_per_s'))))
}
