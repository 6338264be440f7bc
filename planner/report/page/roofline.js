/* SPDX-License-Identifier: Apache-2.0 */
/* Roofline of one stage's steps: operations a byte against operations a second, as the cost model has them. Areas are
 * shares of the stage's time. */

const KERNEL_COLOURS = {
  product: 'blue', attention: 'orange', 'attention gradient': 'vermillion', rows: 'green', 'column sums': 'sky', loss: 'purple', lookup: 'grey', routing: 'yellow',
}

/* Steps that a stage runs in a training step, with calls and time. */
function stepsOf(stage) {
  const s = at('plan.stages.' + stage)
  const out = []
  for (const run of s.layers) {
    const k = list('segments').findIndex(x => x.name === run.segment && x.recompute === s.recompute)
    if (k < 0) continue
    for (const procedure of ['forward', 'backward'])
      list(`segments.${k}.${procedure}`).forEach((step, i) => {
        const path = `segments.${k}.${procedure}.${i}`, calls = run.count * number('plan.microbatches')
        const same = out.find(o => o.path === path)
        if (same) same.calls += calls
        else out.push({path, procedure: `${run.segment} ${procedure}`, ...step, calls})
      })
  }
  for (const o of out) o.time = o.calls * o.cost_s
  return out.filter(o => o.time > 0).sort((a, b) => b.time - a.time)
}

function busiestStage() {
  const t = DATA.timeline
  let most = 0, best = 0
  for (let s = 0; s < t.stages; s++) {
    let time = 0
    for (let k = 0; k < t.chunks; k++) time += t.forward_s[s * t.chunks + k] + t.backward_s[s * t.chunks + k]
    if (time > most * (1 + 1e-9)) (most = time), (best = s)
  }
  return best
}

function rooflinePlot(steps, width) {
  const points = steps.filter(o => o.flop > 0 && o.bytes > 0)
  const height = Math.max(260, Math.min(420, width * 0.6)), peak = number('machine.flop_per_s'), memory = number('machine.memory_bytes_per_s')
  const whole = steps.reduce((sum, o) => sum + o.time, 0)
  const xs = points.map(o => o.flop / o.bytes), ys = points.map(o => o.flop / o.cost_s)
  const lowX = Math.pow(10, Math.floor(Math.log10(Math.min(1, ...xs)))), highX = Math.pow(10, Math.ceil(Math.log10(Math.max((peak / memory) * 4, ...xs))))
  const lowY = Math.pow(10, Math.floor(Math.log10(Math.min(lowX * memory, ...ys)))), highY = Math.pow(10, Math.ceil(Math.log10(Math.max(peak * 1.3, ...ys))))
  const x = logarithmic(lowX, highX, MARGIN.left, width - MARGIN.right), y = logarithmic(lowY, highY, height - MARGIN.bottom, MARGIN.top)
  const ridge = Math.max(lowX, Math.min(highX, peak / memory))
  return drawing(width, height, 'roofline of the steps of a stage',
    axes(width, height, x, y, {x: 'operations a byte of memory traffic', y: 'FLOP/s'}, {x: t => SHOW.number(t), y: t => SHOW.short(t)}),
    svg('path', {class: 'roof', d: `M${x(lowX)} ${y(Math.min(peak, lowX * memory))}L${x(ridge)} ${y(peak)}L${x(highX)} ${y(peak)}`}),
    svg('text', {class: 'tick', x: x(highX) - 86, y: y(peak) - 6, 'text-anchor': 'end'}, 'peak'),
    figureText({class: 'tick', x: x(highX), y: y(peak) - 6, 'text-anchor': 'end'}, 'machine.flop_per_s', 'FLOP/s'),
    points.map(o => svg('circle', {class: 'point has-note f-' + (KERNEL_COLOURS[o.kernel] || 'grey'), cx: x(o.flop / o.bytes), cy: y(o.flop / o.cost_s),
      r: 3 + 22 * Math.sqrt(o.time / whole), note: () => [`${o.op} ${o.name}`, `${o.procedure}, ${o.kernel}`,
        `~${SHOW['FLOP/s'](o.flop / o.cost_s)} at ${SHOW.number(Number((o.flop / o.bytes).toPrecision(3)))} operations a byte`,
        `~${seconds(o.cost_s)} a call, ${o.calls} calls, ~${SHOW.share(o.time / whole)} of the stage's time`]})))
}

function stepTable(steps) {
  const whole = steps.reduce((sum, o) => sum + o.time, 0)
  return table('steps of the stage', [
    {name: 'step', key: o => o.op + o.name, cell: o => `${o.op} ${o.name}`},
    {name: 'in', key: o => o.procedure, cell: o => o.procedure},
    {name: 'kernel', key: o => o.kernel, cell: o => o.kernel},
    {name: 'calls', number: true, key: o => o.calls, cell: o => String(o.calls)},
    {name: 'a call', number: true, key: o => o.cost_s, cell: o => figure(o.path + '.cost_s', 's')},
    {name: 'share of the stage', number: true, key: o => o.time, cell: o => '~' + SHOW.share(o.time / whole)},
    {name: 'operations', number: true, key: o => o.flop, cell: o => (o.flop > 0 ? figure(o.path + '.flop', 'FLOP') : '-')},
    {name: 'bytes', number: true, key: o => o.bytes, cell: o => (o.bytes > 0 ? figure(o.path + '.bytes', 'B') : '-')},
  ], steps, 16)
}

function drawRoofline() {
  const groups = list('stage_groups'), busiest = busiestStage()
  const box = el('div')
  const show = stage => {
    const steps = stepsOf(stage), kinds = [...new Set(steps.filter(o => o.flop > 0 && o.bytes > 0).map(o => o.kernel))]
    box.replaceChildren(legend(kinds.map(k => [k, KERNEL_COLOURS[k] || 'grey'])), responsive(width => rooflinePlot(steps, width)),
      folded('Steps, the longest first', stepTable(steps)))
  }
  const choice = el('select', {onchange: e => show(Number(e.target.value))}, groups.map(g => el('option', {value: g.first,
    selected: busiest >= g.first && busiest <= g.last && (busiest - g.first) % g.step === 0}, 'stage ' + g.stages)))
  show(busiest)
  return section('roofline', 'Roofline of the kernels', groups.length > 1 && el('p', {}, el('label', {}, 'steps of ', choice)), box,
    el('p', {class: 'dim'}, DATA.plan.kernels ? 'Operations and bytes are those of the kernels of zplan’s own trainer; times are estimates, collectives are left out.'
      : 'Operations and bytes are what the operations need; times are estimates, collectives are left out.'))
}
