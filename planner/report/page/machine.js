/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: one node enlarged, then every device of every node in the colour of its stage. Ranks fill the nodes in
 * order; tensor ranks are neighbours, then data and pipeline ranks as rank_order says. */

/* Where a rank stands among its groups. */
function rankPlace(rank) {
  const {tensor, pipeline, data} = DATA.plan.degrees
  const t = rank % tensor
  const rest = Math.floor(rank / tensor)
  if (DATA.plan.rank_order === 'tpd') return {tensor: t, stage: rest % pipeline, data: Math.floor(rest / pipeline)}
  return {tensor: t, data: rest % data, stage: Math.floor(rest / data)}
}

/* {device, rank or -1, x, y} of all devices, boxes of nodes, in so many units of width. */
function layoutDevices(width) {
  const groups = list('machine.nodes')
  const devices = groups.reduce((n, g) => n + g.devices, 0)
  const size = devices <= 64 ? 22 : devices <= 512 ? 13 : devices <= 2048 ? 9 : devices <= 8192 ? 6 : 4
  const gap = size > 8 ? 2 : 1
  const out = {devices: [], nodes: [], size, height: 0}
  let x = 0, y = 0, rowHeight = 0, index = 0
  for (const group of groups)
    for (let left = group.devices; left > 0; left -= group.devices_per_node) {
      const here = Math.min(left, group.devices_per_node)
      const across = Math.min(here, group.devices_per_node > 8 ? 8 : group.devices_per_node > 4 ? 4 : group.devices_per_node)
      const columns = Math.max(1, Math.min(across, Math.floor((width - 8) / (size + gap))))
      const w = columns * (size + gap) + 6, h = Math.ceil(here / columns) * (size + gap) + 6
      if (x + w > width && x > 0) {
        x = 0
        y += rowHeight + 5
        rowHeight = 0
      }
      out.nodes.push({x, y, w, h})
      for (let d = 0; d < here; d++, index++)
        out.devices.push({index, node: out.nodes.length - 1, x: x + 4 + (d % columns) * (size + gap), y: y + 4 + Math.floor(d / columns) * (size + gap)})
      x += w + 5
      rowHeight = Math.max(rowHeight, h)
    }
  out.height = y + rowHeight + 2
  return out
}

/* Stages from first to last: blue to yellow, ever lighter, which all kinds of eyes can order. */
const RAMP = [[27, 63, 122], [74, 93, 128], [118, 121, 127], [164, 154, 120], [209, 189, 98], [254, 232, 56]]
function stageColour(stage, stages) {
  const k = (stages > 1 ? stage / (stages - 1) : 0.2) * (RAMP.length - 1)
  const i = Math.min(RAMP.length - 2, Math.floor(k))
  return `rgb(${RAMP[i].map((c, n) => Math.round(c + (RAMP[i + 1][n] - c) * (k - i))).join(' ')})`
}

function deviceNote(device) {
  if (device.index >= DATA.machine.ranks) return [`device ${device.index}, node ${device.node}`, 'idle: the plan leaves it out']
  const p = rankPlace(device.index)
  return [`rank ${device.index} on node ${device.node}`, `stage ${p.stage} of ${DATA.plan.degrees.pipeline}: ${list('stage_runs')[p.stage]}`,
    `tensor rank ${p.tensor} of ${DATA.plan.degrees.tensor}, data rank ${p.data} of ${DATA.plan.degrees.data}`,
    'outlined: its tensor group (thick), its data group (thin), its neighbours in the pipeline (dashed)']
}

/* What rank b is to rank a. */
function relation(a, b) {
  const p = rankPlace(a), q = rankPlace(b)
  if (p.stage === q.stage && p.data === q.data) return 'tensor-group'
  if (p.stage === q.stage && p.tensor === q.tensor) return 'data-group'
  if (p.tensor === q.tensor && p.data === q.data && Math.abs(p.stage - q.stage) === 1) return 'pipeline-group'
  return null
}

function drawDevices(width) {
  const layout = layoutDevices(width)
  const {ranks} = DATA.machine, stages = DATA.plan.degrees.pipeline
  const paths = new Map()
  const square = d => `M${d.x} ${d.y}h${layout.size}v${layout.size}h-${layout.size}z`
  for (const d of layout.devices) {
    const stage = d.index < ranks ? rankPlace(d.index).stage : -1
    paths.set(stage, (paths.get(stage) || '') + square(d))
  }
  const outlines = svg('g')
  const picture = svg('svg', {class: 'tiles', viewBox: `0 0 ${width} ${layout.height}`, role: 'img', tabindex: 0,
    'aria-label': 'all devices of the machine, coloured by pipeline stage; arrow keys go from device to device'},
    layout.nodes.map(n => svg('rect', {class: 'node', x: n.x + 0.5, y: n.y + 0.5, width: n.w, height: n.h, rx: 3})),
    [...paths].map(([stage, d]) => (stage < 0 ? svg('path', {class: 'idle', d}) : svg('path', {d, fill: stageColour(stage, stages)}))), outlines)
  if (layout.size >= 20 && stages > 1)
    for (const d of layout.devices)
      if (d.index < ranks)
        picture.append(svg('text', {class: rankPlace(d.index).stage / (stages - 1) > 0.5 ? 'in dark-on' : 'in', x: d.x + layout.size / 2, y: d.y + layout.size / 2 + 4, 'text-anchor': 'middle'},
          rankPlace(d.index).stage))
  let on = -1
  const mark = (device, x, y) => {
    on = device.index
    const shown = device.index < ranks ? layout.devices.filter(d => d.index < ranks && (d.index === on || relation(on, d.index))) : [device]
    outlines.replaceChildren(...shown.map(d => svg('path', {class: 'outline ' + (d.index === on ? 'self' : relation(on, d.index)), d: square(d)})))
    showNote(deviceNote(device), x, y)
  }
  const leave = () => {
    outlines.replaceChildren()
    hideNote()
  }
  picture.addEventListener('pointermove', e => {
    const box = picture.getBoundingClientRect()
    const x = ((e.clientX - box.left) / box.width) * width, y = ((e.clientY - box.top) / box.height) * layout.height
    const device = layout.devices.find(d => x >= d.x - 1 && x <= d.x + layout.size + 1 && y >= d.y - 1 && y <= d.y + layout.size + 1)
    device ? mark(device, e.clientX, e.clientY) : leave()
  })
  picture.addEventListener('pointerleave', leave)
  picture.addEventListener('blur', leave)
  picture.addEventListener('keydown', e => {
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8}[e.key]
    if (!step) return
    e.preventDefault()
    const device = layout.devices[Math.max(0, Math.min(layout.devices.length - 1, on + step))]
    const box = picture.getBoundingClientRect()
    mark(device, box.left + (device.x / width) * box.width, box.top + ((device.y + layout.size) / layout.height) * box.height)
  })
  return picture
}

