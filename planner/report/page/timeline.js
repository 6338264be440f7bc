/* SPDX-License-Identifier: Apache-2.0 */
/* The step to scale: a row a stage, on a canvas because there may be hundreds of thousands of actions. The window
 * `from` to `to` is dragged, zoomed with buttons, keys, Ctrl and the wheel or two fingers; the strip above is the whole
 * step. */

const KINDS = [
  ['forward', 'blue'],
  ['backward', 'orange'],
  ['gradients of inputs', 'orange'],
  ['gradients of weights', 'green'],
]
const END_PARTS = [
  ['reduce_s', 'sum of gradients', 'purple'],
  ['optimizer_s', 'optimizer', 'vermillion'],
  ['offload_s', 'update on the host', 'yellow'],
  ['gather_s', 'gather of weights', 'sky'],
]

/* What follows the micro-batches: [{begin, end, name, colour}] of every stage, and when all is over. */
function stepEnds(played) {
  const t = DATA.timeline
  const met = Math.max(...played.end_s.map((end, s) => end + t.reduce_s[s]))
  let over = met
  const ends = played.end_s.map((end, s) => {
    const parts = []
    let now = end
    END_PARTS.forEach(([key, name, colour], i) => {
      const begin = i === 0 ? end : i === 1 ? met : now
      now = begin + t[key][s]
      if (t[key][s] > 0) parts.push({begin, end: now, name, colour})
    })
    over = Math.max(over, now)
    return parts
  })
  return {ends, met, over}
}

/* Colours of the theme, as a canvas wants them. */
function themeColours() {
  const probe = el('i', {hidden: true})
  document.body.append(probe)
  const out = {}
  for (const name of ['blue', 'sky', 'green', 'orange', 'yellow', 'vermillion', 'purple', 'grey', 'fg', 'dim', 'line', 'panel']) {
    probe.className = 'k-' + name
    out[name] = getComputedStyle(probe).color
  }
  probe.remove()
  return out
}

function lastBefore(stage, time) {
  let low = 0, high = stage.n
  while (low < high) {
    const middle = (low + high) >> 1
    if (stage.end[middle] <= time) low = middle + 1
    else high = middle
  }
  return low
}

/* Where a stage has begun when all have: fill; where the first one has nothing left: drain. */
function phases(played, over) {
  const fill = Math.max(...played.stages.map(s => (s.n ? s.begin[0] : 0)))
  const drain = Math.min(...played.end_s)
  const end = Math.max(...played.end_s)
  return {fill, drain: Math.max(drain, fill), end, over}
}

function actionName(stage, k, chunks) {
  const kind = stage.act[k] === FORWARD ? 'forward' : KINDS[stage.act[k]][0]
  return `${kind} of micro-batch ${stage.microbatch[k]}` + (chunks > 1 ? `, chunk ${stage.chunk[k]}` : '')
}

function waitedFor(played, s, k) {
  const t = DATA.timeline, stage = played.stages[s]
  const before = k ? stage.end[k - 1] : 0, waited = stage.begin[k] - before
  const place = t.place[s * t.chunks + stage.chunk[k]], forward = stage.act[k] === FORWARD
  if (stage.cause[k] === AT_START) return 'begins with the step'
  if (stage.cause[k] === OWN_STAGE) return 'begins after the action before it on this stage; its input was there'
  const other = forward ? place - 1 : place + 1
  if (stage.cause[k] === INPUT)
    return `waits ~${seconds(waited)} for ${forward ? 'activations' : 'gradients'} of micro-batch ${stage.microbatch[k]} from stage ${played.stageOf[other]}` +
      (t.chunks > 1 ? `, chunk ${played.slotOf[other] % t.chunks}` : '')
  return `waits ~${seconds(waited)} for a free message buffer to stage ${played.stageOf[forward ? place + 1 : place - 1]}`
}

/* Moves of the list that go with an action of the stage. */
function movesAlongside(s, act) {
  const group = list('moves').find(g => s >= g.first && s <= g.last && (s - g.first) % g.step === 0)
  const letters = act === FORWARD ? 'F' : act === BACKWARD ? 'B' : act === INPUTS ? 'IB' : 'WB'
  const lines = (group ? group.records : []).filter(r => r.act && letters.includes(r.act)).map(r => `${r.by}: ${r.what}, ${r.way} ${r.ends}, ${r.size}, on ${r.queue}`)
  const unique = [...new Set(lines)]
  return unique.length > 6 ? [...unique.slice(0, 6), `and ${unique.length - 6} more, below under Communication`] : unique
}

