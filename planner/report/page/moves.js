/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent, by axis and by strategy; every record of the list of moves. */

const AXES = [['tensor', 'tensor'], ['pipeline', 'pipeline'], ['data', 'data'], ['tie', 'tied weights'], ['expert', 'experts'], ['context', 'context']]

function drawMoves() {
  const axesUsed = AXES.filter(([key]) => number('plan.traffic_bytes.' + key) > 0)
  return section('communication', 'Communication of a step',
    axesUsed.length ? table('bytes sent by all ranks', [
      {name: 'axis', cell: ([, name]) => name},
      {name: 'sent by all ranks', number: true, cell: ([key]) => figure('plan.traffic_bytes.' + key, 'B')},
    ], axesUsed) : el('p', {}, 'No rank sends anything.'),
    table('what moves', [
      {name: 'what moves', cell: s => s.name},
      {name: 'all ranks', number: true, key: s => s.bytes, cell: s => figure(`strategies.${s.index}.bytes`, 'B')},
      {name: 'how', cell: s => el('span', {class: 'wrap'}, s.how)},
    ], list('strategies').map((s, index) => ({...s, index}))),
    folded('Every move', list('moves').map(group => [el('h3', {}, 'stage ' + group.stages + (group.first < group.last ? ', the first of them' : '')),
      table('moves of stage ' + group.stages, ['when', 'by', 'what', 'way', 'ends', 'size'].map(key => ({name: {way: 'how', ends: 'from, to', size: "a rank's"}[key] || key, cell: r => r[key]})).concat([
        {name: 'a step', number: true, cell: r => String(r.times) + (r.warmup ? ' of the warm-up' : '')}, {name: 'on', cell: r => r.queue}, {name: 'waited for', cell: r => r.wait}]),
      group.records, 20)])))
}
