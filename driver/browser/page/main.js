/* SPDX-License-Identifier: Apache-2.0 */
/* What the buttons do. The planner is in a worker; Stop ends it and starts another. */
const DATA = JSON.parse(byId('data').textContent)
const NEEDED = {WebAssembly: 'WebAssembly', Worker: 'web workers', DecompressionStream: 'DecompressionStream', CompressionStream: 'CompressionStream'}

let program = null, worker = null, waiting = null, urls = []

function say(text, failure = false) {
  byId('status').textContent = text
  byId('status').className = failure ? 'failure' : ''
}

/* ---- the worker ---- */

function ended(message) {
  const done = waiting
  waiting = null
  if (!done) return
  if (message.broken) done.reject(new Error(message.broken))
  else done.resolve(message.answer || message)
}

const next = () => new Promise((resolve, reject) => { waiting = {resolve, reject} })

async function startWorker() {
  const address = URL.createObjectURL(new Blob([DATA.worker], {type: 'text/javascript'}))
  worker = new Worker(address)
  worker.onmessage = event => ended(event.data)
  worker.onerror = event => ended({broken: `this browser cannot run the planner: ${event.message}`})
  const ready = next()
  worker.postMessage({program, library: DATA.library})
  await ready
  URL.revokeObjectURL(address)
}

/* One command of zplan over these files, of paths and texts or bytes. One at a time. */
function runZplan(words, files) {
  const answer = next()
  worker.postMessage({words, files})
  return answer
}

/* Without a command there is nothing to stop: the worker stays for the next one. */
function stopWorker(why) {
  if (!waiting) return
  worker.terminate()
  ended({broken: why})
}

/* ---- a plan ---- */

/* Words as in a shell: spaces part them, quotes hold them together. */
function splitWords(text) {
  const words = []
  let word = null, quote = null
  for (const c of text) {
    if (quote ? c === quote : c === '"' || c === "'") {
      quote = quote ? null : c
      word = word || ''
    } else if (!quote && /\s/.test(c)) {
      if (word !== null) words.push(word)
      word = null
    } else {
      word = (word || '') + c
    }
  }
  if (quote) throw new Error(`options: a ${quote} is not closed`)
  return word === null ? words : [...words, word]
}

const asked = () => Object.fromEntries(['file', 'gpus', 'machine', 'options'].map(id => [id, byId(id).value]))

/* What is answered with a table, and with no plan that a file could hold. */
const isTable = word => /^(--sensitivity|--pareto)/.test(word) || /^(--(gpus|ranks|nodes)=)?(auto|\d+\.\.\d+)$/.test(word)

function wordsOf(request) {
  const words = splitWords(request.options)
  if (request.gpus.trim()) words.push('--gpus', request.gpus.trim())
  if (request.machine) words.push('--machine', request.machine)
  if (!words.some(isTable)) words.push('-o', '/plan.json')
  return ['plan', '/model.dz', ...words, '--message-format', 'json']
}

function addressOf(content, type) {
  const url = URL.createObjectURL(new Blob([content], {type}))
  urls.push(url)
  return url
}

function clearAnswer() {
  urls.forEach(url => URL.revokeObjectURL(url))
  urls = []
  byId('downloads').replaceChildren()
  for (const id of ['text', 'report']) byId(id).hidden = true
}

function showText(text) {
  byId('text').textContent = text
  byId('text').hidden = !text
}

function download(name, content, type) {
  byId('downloads').append(el('a', {href: addressOf(content, type), download: name}, name))
}

const figures = answer => `${answer.seconds.toFixed(1)} s, ${Math.round(answer.memoryMiB)} MiB`

async function showPlan(plan, answer) {
  const made = (await runZplan(['report', '/plan.json', '--html', '/report.html'], {'/plan.json': plan})).made['/report.html']
  download('plan.json', plan, 'application/json')
  if (!made) throw new Error('the report could not be drawn')
  download('report.html', made, 'text/html')
  const drawn = new Promise(done => byId('report').addEventListener('load', done, {once: true}))
  byId('report').hidden = false
  byId('report').src = addressOf(made, 'text/html')
  await drawn
  say(`Planned in ${figures(answer)}.`)
}