function actionNote(played, s, k) {
  const t = DATA.timeline, stage = played.stages[s], moves = movesAlongside(s, stage.act[k])
  return [`stage ${s}: ${actionName(stage, k, t.chunks)}`,
    `~${seconds(stage.end[k] - stage.begin[k])}, from ~${moment(stage.begin[k])} to ~${moment(stage.end[k])}`, waitedFor(played, s, k),
    moves.length ? 'moves alongside:' : 'nothing moves alongside', ...moves]
}

function drawTimelineCanvas(played) {
  const t = DATA.timeline, {ends, over} = stepEnds(played), phase = phases(played, over)
  const label = 44, stages = played.stages
  const canvas = el('canvas', {tabindex: 0, role: 'img',
    'aria-label': 'timeline of the step, a row a stage; plus and minus zoom, left and right move, up and down choose a stage, comma and full stop an action'})
  const overview = el('canvas', {class: 'overview', 'aria-hidden': 'true'})
  let from = 0, to = over, colours = null, width = 0, row = 0, height = 0, chosen = null

  const x = time => label + ((time - from) / (to - from)) * (width - label)
  const timeAt = px => from + ((px - label) / (width - label)) * (to - from)

  function size() {
    const box = canvas.parentElement.clientWidth, scale = window.devicePixelRatio || 1
    if (!box) return false
    width = box
    row = Math.max(2, Math.min(22, Math.floor(460 / stages.length)))
    height = row * stages.length + 26
    for (const [c, h] of [[canvas, height], [overview, 34]]) {
      c.width = Math.round(width * scale)
      c.height = Math.round(h * scale)
      style(c, 'width', width + 'px')
      style(c, 'height', h + 'px')
      c.getContext('2d').setTransform(scale, 0, 0, scale, 0, 0)
    }
    return true
  }

  const colourOf = act => colours[KINDS[act][1]]

  /* Shares of columns where actions are narrower than they can be seen. */
  function dense(g, stage, y, h, first, x0, x1) {
    const columns = Math.max(1, Math.ceil(x1 - x0)), shares = KINDS.map(() => new Float32Array(columns)), scale = (x1 - x0) / (to - from)
    for (let k = first; k < stage.n && stage.begin[k] < to; k++) {
      const a = Math.max((stage.begin[k] - from) * scale, 0), b = Math.min((stage.end[k] - from) * scale, columns), of = shares[stage.act[k]]
      for (let c = Math.floor(a); c < b; c++) of[c] += Math.min(b, c + 1) - Math.max(a, c)
    }
    for (let c = 0; c < columns; c++) {
      let top = y
      for (let act = 0; act < KINDS.length; act++) {
        const part = shares[act][c] * h
        if (part <= 0) continue
        g.fillStyle = colourOf(act)
        g.fillRect(x0 + c, top, 1, part)
        top += part
      }
    }
  }

  function drawStage(g, s) {
    const stage = stages[s], y = s * row, h = Math.max(1, row - (row > 4 ? 1 : 0))
    const first = lastBefore(stage, from), last = lastBefore(stage, to)
    const x0 = label, x1 = width
    if ((last - first) * 1.5 > x1 - x0) return dense(g, stage, y, h, first, x0, x1), drawEnds(g, s, y, h)
    for (let k = first; k < stage.n && stage.begin[k] < to; k++) {
      const a = Math.max(x(stage.begin[k]), x0), b = Math.min(x(stage.end[k]), x1), w = b - a
      g.fillStyle = colourOf(stage.act[k])
      g.globalAlpha = stage.chunk[k] % 2 ? 0.72 : 1
      g.fillRect(a, y, Math.max(0.6, w - (w > 3 ? 0.8 : 0)), h)
      g.globalAlpha = 1
      if (row >= 13 && w > 8 + 6 * String(stage.microbatch[k]).length) {
        g.fillStyle = stage.act[k] === FORWARD ? colours.on : colours.onLight
        g.fillText(stage.microbatch[k], a + 3, y + h / 2 + 4)
      }
    }
    drawEnds(g, s, y, h)
  }

  function drawEnds(g, s, y, h) {
    for (const part of ends[s]) {
      if (part.end < from || part.begin > to) continue
      const a = Math.max(label, x(part.begin))
      g.fillStyle = colours[part.colour]
      g.fillRect(a, y, Math.max(0.6, Math.min(width, x(part.end)) - a), h)
    }
  }

  function drawAxis(g) {
    const bottom = row * stages.length, [, unit, name] = unitOfSeconds(to), scale = linear(from / unit, to / unit, label, width)
    g.fillStyle = colours.dim
    for (const time of scale.ticks(Math.max(2, Math.floor(width / 110)))) {
      const words = `${Number(time.toPrecision(6))} ${name}`, w = g.measureText(words).width
      g.fillRect(scale(time), bottom, 1, 4)
      g.fillText(words, Math.max(0, Math.min(width - w, scale(time) - w / 2)), bottom + 17)
    }
    const every = Math.max(1, Math.ceil(14 / row))
    for (let s = 0; s < stages.length; s += every) g.fillText(s, 2, Math.max(10, s * row + Math.min(row, 14) - 2))
    g.strokeStyle = colours.fg
    g.setLineDash([4, 3])
    for (const time of [phase.fill, phase.drain])
      if (time > from && time < to && stages.length > 1) {
        g.beginPath()
        g.moveTo(x(time), 0)
        g.lineTo(x(time), bottom)
        g.stroke()
      }
    g.setLineDash([])
    if (!chosen) return
    const stage = stages[chosen.s]
    g.lineWidth = 2
    g.strokeRect(x(stage.begin[chosen.k]), chosen.s * row, Math.max(2, x(stage.end[chosen.k]) - x(stage.begin[chosen.k])), Math.max(2, row - 1))
    g.lineWidth = 1
  }

  let whole = null /* the overview without its window */
  function drawOverview() {
    const g = overview.getContext('2d'), save = [from, to, row]
    g.clearRect(0, 0, width, 34)
    g.font = '11px system-ui, sans-serif'
    ;[from, to] = [0, over]
    const rows = Math.min(stages.length, 26)
    for (let i = 0; i < rows; i++) {
      const s = Math.floor((i * stages.length) / rows), stage = stages[s]
      dense(g, stage, (i * 26) / rows, 26 / rows, 0, label, width)
      drawEnds(g, s, (i * 26) / rows, 26 / rows)
    }
    whole = g.getImageData(0, 0, overview.width, overview.height)
    ;[from, to, row] = save
  }
  function drawWindow() {
    const g = overview.getContext('2d')
    g.putImageData(whole, 0, 0)
    const at = time => label + (time / over) * (width - label)
    g.strokeStyle = colours.fg
    g.lineWidth = 2
    g.strokeRect(at(from) + 1, 1, Math.max(3, at(to) - at(from) - 2), 26)
    g.lineWidth = 1
  }

  function draw(anew) {
    if (anew || !colours) {
      if (!size()) return
      colours = {...themeColours(), on: '#fff', onLight: '#000'}
      drawOverview()
    }
    const g = canvas.getContext('2d')
    g.font = '11px system-ui, sans-serif'
    g.clearRect(0, 0, width, height)
    for (let s = 0; s < stages.length; s++) drawStage(g, s)
    named.forEach((b, i) => b.setAttribute('aria-pressed', String(from === windows[i][1] && to === windows[i][2])))
    drawAxis(g)
    drawWindow()
  }

  let asked = false
  function redraw() {
    if (asked) return
    asked = true
    requestAnimationFrame(() => ((asked = false), draw(false)))
  }

  function show(a, b) {
    const least = over / 1e6, span = Math.min(over, Math.max(least, b - a))
    from = Math.max(0, Math.min(over - span, a))
    to = from + span
    redraw()
  }
  const zoom = (factor, middle = (from + to) / 2) => show(middle - (middle - from) / factor, middle + (to - middle) / factor)

  function find(px, py) {
    const s = Math.floor(py / row), time = timeAt(px)
    if (s < 0 || s >= stages.length || px < label) return null
    const k = lastBefore(stages[s], time)
    if (k < stages[s].n && stages[s].begin[k] <= time) return {s, k}
    const part = ends[s].find(p => time >= p.begin && time <= p.end)
    if (part) return {s, part}
    const next = k < stages[s].n ? k : -1
    return {s, idle: true, k: next, time}
  }

  function noteOf(found) {
    if (found.part) return [`stage ${found.s}: ${found.part.name}`, `~${seconds(found.part.end - found.part.begin)}, until ~${moment(found.part.end)}`]
    if (!found.idle) return actionNote(played, found.s, found.k)
    if (found.k < 0) return [`stage ${found.s}: its micro-batches are done`, 'it waits for the other stages']
    return [`stage ${found.s} waits`, `next: ${actionName(stages[found.s], found.k, t.chunks)}`, waitedFor(played, found.s, found.k)]
  }

  /* ---- pointer and keys ---- */
  const pointers = new Map()
  let dragged = null
  canvas.addEventListener('pointerdown', e => {
    canvas.setPointerCapture(e.pointerId)
    pointers.set(e.pointerId, e.offsetX)
    dragged = {x: e.offsetX, from, to, spread: pointers.size === 2 ? Math.abs([...pointers.values()][0] - [...pointers.values()][1]) : 0}
  })
  canvas.addEventListener('pointerup', e => (pointers.delete(e.pointerId), (dragged = null)))
  canvas.addEventListener('pointercancel', e => (pointers.delete(e.pointerId), (dragged = null)))
  canvas.addEventListener('pointermove', e => {
    if (dragged && pointers.has(e.pointerId)) {
      pointers.set(e.pointerId, e.offsetX)
      const xs = [...pointers.values()]
      const span = dragged.to - dragged.from
      if (xs.length === 2 && dragged.spread > 4) {
        const wanted = span * dragged.spread / Math.max(8, Math.abs(xs[0] - xs[1])), middle = (dragged.from + dragged.to) / 2
        return show(middle - wanted / 2, middle + wanted / 2)
      }
      const moved = ((dragged.x - e.offsetX) / (width - label)) * span
      return show(dragged.from + moved, dragged.to + moved)
    }
    const found = find(e.offsetX, e.offsetY)
    chosen = found && !found.part && !found.idle ? found : null
    redraw()
    found ? showNote(noteOf(found), e.clientX, e.clientY) : hideNote()
  })
  canvas.addEventListener('pointerleave', () => ((chosen = null), redraw(), hideNote()))
  canvas.addEventListener('wheel', e => {
    if (!e.ctrlKey && !e.metaKey) return
    e.preventDefault()
    zoom(Math.exp(-e.deltaY / 300), timeAt(e.offsetX))
  }, {passive: false})
  const pick = (s, k) => {
    s = Math.max(0, Math.min(stages.length - 1, s))
    k = Math.max(0, Math.min(stages[s].n - 1, k))
    chosen = {s, k}
    const {begin, end} = stages[s]
    if (end[k] < from || begin[k] > to) show(begin[k] - (to - from) / 2, begin[k] + (to - from) / 2)
    redraw()
    const box = canvas.getBoundingClientRect()
    showNote(actionNote(played, s, k), box.left + Math.max(label, Math.min(width, x(begin[k]))), box.top + (s + 1) * row)
  }
  canvas.addEventListener('keydown', e => {
    const span = to - from, here = chosen || {s: 0, k: lastBefore(stages[0], from)}
    const act = {'+': () => zoom(1.6), '=': () => zoom(1.6), '-': () => zoom(1 / 1.6), 0: () => show(0, over), ArrowLeft: () => show(from - span / 5, to - span / 5),
      ArrowRight: () => show(from + span / 5, to + span / 5), ArrowUp: () => pick(here.s - 1, lastBefore(stages[Math.max(0, here.s - 1)], stages[here.s].begin[here.k])),
      ArrowDown: () => pick(here.s + 1, lastBefore(stages[Math.min(stages.length - 1, here.s + 1)], stages[here.s].begin[here.k])),
      '.': () => pick(here.s, here.k + 1), ',': () => pick(here.s, here.k - 1)}[e.key]
    if (!act) return
    e.preventDefault()
    act()
  })
  canvas.addEventListener('blur', () => ((chosen = null), redraw(), hideNote()))
  overview.addEventListener('pointerdown', e => {
    const span = to - from, middle = ((e.offsetX - label) / (width - label)) * over
    show(middle - span / 2, middle + span / 2)
  })

  const end = phase.end, small = over / 200
  const windows = [
    ['whole step', 0, over],
    stages.length > 1 && phase.fill > 0 && ['fill', 0, Math.min(over, Math.max(firstBackward(stages[0]) * 1.4, small))],
    phase.drain > phase.fill && stages.length > 1 && ['steady state', ...steadyWindow(played, phase)],
    stages.length > 1 && ['drain', Math.max(0, phase.drain - (end - phase.drain) * 0.15), end],
    over > end && ['end of the step', Math.max(0, end - (over - end) * 0.6), over],
  ].filter(Boolean)
  const named = windows.map(([name, a, b]) => el('button', {onclick: () => show(a, b)}, name))
  /* Where single actions of the whole step could not be seen, the page begins with the fill. */
  const first = windows.length > 1 && stages[0].n > 400 ? 1 : 0
  ;[, from, to] = windows[first]
  const bar = el('div', {class: 'bar'}, named, el('button', {onclick: () => zoom(1.6), title: 'zoom in'}, '+'), el('button', {onclick: () => zoom(1 / 1.6), title: 'zoom out'}, '−'))
  const box = el('div', {class: 'timeline'}, bar, el('div', {}, overview), el('div', {class: 'rows'}, canvas))
  let last = 0
  new ResizeObserver(([entry]) => {
    const w = Math.round(entry.contentRect.width)
    if (w === last) return
    last = w
    draw(true)
  }).observe(box)
  document.addEventListener('theme', () => draw(true))
  return box
}

