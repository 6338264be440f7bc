/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of the cost model, folded away. */

function drawConstants() {
  return section('constants', 'Constants of the cost model', folded('Names, values and sources', table('constants', [
    {name: 'constant', key: c => c.name, cell: c => el('code', {}, c.name)},
    {name: 'value', number: true, cell: c => figure(`constants.${c.index}.value`, 'number')},
    {name: 'unit', cell: c => c.unit},
    {name: 'source', cell: c => el('span', {class: 'wrap'}, c.source)},
  ], list('constants').map((c, index) => ({...c, index})), 200)))
}
