/* SPDX-License-Identifier: Apache-2.0 */
'use strict'
/* The page's data, and how its numbers read. A figure that is shown stands in a <data> element (in drawings: an element
 * with data-value) whose data-path names its place in the JSON, so that tests hold both against each other. */

const DATA = JSON.parse(document.getElementById('data').textContent)

/* "plan.stages.3.memory.saved" of the data; undefined: it is not there. */
const at = path => path.split('.').reduce((o, key) => (o == null ? undefined : o[key]), DATA)
const number = path => {
  const x = at(path)
  return typeof x === 'number' && isFinite(x) ? x : NaN
}
const list = path => {
  const x = at(path)
  return Array.isArray(x) ? x : []
}
const text = path => {
  const x = at(path)
  return typeof x === 'string' ? x : ''
}

/* Three significant digits, no exponent: "0.0123", "12.3", "123". */
function digits(x, n) {
  if (x === 0) return '0'
  const places = Math.max(0, n - 1 - Math.floor(Math.log10(Math.abs(x)) + 1e-12))
  return x.toFixed(Math.min(places, 20))
}

function scaled(x, units, n) {
  let k = 0
  while (k + 1 < units.length && Math.abs(x) >= 999.5) {
    x /= 1000
    k++
  }
  return digits(x, n) + (units[k] ? ' ' + units[k] : '')
}

const BYTES = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB']
const COUNTS = ['', 'k', 'M', 'G', 'T', 'P', 'E']

const SECONDS = [
  [999.5e-9, 1e-9, 'ns'],
  [999.5e-6, 1e-6, 'us'],
  [999.5e-3, 1e-3, 'ms'],
  [120, 1, 's'],
  [7200, 60, 'min'],
  [48 * 3600, 3600, 'h'],
  [Infinity, 86400, 'days'],
]
const unitOfSeconds = x => SECONDS.find(([below]) => Math.abs(x) < below)
function seconds(x) {
  if (x === 0) return '0 s'
  const [, unit, name] = unitOfSeconds(x)
  return digits(x / unit, 3) + ' ' + name
}

/* A time in the step, to tell neighbours apart. */
const moment = x => (x === 0 ? '0 s' : `${Number((x / unitOfSeconds(x)[1]).toPrecision(7))} ${unitOfSeconds(x)[2]}`)

/* By the kind of a figure. */
const SHOW = {
  s: seconds,
  ms: x => seconds(x / 1e3),
  B: x => (Math.abs(x) < 1000 ? x + ' B' : scaled(x, BYTES, 3)),
  bytes: x => x.toFixed(0) + ' B',
  'B/s': x => scaled(x, BYTES, 3) + '/s',
  'FLOP/s': x => scaled(x, COUNTS, 3).replace(/(\d)$/, '$1 ') + 'FLOP/s',
  FLOP: x => scaled(x, COUNTS, 3).replace(/(\d)$/, '$1 ') + 'FLOP',
  count: x => (Number.isInteger(x) && Math.abs(x) < 1e6 ? String(x) : scaled(x, COUNTS, 4)),
  short: x => scaled(x, COUNTS, 3),
  'tokens/s': x => scaled(x, COUNTS, 4) + ' tokens/s',
  share: x => (100 * x).toFixed(1) + '%',
  '$': x => '$' + scaled(x, COUNTS, 4).replace(' ', ''),
  number: x => (Number.isInteger(x) && Math.abs(x) < 1e9 ? String(x) : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e7 ? String(Number(x.toPrecision(6))) : x.toExponential(3)),
}

/* What the cost model estimates has a ~ before its figure, as on the command line; figures without it are exact, or measured. */
const ESTIMATES = new RegExp(['estimate\\.(\\w+_s|step_s_low|step_s_high|tokens_per_s|mfu|hfu|peak_bytes)$', '^training\\.(seconds|device_hours|dollars)$', '^timeline\\.\\w+_s\\.',
  '\\.cost_s$', 'certificate\\.(best_s|bound_s)$', '^front\\.\\d+\\.(step_s|tokens_per_s|peak_bytes|step_device_hours|step_dollars)$', 'memory\\.(context|communicators)$',
  'delayed_update\\.\\w+_s$', '\\.predicted_ms$', '^sides\\.terms\\.', '^sides\\.plans\\.\\d+\\.(step_s|tokens_per_s|mfu|peak_bytes|run_\\w+)$', '^machine\\.groups\\.\\d+\\.\\w+_s$'].join('|'))
const mark = path => (ESTIMATES.test(path) ? '~' : '')

const NOT_MEASURED = 'not measured'

/* What could end a line, turn it around or hide in it is shown by its number: names are strangers'. */
const clean = s =>
  String(s).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))