/* When the first gradient has come back to a stage. */
function firstBackward(stage) {
  const k = stage.act.findIndex(act => act !== FORWARD)
  return k < 0 ? 0 : stage.begin[k]
}

/* Some micro-batches of the middle, so that single actions can be seen. */
function steadyWindow(played, phase) {
  const stage = played.stages[Math.floor(played.stages.length / 2)]
  const middle = (phase.fill + phase.drain) / 2, k = lastBefore(stage, middle)
  const last = Math.min(stage.n - 1, k + 24)
  return [stage.begin[Math.min(k, stage.n - 1)], stage.end[last]]
}

function drawTimeline() {
  const played = simulate()
  if (!played) return section('timeline', 'Pipeline', el('p', {}, 'The step has too many actions to play here; zplan report --trace writes the first ones for Perfetto.'))
  const t = DATA.timeline, same = played.end_s.every((end, s) => Math.abs(end - t.end_s[s]) <= 1e-6 * t.end_s[s])
  const kinds = [...new Set(played.stages.flatMap(s => [...new Set(s.act)]))].sort()
  const {ends, over} = stepEnds(played), phase = phases(played, over)
  const parts = END_PARTS.filter(([, name]) => ends.some(e => e.some(p => p.name === name)))
  const busy = played.stages.reduce((sum, s) => {
    for (let k = 0; k < s.n; k++) sum += s.end[k] - s.begin[k]
    return sum
  }, 0)
  const idle = 1 - busy / (phase.end * played.stages.length)
  return el('section', {id: 'timeline', 'aria-labelledby': 'timeline-title', 'data-played': same && played.whole ? 'as planned' : 'differs'},
    el('h2', {id: 'timeline-title'}, 'Pipeline, to scale'),
    el('p', {class: 'dim'}, figure('timeline.microbatches', 'count'), ' micro-batches on ', figure('timeline.stages', 'count'), ' stages, schedule ', text('plan.schedule'),
      '; stages stand still for ~' + SHOW.share(Math.max(0, idle)) + ' of the time until the last micro-batch is done. Drag, Ctrl and wheel, or the keys + − ← → move the window; dashed lines: end of the fill, begin of the drain. All times are estimates.'),
    Math.abs(over / number('plan.estimate.step_s') - 1) > 1e-3 && el('p', {class: 'dim'}, 'Drawn are the micro-batches as zplan’s trainer would run them, ',
      `until ~${seconds(over)}; the program that the plan is for takes `, figure('plan.estimate.step_s', 's'), ' by its profile.'),
    !same && el('p', {class: 'warning'}, 'What is played here ends at other times than the plan says: please report it.'),
    legend([...kinds.map(k => [KINDS[k][0] + (t.chunks > 1 && k !== WEIGHTS ? ' (odd chunks lighter)' : ''), KINDS[k][1]]), ...parts.map(([, name, colour]) => [name, colour])]), drawTimelineCanvas(played))
}