async function answerOf(request) {
  const answer = await runZplan(wordsOf(request), {'/model.dz': request.file}), plan = answer.made['/plan.json']
  const {list, rest} = readDiagnostics(answer.err)
  showDiagnostics(list)
  if (answer.status === 0 && plan) return showPlan(plan, answer)
  showText([answer.out, answer.status === 0 ? '' : rest].filter(Boolean).join('\n')) // a table of sizes, or why there is no plan
  const found = list.some(d => d.level === 'error') ? 'The planner found errors.' : 'There is no plan: see below.'
  return say(answer.status === 0 ? `Planned in ${figures(answer)}.` : answer.status === 3 ? `No plan fits (${figures(answer)}).` : found, answer.status !== 0)
}

function busy(is) {
  byId('plan').disabled = is
  byId('stop').disabled = !is
}

async function plan() {
  if (byId('plan').disabled) return
  busy(true)
  clearAnswer()
  showDiagnostics([])
  const begun = performance.now(), tick = () => say(`Planning: ${Math.floor((performance.now() - begun) / 1000)} s.`)
  const clock = setInterval(tick, 1000)
  tick()
  try {
    await answerOf(asked())
  } catch (error) {
    say(`${error.message[0].toUpperCase()}${error.message.slice(1)}.`, true)
    byId('stop').disabled = true // a second press would end the worker that starts here
    worker.terminate() // what its memory grew to goes with it
    await startWorker()
  } finally {
    clearInterval(clock)
    busy(false)
  }
}

/* ---- links ---- */

async function makeLink() {
  const fragment = await writeFragment(asked())
  if (fragment.length > MOST_LINK) return say(`The file is too long for a link: ${fragment.length} characters, at most ${MOST_LINK}.`, true)
  history.replaceState(null, '', fragment)
  const copied = await Promise.resolve().then(() => navigator.clipboard.writeText(location.href)).then(() => true, () => false)
  return say(copied ? 'The link is copied; it holds the file.' : 'The address of this page holds the file now: copy it from there.')
}

/* True where the address holds a file. */
async function takeLink() {
  let request = null
  try {
    request = await readFragment(location.hash)
  } catch {
    say('The link is damaged: it holds no file that can be read.', true)
    return false
  }
  if (!request) return false
  clearAnswer()
  setFile(request.file)
  for (const id of ['gpus', 'options']) byId(id).value = request[id]
  byId('machine').value = request.machine
  byId('example').value = ''
  if (request.machine && !byId('machine').value) say(`The link names a machine that is not known here: ${request.machine}.`, true)
  else say('The link\'s file. Press Plan.')
  return true
}

/* ---- the beginning ---- */

function takeExample(name) {
  clearAnswer()
  setFile(DATA.examples[name])
}

function fillLists(machines) {
  byId('machine').append(...machines.map(m => el('option', {value: m.name}, m.name)))
  byId('example').append(el('option', {value: ''}, 'own file'), ...Object.keys(DATA.examples).map(name => el('option', {value: name}, name)))
}

function listen() {
  byId('controls').addEventListener('submit', event => (event.preventDefault(), plan()))
  byId('stop').addEventListener('click', () => stopWorker('stopped'))
  byId('link').addEventListener('click', makeLink)
  byId('example').addEventListener('change', event => event.target.value && takeExample(event.target.value))
  byId('file').addEventListener('input', () => (byId('example').value = '', showDiagnostics([])))
  byId('file').addEventListener('scroll', scrollLines)
  window.addEventListener('hashchange', takeLink)
}

async function main() {
  const missing = Object.keys(NEEDED).filter(name => typeof globalThis[name] === 'undefined').map(name => NEEDED[name])
  if (missing.length) return say(`This browser has no ${missing.join(', no ')}: the planner cannot run in it. Use a newer one, or the command: zplan FILE.dz.`, true)
  try {
    program = await through(new DecompressionStream('gzip'), fromBase64(DATA.program))
    await startWorker()
    fillLists(JSON.parse((await runZplan(['machines', '--json'], {})).out))
  } catch (error) {
    return say(error.message, true)
  }
  DATA.program = null
  listen()
  const damaged = location.hash.startsWith('#z=') && !(await takeLink())
  if (!byId('file').value) {
    byId('example').value = DATA.first + '.dz'
    takeExample(DATA.first + '.dz')
    if (!damaged) say('Choose an example or write a file, then press Plan.')
  }
  busy(false)
  return undefined
}
main()