/* One node of a type: devices on their link, cards to the network. */
function drawNode(path, width) {
  const node = at(path)
  const n = node.devices_per_node, shown = Math.min(n, 16)
  const across = Math.min(shown, Math.max(4, Math.min(8, Math.floor((width - 20) / 34)))), rows = Math.ceil(shown / across)
  const step = Math.min(56, (width - 20) / across), base = 34 + rows * 34
  const parts = [svg('rect', {class: 'node', x: 1, y: 1, width: width - 2, height: base + (node.nic ? 66 : 34), rx: 6}),
    svg('text', {class: 'name', x: 10, y: 18}, `${node.name || 'node'}: ${n} × ${node.device}`)]
  for (let d = 0; d < shown; d++)
    parts.push(svg('rect', {class: 'device', x: 10 + (d % across) * step, y: 28 + Math.floor(d / across) * 34, width: step - 8, height: 22, rx: 3}))
  if (n > shown) parts.push(svg('text', {class: 'tick', x: width - 10, y: 18, 'text-anchor': 'end'}, `${shown} of them drawn`))
  parts.push(svg('line', {class: 'bus', x1: 10, x2: width - 12, y1: base + 4, y2: base + 4}))
  for (let d = 0; d < across; d++) parts.push(svg('line', {class: 'wire', x1: 10 + d * step + (step - 8) / 2, x2: 10 + d * step + (step - 8) / 2, y1: base - 12, y2: base + 4}))
  if (node.link)
    parts.push(svg('text', {class: 'tick', x: 10, y: base + 22}, node.link.kind),
      figureText({class: 'tick', x: width - 12, y: base + 22, 'text-anchor': 'end'}, path + '.link.bytes_per_s', 'B/s'))
  if (node.nic)
    parts.push(svg('line', {class: 'wire', x1: width / 2, x2: width / 2, y1: base + 4, y2: base + 40}),
      svg('text', {class: 'tick', x: 10, y: base + 54}, `${node.nics} × ${node.nic.kind}, each`),
      figureText({class: 'tick', x: width - 12, y: base + 54, 'text-anchor': 'end'}, path + '.nic.bytes_per_s', 'B/s'))
  return svg('svg', {viewBox: `0 0 ${width} ${base + (node.nic ? 68 : 36)}`, role: 'img', 'aria-label': `one node of type ${node.name}`}, parts)
}

const WHAT_GROUPS_DO = {
  tensor: 'sum activations of every layer',
  data: 'sum gradients, share state',
  expert: 'exchange tokens of experts',
  context: 'exchange heads, or keys and values, of attention',
  pipeline: 'send activations to the next stage',
}

function groupTable() {
  const rows = list('machine.groups').map((g, i) => ({g, path: 'machine.groups.' + i}))
  if (!rows.length) return el('p', {}, 'One rank: there is nothing to communicate.')
  return table('groups of ranks that communicate', [
    {name: 'group', cell: r => r.g.axis},
    {name: 'ranks', number: true, cell: r => figure(r.path + '.ranks', 'count')},
    {name: 'on nodes', number: true, cell: r => figure(r.path + '.nodes', 'count')},
    {name: 'bandwidth of its slowest link', number: true, cell: r => figure(r.path + '.bytes_per_s', 'B/s')},
    {name: 'latency', number: true, cell: r => figure(r.path + '.latency_s', 's')},
    {name: 'what for', cell: r => WHAT_GROUPS_DO[r.g.axis]},
  ], rows)
}

function drawMachine() {
  const stages = DATA.plan.degrees.pipeline
  const ramp = stages > 1 && el('p', {class: 'legend'}, 'stage 0 ', responsive(width => svg('svg', {viewBox: `0 0 ${width} 12`, role: 'img', 'aria-label': 'colours of the stages'},
    Array.from({length: Math.min(stages, 64)}, (_, i, n = Math.min(stages, 64)) =>
      svg('rect', {x: (i * width) / n, y: 0, width: width / n + 0.5, height: 12, fill: stageColour(Math.round((i * (stages - 1)) / Math.max(1, n - 1)), stages)})))), ` stage ${stages - 1}`)
  return section('machine', 'Machine', el('div', {class: 'two'},
    el('div', {}, list('machine.nodes').map((_, i) => responsive(width => drawNode('machine.nodes.' + i, Math.min(width, 420))))),
    el('div', {}, el('p', {class: 'dim'}, figure('machine.ranks', 'count'), ' of ', figure('machine.devices', 'count'),
      ' devices work; a box is a node. Point at a device to see its groups.'), ramp, responsive(drawDevices))),
    groupTable())
}
