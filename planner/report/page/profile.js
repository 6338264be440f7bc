/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of a run: measured alongside predicted time of every step of the program, sortable. */

function drawProfile() {
  if (!DATA.profile) return null
  const rows = list('profile.rows').map((row, index) => ({...row, index}))
  const apart = r => Math.abs(r.measured_ms - (r.predicted_ms || 0))
  rows.sort((a, b) => apart(b) - apart(a) || a.stage - b.stage)
  const path = r => 'profile.rows.' + r.index
  return section('profile', 'Profile',
    el('p', {}, 'Mean of ', figure('profile.steps', 'count'), ' measured steps up to step ', figure('profile.step', 'count'), ', whose median is ', figure('profile.measured_step_ms', 'ms'),
      isNaN(number('profile.other_step_ms')) ? '; there are no others to compare with.' : ['; steps between, which were not measured inside, took ', figure('profile.other_step_ms', 'ms'), '.'],
      ' Where plan and run differ most stands first; headings sort.'),
    table('profile', [
      {name: 'stage', number: true, key: r => r.stage, cell: r => String(r.stage)},
      {name: 'in', key: r => r.procedure, cell: r => r.procedure},
      {name: 'step', key: r => r.name, cell: r => r.name},
      {name: 'source', key: r => r.place, cell: r => r.place},
      {name: 'kind', key: r => r.kind, cell: r => r.kind},
      {name: 'calls', number: true, key: r => r.calls, cell: r => figure(path(r) + '.calls', 'number')},
      {name: 'predicted', number: true, key: r => (r.predicted_ms == null ? NaN : r.predicted_ms), cell: r => figure(path(r) + '.predicted_ms', 'ms')},
      {name: 'measured', number: true, key: r => r.measured_ms, cell: r => figure(path(r) + '.measured_ms', 'ms')},
      {name: 'measured / predicted', number: true, key: r => (r.predicted_ms > 0 ? r.measured_ms / r.predicted_ms : NaN), cell: r => (r.predicted_ms > 0 ? ratio(path(r) + '.measured_ms', path(r) + '.predicted_ms') : '')},
    ], rows, 30))
}
