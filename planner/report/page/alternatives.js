/* SPDX-License-Identifier: Apache-2.0 */
/* Other plans: those that the search kept, those of --front; which of them no other beats; what was rejected. */

/* {name, words, path, time, memory, devices, price} of every plan that is known. */
function knownPlans() {
  const price = number('machine.device_hour_dollars')
  const own = (path, name, plan) => {
    const d = plan.degrees, ranks = d.tensor * d.pipeline * d.data + (plan.idle || 0)
    return {name, words: decisionWords(plan), path: path + '.estimate', devices: ranks, time: number(path + '.estimate.step_s'), memory: number(path + '.estimate.peak_bytes'),
      hours: (number(path + '.estimate.step_s') / 3600) * ranks, dollars: ((number(path + '.estimate.step_s') / 3600) * ranks) * price}
  }
  const out = [own('plan', 'this plan', DATA.plan)]
  if (at('plan.fastest.degrees')) out.push(own('plan.fastest', 'the fastest', DATA.plan.fastest))
  list('plan.alternatives').forEach((a, i) => a && a.degrees && a.estimate && out.push(own('plan.alternatives.' + i, 'alternative', a)))
  list('front').forEach((p, i) => out.push({name: 'front', words: decisionWords({...p.plan, idle: p.idle}), path: 'front.' + i, devices: p.devices, time: p.step_s,
    memory: p.peak_bytes, hours: p.step_device_hours, dollars: p.step_dollars}))
  return out.filter(p => p.time > 0 && p.memory > 0)
}

const AGAINST = {
  memory: ['peak memory of a device', p => p.memory, x => SHOW.B(x)],
  devices: ['devices', p => p.devices, x => SHOW.count(Number(x.toPrecision(4)))],
  hours: ['device hours of a step', p => p.hours, x => SHOW.number(Number(x.toPrecision(4)))],
  dollars: ['price of a step', p => p.dollars, x => '$' + SHOW.number(Number(x.toPrecision(3)))],
}

/* Plans that no other beats in time and in what is chosen. */
function front(plans, of) {
  let best = Infinity
  return [...plans].sort((a, b) => a.time - b.time || of(a) - of(b)).filter(p => of(p) < best && ((best = of(p)), true))
}

function scatter(plans, key, width) {
  const [name, of, show] = AGAINST[key], height = Math.max(260, Math.min(400, width * 0.55))
  const [lowX, highX] = extent(plans.map(of), 0.08), [lowY, highY] = extent(plans.map(p => p.time), 0.08)
  const x = linear(Math.max(0, lowX), highX, MARGIN.left, width - MARGIN.right), y = linear(Math.max(0, lowY), highY, height - MARGIN.bottom, MARGIN.top)
  y.unit = unitOfSeconds(highY)[1]
  const best = front(plans, of)
  const line = best.map((p, i) => (i ? `V${y(p.time)}H${x(of(p))}` : `M${x(of(p))} ${y(p.time)}`)).join('')
  return drawing(width, height, `step time against ${name} of ${plans.length} plans`, axes(width, height, x, y, {x: name, y: 'step time, estimated'}, {x: show, y: seconds}),
    svg('path', {class: 'front', d: line}), plans.map(p => svg('g', {class: 'has-note',
      note: () => [p.name + (best.includes(p) ? ', on the front' : ''), p.words, `step ~${seconds(p.time)}, peak ${SHOW.B(p.memory)}, ${p.devices} devices`]},
    p.name === 'this plan' ? svg('path', {class: 'star', d: starAt(x(of(p)), y(p.time), 10)})
      : svg('circle', {class: 'point ' + (best.includes(p) ? 'f-blue' : 'f-grey'), cx: x(of(p)), cy: y(p.time), r: 5}))))
}

function starAt(x, y, r) {
  const corner = i => {
    const a = (Math.PI / 5) * i - Math.PI / 2, q = i % 2 ? r * 0.45 : r
    return `${(x + q * Math.cos(a)).toFixed(1)} ${(y + q * Math.sin(a)).toFixed(1)}`
  }
  return 'M' + Array.from({length: 10}, (_, i) => corner(i)).join('L') + 'z'
}

function planTable(plans) {
  const step = number('plan.estimate.step_s')
  return table('plans', [
    {name: '', key: p => p.name, cell: p => p.name},
    {name: 'decisions', key: p => p.words, cell: p => el('span', {class: 'wrap'}, p.words)},
    {name: 'step', number: true, key: p => p.time, cell: p => figure(p.path + '.step_s', 's')},
    {name: 'against this plan', number: true, key: p => p.time, cell: p => (p.time >= step ? '+' : '−') + SHOW.share(Math.abs(p.time / step - 1))},
    {name: 'peak memory', number: true, key: p => p.memory, cell: p => figure(p.path + '.peak_bytes', 'B')},
    {name: 'devices', number: true, key: p => p.devices, cell: p => String(p.devices)},
    {name: 'tokens/s', number: true, key: p => -p.time, cell: p => figure(p.path + '.tokens_per_s', 'count')},
  ], plans, 30)
}

function drawAlternatives() {
  const plans = knownPlans(), box = el('div')
  const keys = Object.keys(AGAINST).filter(key => plans.every(p => AGAINST[key][1](p) > 0))
  const show = key => box.replaceChildren(responsive(width => scatter(plans, key, width)))
  const bar = el('div', {class: 'bar', role: 'group', 'aria-label': 'step time against'}, keys.map((key, i) =>
    el('button', {'aria-pressed': String(i === 0), onclick: e => {
      bar.querySelectorAll('button').forEach(b => b.setAttribute('aria-pressed', String(b === e.target)))
      show(key)
    }}, AGAINST[key][0])))
  if (plans.length > 1) show('memory')
  else box.replaceChildren(el('p', {}, 'No other plan is known: the search kept none.'))
  return section('alternatives', 'Alternatives', plans.length > 1 && bar, box,
    el('p', {class: 'legend'}, '★ this plan; blue: on the front, no other is better in both; grey: another is better in both.',
      !DATA.front && ' For the whole front: zplan FILE.dz --pareto --json > front.json, then --front front.json.'), planTable(plans))
}

function drawRejected() {
  if (!(number('plan.certificate.candidates') > 0))
    return section('rejected', 'What was rejected', el('p', {}, 'This plan was read from a file; no search has been run.'))
  const rows = list('rejections').filter(r => number('plan.rejected.' + r.key) > 0).sort((a, b) => number('plan.rejected.' + b.key) - number('plan.rejected.' + a.key))
  const most = rows.length ? number('plan.rejected.' + rows[0].key) : 1
  const bar = r => style(el('i', {class: 'meter'}), 'width', (100 * number('plan.rejected.' + r.key)) / most + '%')
  return section('rejected', 'What was rejected, and why', el('p', {}, proofWords()), table('rejected candidates', [
    {name: 'candidates', number: true, key: r => number('plan.rejected.' + r.key), cell: r => figure('plan.rejected.' + r.key, 'count')},
    {name: '', cell: r => el('span', {class: 'meter-box'}, bar(r))},
    {name: 'because', cell: r => el('span', {class: 'wrap'}, r.text)},
  ], rows))
}
