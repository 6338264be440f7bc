/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: compiles the program once, then runs one command after the other. Messages in: {program, library}, then {words, files};
 * out: {ready} or {answer: {status, out, err, made: {path: bytes}, seconds, memoryMiB}} or {broken: text}. */
let compiled = null, given = null

/* What JavaScript says of a program that went beyond a limit of the browser, in words that help. */
function explain(error) {
  if (error instanceof RangeError && /stack/i.test(error.message)) return 'the file is nested too deeply for this browser'
  if (error instanceof RangeError) return 'this browser gives the planner too little memory; the command has no such limit'
  if (error instanceof WebAssembly.RuntimeError) return `the planner failed, which is a fault of ours: ${error.message}`
  return `this browser cannot run the planner: ${error.message}`
}

function runCommand(message) {
  const files = new Map(given)
  for (const [path, content] of Object.entries(message.files)) files.set(path, typeof content === 'string' ? new TextEncoder().encode(content) : content)
  const answer = runProgram(compiled, ['zplan', ...message.words], files, {ZPLAN_LIBRARY: '/library', ZPLAN_CALIBRATION: 'none', LANG: 'C.UTF-8'})
  const made = {}
  for (const [path, bytes] of files) if (!message.files[path] && !path.startsWith('/library/')) made[path] = bytes
  return {...answer, made}
}

onmessage = async event => {
  try {
    if (event.data.program) {
      compiled = await WebAssembly.compile(event.data.program)
      given = Object.entries(event.data.library).map(([name, text]) => ['/library/' + name, new TextEncoder().encode(text)])
      postMessage({ready: true})
    } else {
      postMessage({answer: runCommand(event.data)})
    }
  } catch (error) {
    postMessage({broken: explain(error)})
  }
}
