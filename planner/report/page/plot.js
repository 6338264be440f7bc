/* SPDX-License-Identifier: Apache-2.0 */
/* Axes: linear and logarithmic scales, their ticks, curves and scattered points. */

function linear(low, high, from, to) {
  const span = high - low || 1
  const scale = x => from + ((x - low) / span) * (to - from)
  /* Round in the unit that they are shown in. */
  scale.unit = 1
  scale.ticks = n => {
    const rough = span / n / scale.unit
    const power = Math.pow(10, Math.floor(Math.log10(rough)))
    const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= rough * 0.999)
    const out = []
    for (let k = Math.ceil(low / scale.unit / step - 1e-9); k * step <= high / scale.unit + step * 1e-9; k++) out.push(k * step * scale.unit)
    return out
  }
  return scale
}

function logarithmic(low, high, from, to) {
  const a = Math.log10(low)
  const span = Math.log10(high) - a || 1
  const scale = x => from + ((Math.log10(x) - a) / span) * (to - from)
  scale.ticks = n => {
    const every = Math.max(1, Math.ceil(span / n))
    const out = []
    for (let k = Math.ceil(a - 1e-9); k <= a + span + 1e-9; k += every) out.push(Math.pow(10, k))
    return out
  }
  return scale
}

/* What a plot of so many units leaves for its axes. */
const MARGIN = {left: 76, right: 24, top: 12, bottom: 42}

/* Ticks, [value, text]: as many as their texts tell apart, so that no axis reads 30.0, 30.0, 30.0. */
function labelled(scale, most, show) {
  for (let n = most; ; n--) {
    const ticks = scale.ticks(n).map(t => [t, show(t)])
    if (n === 1 || new Set(ticks.map(t => t[1])).size === ticks.length) return ticks
  }
}

function axes(width, height, x, y, names, show) {
  const bottom = height - MARGIN.bottom
  return [
    labelled(y, 5, show.y).map(([t, text]) => [
      svg('line', {class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(t), y2: y(t)}),
      svg('text', {class: 'tick', x: MARGIN.left - 8, y: y(t) + 4, 'text-anchor': 'end'}, text),
    ]),
    labelled(x, width > 500 ? 8 : 4, show.x).map(([t, text]) => [
      svg('line', {class: 'grid', x1: x(t), x2: x(t), y1: MARGIN.top, y2: bottom}),
      svg('text', {class: 'tick', x: x(t), y: bottom + 17, 'text-anchor': 'middle'}, text),
    ]),
    svg('line', {class: 'axis', x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom}),
    svg('line', {class: 'axis', x1: MARGIN.left, x2: MARGIN.left, y1: MARGIN.top, y2: bottom}),
    svg('text', {class: 'name', x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 6, 'text-anchor': 'middle'}, names.x),
    svg('text', {class: 'name', x: 12, y: (MARGIN.top + bottom) / 2, 'text-anchor': 'middle',
      transform: `rotate(-90 12 ${(MARGIN.top + bottom) / 2})`}, names.y),
  ]
}

/* A drawing that is made anew for the width that it has: text keeps its size from a phone to a wide screen. */
function responsive(make) {
  const box = el('div', {class: 'drawing'})
  let last = 0
  new ResizeObserver(entries => {
    const width = Math.round(entries[0].contentRect.width)
    if (width < 40 || width === last) return
    last = width
    box.replaceChildren(make(width))
  }).observe(box)
  return box
}

/* points: [x, y, ...]; those that are no numbers interrupt the curve. */
function curve(points, x, y) {
  let path = ''
  let pen = false
  for (const [a, b] of points) {
    const there = typeof a === 'number' && typeof b === 'number' && isFinite(a) && isFinite(b)
    if (there) path += (pen ? 'L' : 'M') + x(a).toFixed(1) + ' ' + y(b).toFixed(1)
    pen = there
  }
  return path
}

function extent(values, room = 0.05) {
  const real = values.filter(v => typeof v === 'number' && isFinite(v))
  if (!real.length) return [0, 1]
  const low = real.reduce((a, b) => Math.min(a, b))
  const high = real.reduce((a, b) => Math.max(a, b))
  const span = high - low || Math.abs(high) || 1
  return [low - span * room, high + span * room]
}
