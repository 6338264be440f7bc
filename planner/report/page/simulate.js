/* SPDX-License-Identifier: Apache-2.0 */
/* The step's micro-batches, played from the plan's order tables as planner/cost/pipeline.c does: a message goes on while
 * its sender works on, its buffer is free when it has arrived, a receive blocks. */

const FORWARD = 0, BACKWARD = 1, INPUTS = 2, WEIGHTS = 3
const ACT = {F: FORWARD, B: BACKWARD, I: INPUTS, W: WEIGHTS}
/* What an action began after: the one before it on its stage, its input, or the buffer of its output. */
const AT_START = 0, OWN_STAGE = 1, INPUT = 2, BUFFER = 3

/* "3 F, 2 (4 F0, B1 F1), 3 B" as a list of numbers, each an action: its act, and from the third bit on its chunk. */
function readOrder(order) {
  const words = order.match(/\d+(?= )|[FBIW]\d*|[(),]/g) || []
  let i = 0
  const phrases = () => {
    const out = []
    while (i < words.length && words[i] !== ')') {
      if (words[i] === ',') i++
      const times = Number(words[i++])
      let inner = []
      if (words[i] === '(') {
        i++
        inner = phrases()
        i++
      } else {
        while (i < words.length && ACT[words[i][0]] !== undefined) {
          inner.push(ACT[words[i][0]] | (Number(words[i].slice(1) || 0) << 2))
          i++
        }
      }
      if (!(times >= 1) || !inner.length) return out
      for (let k = 0; k < times; k++) for (const action of inner) out.push(action)
    }
    return out
  }
  return Int32Array.from(phrases())
}

const MOST_ACTIONS = 3e6

/* {stages: [{act, chunk, microbatch, begin, end, cause, n}], end_s}; null: there are too many actions. */
function simulate() {
  const t = DATA.timeline
  const perStage = list('plan.stages').map(s => s.order)
  if (!t || t.stages * t.chunks * t.microbatches * 3 > MOST_ACTIONS * 2) return null
  const places = t.stages * t.chunks
  const stageOf = new Int32Array(places), slotOf = new Int32Array(places)
  t.place.forEach((place, slot) => {
    stageOf[place] = Math.floor(slot / t.chunks)
    slotOf[place] = slot
  })
  const arrivals = () => Array.from({length: places}, () => new Float64Array(t.microbatches).fill(-1))
  const up = arrivals(), down = arrivals() /* inputs of a place: activations; gradients */
  const free = {up: Array.from({length: places}, () => new Float64Array(t.buffers)), down: Array.from({length: places}, () => new Float64Array(t.buffers))}
  const sent = {up: new Int32Array(places), down: new Int32Array(places)}
  const orders = new Map()
  const stages = perStage.map(order => {
    if (!orders.has(order)) orders.set(order, readOrder(order))
    const actions = orders.get(order)
    return {actions, n: 0, act: new Uint8Array(actions.length), chunk: new Uint16Array(actions.length), microbatch: new Int32Array(actions.length),
      begin: new Float64Array(actions.length), end: new Float64Array(actions.length), cause: new Uint8Array(actions.length),
      next: new Int32Array(4 * t.chunks), now: 0}
  })
  const duration = (act, slot) =>
    act === FORWARD ? t.forward_s[slot] : act === BACKWARD ? t.backward_s[slot] : act === WEIGHTS ? t.weights_s[slot] : t.backward_s[slot] - t.weights_s[slot]
  const work = stages.map((_, s) => s)
  const queued = new Uint8Array(t.stages).fill(1)
  while (work.length) {
    const s = work.pop()
    queued[s] = 0
    const stage = stages[s]
    for (; stage.n < stage.actions.length; stage.n++) {
      const act = stage.actions[stage.n] & 3, chunk = stage.actions[stage.n] >> 2
      const slot = s * t.chunks + chunk, place = t.place[slot], k = stage.n
      const counter = act * t.chunks + chunk, microbatch = stage.next[counter]
      let begin = stage.now, cause = k ? OWN_STAGE : AT_START
      const forward = act === FORWARD, to = forward ? place + 1 : place - 1
      const talks = act !== WEIGHTS && to >= 0 && to < places
      const remote = talks && stageOf[to] !== s
      const buffers = forward ? free.up[place] : free.down[place], counterOf = forward ? sent.up : sent.down
      if (act !== WEIGHTS) {
        const source = forward ? (place > 0 ? up[place][microbatch] : 0) : place + 1 < places ? down[place][microbatch] : 0
        if (source < 0) break
        if (source > begin) (begin = source), (cause = INPUT)
        if (remote && buffers[counterOf[place] % t.buffers] > begin) (begin = buffers[counterOf[place] % t.buffers]), (cause = BUFFER)
      }
      const end = begin + duration(act, slot)
      stage.act[k] = act
      stage.chunk[k] = chunk
      stage.microbatch[k] = microbatch
      stage.begin[k] = begin
      stage.end[k] = stage.now = end
      stage.cause[k] = cause
      stage.next[counter]++
      if (!talks) continue
      const arrival = remote ? end + t.message_s[Math.min(place, to)] : end
      if (remote) buffers[counterOf[place]++ % t.buffers] = arrival
      const target = forward ? up[to] : down[to]
      target[microbatch] = arrival
      if (!queued[stageOf[to]]) {
        queued[stageOf[to]] = 1
        work.push(stageOf[to])
      }
    }
  }
  return {stages, stageOf, slotOf, places, end_s: stages.map(s => s.now), whole: stages.every(s => s.n === s.actions.length)}
}
